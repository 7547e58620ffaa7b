"""What the finished runs of an experiment say, beside what the paper says."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automix.runs.protocol import Trials, median_of_last, over_trials
from automix.studies.cells import Cell, Column, Experiment, Network
from automix.studies.differences import Difference, paired_difference
from automix.studies.plan import SUMMARY, Grid, runs_of
from automix.studies.work import results_folder

NETWORKS: tuple[Network, ...] = ("student", "teacher")


@dataclass(frozen=True)
class Number:
    """One number per seed, and the folders that they come from."""

    by_seed: dict[int, float] = field(default_factory=dict)
    epochs: int = 0  # in the median of each trial
    folders: tuple[str, ...] = ()

    @property
    def trials(self) -> Trials | None:
        values = [self.by_seed[seed] for seed in sorted(self.by_seed)]
        return over_trials(values, self.epochs) if values else None


@dataclass(frozen=True)
class Line:
    """A row in a column. `difference` is the reference row's number minus this one, of the networks `compared`."""

    row: str
    title: str
    paper: float | None
    about: Network
    numbers: dict[Network, Number]
    difference: Difference | None = None
    compared: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Block:
    """A column of the paper's table, a line for each row."""

    column: Column
    lines: tuple[Line, ...]


def collect(experiment: Experiment, grid: Grid) -> list[Block]:
    """All columns with what is finished; an unfinished run has no number."""
    return [Block(column, _lines(experiment, column, grid)) for column in experiment.columns]


def precisions(blocks: Sequence[Block], out: Path) -> list[str]:
    """In which the runs behind the numbers were computed, as they say themselves; bf16 and float32 do not repeat."""
    folders = {folder for block in blocks for line in block.lines for number in line.numbers.values()
               for folder in number.folders}  # fmt: skip
    summaries = [json.loads((out / folder / SUMMARY).read_text(encoding="utf-8")) for folder in sorted(folders)]
    return sorted({summary["precision"] for summary in summaries if "precision" in summary})


def _lines(experiment: Experiment, column: Column, grid: Grid) -> tuple[Line, ...]:
    titles = {row.name: row.title for row in experiment.rows}
    cells = [cell for cell in experiment.cells if cell.column == column.name]
    found = {cell.row: {network: _number(cell, column, network, grid) for network in NETWORKS} for cell in cells}
    reference = experiment.cell(experiment.reference, column.name) if experiment.reference else None
    lines = []
    for cell in cells:
        difference, compared = None, ""
        if reference is not None and cell is not reference:
            difference, compared = _compare(reference, cell, found)
        notes = (*([cell.note] if cell.note else []), *_detect_commands(cell, column, grid))
        lines.append(
            Line(cell.row, titles[cell.row], cell.paper, cell.about, found[cell.row], difference, compared, notes)
        )
    return tuple(lines)


def _compare(reference: Cell, cell: Cell, found: dict[str, dict[Network, Number]]) -> tuple[Difference | None, str]:
    """Teachers if both have one, else students; only where rows differ in just that, the one that each has."""
    ours, theirs = found[reference.row], found[cell.row]
    for network in ("teacher", "student"):
        if reference.source(network) is not None and cell.source(network) is not None:
            return paired_difference(ours[network].by_seed, theirs[network].by_seed), f"{network}s"
    difference = paired_difference(ours[reference.about].by_seed, theirs[cell.about].by_seed)
    return difference, f"its {reference.about} with this {cell.about}"


def _number(cell: Cell, column: Column, network: Network, grid: Grid) -> Number:
    source = cell.source(network)
    if source is None:
        return Number()
    by_seed, epochs, folders = {}, 0, []
    for seed in range(grid.trials):
        runs = runs_of(cell, seed, grid)
        folder = next(folder for side, folder, values in runs if side == network)
        found = read_value(folder, column.measure, source.network, source.values["method"])
        if found is not None:
            by_seed[seed], epochs = found
            folders.append(folder.name)
    return Number(by_seed, epochs, tuple(folders))


def read_value(run: Path, measure: str, network: Network, method: str) -> tuple[float, int] | None:
    """The number that `measure` names, and how many epochs are in it; None where it is not there (yet)."""
    if not (run / SUMMARY).is_file():
        return None
    if measure == "top1":
        return median_of_last(top1_by_epoch(run, network))
    if measure == "last_top1":
        return median_of_last(top1_by_epoch(run, network), count=1)
    if measure == "hours":
        return json.loads((run / SUMMARY).read_text(encoding="utf-8"))["seconds"] / 3600, 1
    first, *rest = measure.split("/")
    if first == "detect":
        path, name = detector_folder(run, rest[0]) / "results.json", rest[1]
        return (float(json.loads(path.read_text(encoding="utf-8"))[name]), 1) if path.is_file() else None
    return _evaluated(run, network, first, rest[0].format(method=method))


def _evaluated(run: Path, network: Network, evaluator: str, names: str) -> tuple[float, int] | None:
    from automix.evaluation.suite import read_results

    entry = read_results(results_folder(run, network)).get(evaluator)
    values = entry["values"] if entry else {}
    wanted = names.split("+")
    return (sum(values[name] for name in wanted), 1) if all(name in values for name in wanted) else None


def top1_by_epoch(run: Path, network: Network) -> dict[int, float]:
    """The accuracies of one network of a finished run."""
    found = {}
    for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        value = record.get(f"{network}_top1") if record["kind"] == "epoch" else None
        if value is not None and math.isfinite(value):
            found[record["epoch"]] = value
    return found


def detector_folder(run: Path, data: str) -> Path:
    return run / f"detect-{data}"


def _detect_commands(cell: Cell, column: Column, grid: Grid) -> list[str]:
    """How to get the numbers of a column that is about detectors, for every run that is there and has none."""
    first, _, rest = column.measure.partition("/")
    if first != "detect":
        return []
    data = rest.partition("/")[0]
    commands = []
    for seed in range(grid.trials):
        for _, run, _ in runs_of(cell, seed, grid):
            folder = detector_folder(run, data)
            if (run / SUMMARY).is_file() and not (folder / "results.json").is_file():
                commands.append(
                    f"automix detect train {data} --backbone {run} --kind c4 --recipe {data} --out {folder}"
                )
    return commands
