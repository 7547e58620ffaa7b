"""Results as Markdown, as JSON, and on a terminal of 80 columns."""

import json
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from automix.runs.protocol import LAST
from automix.studies.cells import NETWORKS, RUN_MEASURES, Network
from automix.studies.experiment import Experiment
from automix.studies.results import Result, ResultRow, ResultTable

PAPER = "paper"
RUN = "measured"  # of a run, not of one of its networks


# --- Markdown


def as_markdown(experiment: Experiment, tables: Sequence[ResultTable], facts: dict[str, str], plot: str = "") -> str:
    """Write the results as a Markdown page.

    Args:
        experiment: The experiment.
        tables: Its results.
        facts: Lines at the top, by name.
        plot: File name of the experiment's picture, if there is one.

    Returns:
        The page.
    """
    lines = [f"# {experiment.name}: {experiment.title}", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += [f"- {note}" for note in remarks(experiment, tables)]
    lines += ["", f"![the results as a picture]({plot})"] if plot else []
    for table in tables:
        header, *rows = table_cells(experiment, table, bold="**{}**")
        if not rows:
            continue
        lines += ["", f"## {table.column.title}", ""]
        lines += [f"| {' | '.join(header)} |", f"| --- |{' ---: |' * (len(header) - 1)}"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


# --- on a terminal


def print_tables(experiment: Experiment, tables: Sequence[ResultTable], console: Console) -> None:
    """Print the results.

    Args:
        experiment: The experiment.
        tables: Its results.
        console: Where they are printed.
    """
    for table in tables:
        header, *rows = table_cells(experiment, table, bold="[bold]{}[/]")
        if not rows:
            continue
        grid = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1), title=table.column.title)
        grid.title_justify, grid.title_style = "left", "bold underline"
        for name in header:
            is_number = name in (PAPER, RUN, *NETWORKS)
            grid.add_column(name, justify="right" if is_number else "left", no_wrap=is_number)
        for row in rows:
            grid.add_row(*(cell.replace("+- ", "+-") for cell in row))
        console.print(grid, "")
    for remark in remarks(experiment, tables):
        console.print(f"- {remark}", markup=False)


# --- words and numbers


def table_cells(experiment: Experiment, table: ResultTable, bold: str) -> list[list[str]]:
    """Format a table as text. Empty rows and columns are left out.

    Args:
        experiment: The experiment.
        table: The results of a column.
        bold: How to mark the number that belongs to the paper's, such as ``"**{}**"``.

    Returns:
        The header, then the cells of each row.
    """
    networks = [RUN if table.column.measure.startswith(RUN_MEASURES) else network for network in NETWORKS]
    header = ["method", PAPER, *networks, *([difference_title(experiment)] if experiment.reference else [])]
    rows = [cells for cells in (_row_cells(experiment, row, bold) for row in table.rows) if any(cells[1:])]
    kept = [place for place in range(len(header)) if any(row[place] for row in rows)]
    return [[row[place] for place in kept] for row in (header, *rows)]


def _row_cells(experiment: Experiment, row: ResultRow, bold: str) -> list[str]:
    numbers = [format_result(row.results[network]) for network in NETWORKS]
    place = NETWORKS.index(row.paper_network)
    if row.paper is not None and numbers[place]:  # the number to compare with the paper's
        numbers[place] = bold.format(numbers[place])
    compared = [str(row.difference or "")] if experiment.reference else []
    return [row.title, _format_paper(row.paper), *numbers, *compared]


def difference_title(experiment: Experiment) -> str:
    """Name the column of differences.

    Args:
        experiment: An experiment with a reference row.

    Returns:
        Its title.
    """
    title = next((row.title for row in experiment.rows if row.name == experiment.reference), experiment.reference)
    return f"{title} minus it"


def format_result(result: Result) -> str:
    """Format a result as mean +- standard deviation.

    Args:
        result: The numbers of a cell.

    Returns:
        The text; empty without numbers, the mean alone for a single trial.
    """
    trials = result.trials
    if trials is None:
        return ""
    return f"{trials.mean:.2f}" if trials.std is None else f"{trials.mean:.2f} +- {trials.std:.2f}"


def _format_paper(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def remarks(experiment: Experiment, tables: Sequence[ResultTable]) -> list[str]:
    """List the remarks that readers of the tables need.

    Args:
        experiment: The experiment.
        tables: Its results.

    Returns:
        One sentence each.
    """
    results = [row.results[network] for table in tables for row in table.rows for network in NETWORKS]
    counts = sorted({len(result.by_seed) for result in results if result.by_seed})
    lines = []
    if counts:
        trials = " to ".join(str(count) for count in ([counts[0]] if len(counts) == 1 else [counts[0], counts[-1]]))
        by_median = any(table.column.measure == "top1" for table in tables)
        rule = f"the median of its last {LAST} epochs{_epochs_measured(tables)}"
        lines.append(f"mean +- standard deviation over trials ({trials}); top-1 of a trial is "
                    f"{rule if by_median else 'that of its last epoch'}")  # fmt: skip
        bold = "; bold: to be compared with the paper's number"
        known = any(row.paper is not None for table in tables for row in table.rows)
        lines.append(f"student: without EMA; teacher: with EMA, as AutoMix deploys it{bold if known else ''}")
    if experiment.reference and any(row.difference for table in tables for row in table.rows):
        lines.append(f"{difference_title(experiment)}: paired by seed, 95 % confidence; {_compared(tables)}")
    lines += experiment.notes
    official = [row.title for row in experiment.rows if row.official]
    if official:
        lines.append(f"the paper's numbers of {', '.join(official)} come from the methods' official code")
    for table in tables:
        lines += [f"{table.column.title}, {row.title}: {note}" for row in table.rows for note in row.notes]
    return lines


def _epochs_measured(tables: Sequence[ResultTable]) -> str:
    """Say how many epochs are in the medians, if runs were not evaluated after every epoch."""
    top1 = [row.results[network] for table in tables if table.column.measure == "top1" for row in table.rows
            for network in NETWORKS]  # fmt: skip
    epochs = sorted({result.epochs for result in top1 if result.by_seed} - {LAST})
    return f", of which {epochs[0]} were measured" if epochs else ""


def _compared(tables: Sequence[ResultTable]) -> str:
    ways = sorted({row.compared for table in tables for row in table.rows if row.difference})
    return "compared are " + ", ".join(ways)


# --- JSON


def as_json(experiment: Experiment, tables: Sequence[ResultTable], facts: dict[str, str]) -> str:
    """Write the results as JSON.

    Args:
        experiment: The experiment.
        tables: Its results.
        facts: Further entries at the top.

    Returns:
        The text.
    """
    content = {
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        **facts,
        "remarks": remarks(experiment, tables),
        "columns": [
            {
                "name": table.column.name,
                "title": table.column.title,
                "measure": table.column.measure,
                "rows": [_row_content(row) for row in table.rows],
            }
            for table in tables
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _row_content(row: ResultRow) -> dict[str, Any]:
    content: dict[str, Any] = {"name": row.row, "title": row.title, "paper": row.paper}
    content["paper_network"] = row.paper_network
    for network in NETWORKS:
        content[network] = _result_content(row, network)
    if (difference := row.difference) is not None:
        content["difference"] = {
            "reference_minus_this": difference.mean,
            "half_width_95": difference.half_width,
            "pairs": difference.count,
            "within_noise": difference.within_noise,
            "compared": row.compared,
        }
    return content


def _result_content(row: ResultRow, network: Network) -> dict[str, Any] | None:
    result = row.results[network]
    if (trials := result.trials) is None:
        return None
    return {
        "mean": trials.mean,
        "std": trials.std,
        "trials": trials.count,
        "epochs_in_median": trials.epochs,
        "by_seed": {str(seed): value for seed, value in result.by_seed.items()},
        "runs": list(result.folders),
    }
