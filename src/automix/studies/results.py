"""The results of an experiment's finished runs, beside the paper's numbers."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from automix.runs.folder import RunFolder
from automix.runs.metrics import top1_by_epoch
from automix.runs.protocol import Trials, median_of_last, over_trials
from automix.studies.cells import NETWORKS, PARAMETERS, Cell, Column, Network
from automix.studies.differences import Difference, paired_difference
from automix.studies.experiment import Experiment
from automix.studies.parameters import million_parameters
from automix.studies.plan import Grid, runs_of


@dataclass(frozen=True)
class Result:
    """The numbers of one network in a cell.

    Attributes:
        by_seed: One number per seed.
        epochs: Epochs in the median of each trial.
        folders: Names of the run folders.
    """

    by_seed: dict[int, float] = field(default_factory=dict)
    epochs: int = 0
    folders: tuple[str, ...] = ()

    @property
    def trials(self) -> Trials | None:
        """Mean and standard deviation over the seeds; None if there are no numbers."""
        values = [self.by_seed[seed] for seed in sorted(self.by_seed)]
        return over_trials(values, self.epochs) if values else None


@dataclass(frozen=True)
class ResultRow:
    """A row of a table of results.

    Attributes:
        row: Name of the row.
        title: Its name in the table.
        paper: The paper's number, or None.
        paper_network: The network that the paper's number belongs to.
        results: The results of each network.
        difference: The reference row's number minus this one, or None.
        compared: Which networks the difference compares.
        notes: Remarks on this row.
    """

    row: str
    title: str
    paper: float | None
    paper_network: Network
    results: dict[Network, Result]
    difference: Difference | None = None
    compared: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ResultTable:
    """The results of one column.

    Attributes:
        column: The column.
        rows: Its rows.
    """

    column: Column
    rows: tuple[ResultRow, ...]


def collect(experiment: Experiment, grid: Grid) -> list[ResultTable]:
    """Read the results of all finished runs.

    Args:
        experiment: The experiment.
        grid: How it was run.

    Returns:
        A table for each column; an unfinished run has no number. A title says if the grid changes settings, because it
        may name data or a network that was not used.
    """
    mark = " (settings changed)" if grid.changes else ""
    return [
        ResultTable(replace(column, title=column.title + mark), _collect_rows(experiment, column, grid))
        for column in experiment.columns
    ]


def precisions(tables: Sequence[ResultTable], out: Path) -> list[str]:
    """List the precisions in which the runs were computed; bf16 and float32 do not give the same numbers.

    Args:
        tables: From `collect`.
        out: The folder of the runs.

    Returns:
        The precisions that the runs' summaries name.
    """
    folders = {folder for table in tables for row in table.rows for result in row.results.values()
               for folder in result.folders}  # fmt: skip
    summaries = [RunFolder(out / folder).summary() for folder in sorted(folders)]
    return sorted({summary["precision"] for summary in summaries if "precision" in summary})


def _collect_rows(experiment: Experiment, column: Column, grid: Grid) -> tuple[ResultRow, ...]:
    titles = {row.name: row.title for row in experiment.rows}
    cells = [cell for cell in experiment.cells if cell.column == column.name]
    results = {cell.row: {network: _read_result(cell, column, network, grid) for network in NETWORKS} for cell in cells}
    reference = experiment.cell(experiment.reference, column.name) if experiment.reference else None
    rows = []
    for cell in cells:
        difference, compared = None, ""
        if reference is not None and cell is not reference:
            difference, compared = _compare(reference, cell, results)
        notes = (*([cell.note] if cell.note else []), *_detect_commands(cell, column, grid))
        title, network = titles[cell.row], cell.paper_network
        rows.append(ResultRow(cell.row, title, cell.paper, network, results[cell.row], difference, compared, notes))
    return tuple(rows)


def _compare(reference: Cell, cell: Cell, results: dict[str, dict[Network, Result]]) -> tuple[Difference | None, str]:
    """Compare teachers if both rows have one, else students, else the network that each has."""
    ours, theirs = results[reference.row], results[cell.row]
    for network in ("teacher", "student"):
        if reference.source(network) is not None and cell.source(network) is not None:
            return paired_difference(ours[network].by_seed, theirs[network].by_seed), f"{network}s"
    difference = paired_difference(ours[reference.paper_network].by_seed, theirs[cell.paper_network].by_seed)
    return difference, f"its {reference.paper_network} with this {cell.paper_network}"


def _read_result(cell: Cell, column: Column, network: Network, grid: Grid) -> Result:
    source = cell.source(network)
    if source is None:
        return Result()
    if column.measure == PARAMETERS:
        (_, _, values), *_ = runs_of(cell, 0, grid)
        millions = million_parameters(values)
        return Result() if millions is None else Result({0: millions}, 1)
    by_seed, epochs, folders = {}, 0, []
    for seed in range(grid.trials):
        runs = runs_of(cell, seed, grid)
        folder = next(folder for side, folder, values in runs if side == network)
        value = read_value(folder, column.measure, source.network, source.values["method"])
        if value is not None:
            by_seed[seed], epochs = value
            folders.append(folder.name)
    return Result(by_seed, epochs, tuple(folders))


def read_value(run: Path, measure: str, network: Network, method: str) -> tuple[float, int] | None:
    """Read a number of a run.

    Args:
        run: The run folder.
        measure: See `Column`; ``{method}`` in it stands for the method.
        network: ``"student"`` or ``"teacher"``.
        method: The method of the run.

    Returns:
        The number and how many epochs are in it, or None if it is not there yet.
    """
    if not RunFolder(run).is_finished:
        return None
    if measure == "top1":
        return median_of_last(top1_by_epoch(RunFolder(run).read_metrics(), network))
    if measure == "last_top1":
        return median_of_last(top1_by_epoch(RunFolder(run).read_metrics(), network), count=1)
    if measure == "hours":
        return RunFolder(run).summary()["seconds"] / 3600, 1
    first, *rest = measure.split("/")
    if first == "detect":
        path, name = RunFolder(run).detector(rest[0]) / "results.json", rest[1]
        found = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        return (float(found[name]), 1) if name in found else None
    return _read_evaluation(run, network, first, rest[0].format(method=method))


def _read_evaluation(run: Path, network: Network, evaluator: str, names: str) -> tuple[float, int] | None:
    from automix.evaluation.results_file import read_results

    entry = read_results(RunFolder(run).evaluation_of(network)).get(evaluator)
    values = entry["values"] if entry else {}
    parts = names.split("+")
    return (sum(values[name] for name in parts), 1) if all(name in values for name in parts) else None


def _detect_commands(cell: Cell, column: Column, grid: Grid) -> list[str]:
    """List the commands that fine-tune the missing detectors of a detection column, or measure what is missing."""
    first, _, rest = column.measure.partition("/")
    if first != "detect":
        return []
    data, _, name = rest.partition("/")
    commands = []
    for seed in range(grid.trials):
        for _, run, _ in runs_of(cell, seed, grid):
            folder = RunFolder(run).detector(data)
            results = folder / "results.json"
            if results.is_file() and name not in json.loads(results.read_text(encoding="utf-8")):
                commands.append(f"automix detect eval {folder}")  # of a version that did not measure it
            if RunFolder(run).is_finished and not results.is_file():
                commands.append(
                    f"automix detect train {data} --backbone {run} --kind c4 --recipe {data} --out {folder}"
                )
    return commands
