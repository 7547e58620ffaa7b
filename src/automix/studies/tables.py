"""An experiment's results as Markdown, as JSON, and on a terminal of 80 columns."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from automix._version import __version__
from automix.core.files import write_atomically
from automix.runs.protocol import LAST
from automix.studies.cells import OF_THE_RUN, Experiment, Network
from automix.studies.results import NETWORKS, Block, Line, Number

PAPER = "paper"
RUN = "measured"  # of a run, not of one of its networks


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


# --- Markdown


def as_markdown(experiment: Experiment, blocks: Sequence[Block], facts: dict[str, str], plot: str = "") -> str:
    """The whole page; `plot` is the name of the file with the experiment's picture, if there is one."""
    lines = [f"# {experiment.name}: {experiment.title}", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    lines += [f"- {note}" for note in remarks(experiment, blocks)]
    lines += ["", f"![the results as a picture]({plot})"] if plot else []
    for block in blocks:
        header, *rows = table_of(experiment, block, bold="**{}**")
        if not rows:
            continue
        lines += ["", f"## {block.column.title}", ""]
        lines += [f"| {' | '.join(header)} |", f"| --- |{' ---: |' * (len(header) - 1)}"]
        lines += [f"| {' | '.join(row)} |" for row in rows]
    lines += _pictures(experiment, blocks)
    return "\n".join(lines) + "\n"


def _pictures(experiment: Experiment, blocks: Sequence[Block]) -> list[str]:
    """The pictures of each row's first run."""
    lines = []
    seen = set()
    for line in (line for block in blocks for line in block.lines):
        for name in experiment.pictures:
            for network in (line.about, *NETWORKS):
                folder = next(iter(line.numbers[network].folders), None)
                if folder is not None and (line.row, name) not in seen:
                    seen.add((line.row, name))
                    lines += ["", f"![{line.title}]({folder}/{name})", "", f"{line.title}: {name}"]
    return ["", "## Pictures", *lines] if lines else []


# --- on a terminal


def print_blocks(experiment: Experiment, blocks: Sequence[Block], console: Console) -> None:
    for block in blocks:
        header, *rows = table_of(experiment, block, bold="[bold]{}[/]")
        if not rows:
            continue
        table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1), title=block.column.title)
        table.title_justify, table.title_style = "left", "bold underline"
        for name in header:
            is_number = name in (PAPER, RUN, *NETWORKS)
            table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number)
        for row in rows:
            table.add_row(*(cell.replace("+- ", "+-") for cell in row))
        console.print(table, "")
    for remark in remarks(experiment, blocks):
        console.print(f"- {remark}", markup=False)


# --- words and numbers


def table_of(experiment: Experiment, block: Block, bold: str) -> list[list[str]]:
    """The header, then a line for each row; without columns and rows in which nothing stands.

    Such are the paper's column in experiments of ours, and what is not finished there.
    """
    networks = [RUN if block.column.measure.startswith(OF_THE_RUN) else network for network in NETWORKS]
    header = ["method", PAPER, *networks, *([minus(experiment)] if experiment.reference else [])]
    rows = [row for row in (_cells(experiment, line, bold) for line in block.lines) if any(row[1:])]
    kept = [place for place in range(len(header)) if any(row[place] for row in rows)]
    return [[row[place] for place in kept] for row in (header, *rows)]


def _cells(experiment: Experiment, line: Line, bold: str) -> list[str]:
    numbers = [show(line.numbers[network]) for network in NETWORKS]
    place = NETWORKS.index(line.about)
    if line.paper is not None and numbers[place]:  # the number to compare with the paper's
        numbers[place] = bold.format(numbers[place])
    compared = [str(line.difference or "")] if experiment.reference else []
    return [line.title, show_paper(line.paper), *numbers, *compared]


def minus(experiment: Experiment) -> str:
    title = next((row.title for row in experiment.rows if row.name == experiment.reference), experiment.reference)
    return f"{title} minus it"


def show(number: Number) -> str:
    """Mean +- standard deviation; a single trial has none."""
    trials = number.trials
    if trials is None:
        return ""
    return f"{trials.mean:.2f}" if trials.std is None else f"{trials.mean:.2f} +- {trials.std:.2f}"


def show_paper(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def remarks(experiment: Experiment, blocks: Sequence[Block]) -> list[str]:
    """What a reader of the tables must know."""
    numbers = [line.numbers[network] for block in blocks for line in block.lines for network in NETWORKS]
    counts = sorted({len(number.by_seed) for number in numbers if number.by_seed})
    said = []
    if counts:
        trials = " to ".join(str(count) for count in ([counts[0]] if len(counts) == 1 else [counts[0], counts[-1]]))
        said.append(f"mean +- standard deviation over trials ({trials}); top-1 of a trial is the median of its last "
                    f"{LAST} epochs{_measured(blocks)}")  # fmt: skip
        bold = "; bold: what the paper's number is about"
        known = any(line.paper is not None for block in blocks for line in block.lines)
        said.append(f"student: without EMA; teacher: with EMA, as AutoMix deploys it{bold if known else ''}")
    if experiment.reference and any(line.difference for block in blocks for line in block.lines):
        said.append(f"{minus(experiment)}: paired by seed, 95 % confidence; {_compared(blocks)}")
    said += experiment.notes
    official = [row.title for row in experiment.rows if row.official]
    if official:
        said.append(f"the paper's numbers of {', '.join(official)} come from the methods' official code")
    for block in blocks:
        said += [f"{block.column.title}, {line.title}: {note}" for line in block.lines for note in line.notes]
    return said


def _measured(blocks: Sequence[Block]) -> str:
    """How many epochs really are in the medians, where runs were not evaluated after every epoch."""
    top1 = [line.numbers[network] for block in blocks if block.column.measure == "top1" for line in block.lines
            for network in NETWORKS]  # fmt: skip
    epochs = sorted({number.epochs for number in top1 if number.by_seed} - {LAST})
    return f", of which {epochs[0]} were measured" if epochs else ""


def _compared(blocks: Sequence[Block]) -> str:
    ways = sorted({line.compared for block in blocks for line in block.lines if line.difference})
    return "compared are " + ", ".join(ways)


# --- JSON


def as_json(experiment: Experiment, blocks: Sequence[Block], facts: dict[str, str]) -> str:
    content = {
        "experiment": experiment.name,
        "title": experiment.title,
        "source": experiment.source,
        **facts,
        "remarks": remarks(experiment, blocks),
        "columns": [
            {
                "name": block.column.name,
                "title": block.column.title,
                "measure": block.column.measure,
                "rows": [_line_content(line) for line in block.lines],
            }
            for block in blocks
        ],
    }
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _line_content(line: Line) -> dict[str, Any]:
    content: dict[str, Any] = {"name": line.row, "title": line.title, "paper": line.paper, "paper_about": line.about}
    for network in NETWORKS:
        content[network] = _number_content(line, network)
    if (difference := line.difference) is not None:
        content["difference"] = {
            "reference_minus_this": difference.mean,
            "half_width_95": difference.half,
            "pairs": difference.count,
            "within_noise": difference.within_noise,
            "compared": line.compared,
        }
    return content


def _number_content(line: Line, network: Network) -> dict[str, Any] | None:
    number = line.numbers[network]
    if (trials := number.trials) is None:
        return None
    return {
        "mean": trials.mean,
        "std": trials.std,
        "trials": trials.count,
        "epochs_in_median": trials.epochs,
        "by_seed": {str(seed): value for seed, value in number.by_seed.items()},
        "runs": list(number.folders),
    }


# --- where it was measured


def facts_of(command: str) -> dict[str, str]:
    """The command, the code and the machine."""
    import torch

    machine = f"{platform.system()}, {platform.machine()}, {os.cpu_count()} cores"
    if torch.cuda.is_available():
        machine += f", {torch.cuda.device_count()} x {torch.cuda.get_device_name()}"
    code = f"automix {__version__}{_commit()}, torch {torch.__version__}"
    return {"command": command, "code": code, "machine": machine}


def _commit() -> str:
    """Of the checkout that the package lies in, if it does."""
    here = Path(__file__).parent
    try:
        done = subprocess.run(
            ["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True
        )
    except OSError:
        return ""
    return f" ({done.stdout.strip()})" if done.returncode == 0 else ""
