"""From an experiment to the runs that it needs, each with a folder named by its content, and what they will cost."""

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from automix.core.validation import unknown_name
from automix.data import DATASETS
from automix.runs.config import TRIALS_DIFFER_IN, TrainConfig
from automix.runs.recipes import find_recipe
from automix.studies.cells import Cell, Experiment, Network, Values, merge
from automix.studies.fairness import complete

SUMMARY = "summary.json"  # a run that has it is finished

TRAINING_IMAGES = {
    "cifar10": 50_000,
    "cifar100": 50_000,
    "tiny-imagenet": 100_000,
    "imagenet": 1_281_167,
    "cub200": 5_994,
    "aircraft": 6_667,
    "inat2017": 579_184,
    "inat2018": 437_513,
    "places205": 2_448_873,
}

AUTOMIX_LAYER = 3  # its default

DECIDED = ("seed", "out", "data_root", "recipe", "method")  # by the grid

EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?e[+-]?\d+", re.IGNORECASE)


@dataclass(frozen=True)
class Grid:
    """Where runs are, how many of each cell, and which settings differ from the experiment's."""

    out: Path
    trials: int
    data_root: str | None = None
    changes: Values = field(default_factory=dict)


@dataclass
class Job:
    """One run of a grid: its settings with the seed and the folder, and what is measured on it, by network."""

    values: Values
    wanted: set[tuple[str, Network]] = field(default_factory=set)  # evaluators
    lams: tuple[float, ...] = ()  # of a picture of mixed samples

    @property
    def folder(self) -> Path:
        return Path(self.values["out"])

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def trained(self) -> bool:
        return (self.folder / SUMMARY).is_file()

    @property
    def images(self) -> int:
        """In one epoch; 0 where the dataset's size is not known."""
        values, known = self.values, DATASETS.get(self.values["data"])
        if known is None:
            return 0
        count = TRAINING_IMAGES.get(values["data"]) or known.train_count or 0
        classes, per_class = values["classes"] or known.num_classes, values["per_class"]
        return classes * per_class if per_class else count * classes // known.num_classes

    @property
    def steps(self) -> int:
        return self.values["epochs"] * (self.images // self.values["batch_size"])


def select(experiment: Experiment, methods: Sequence[str] | None, columns: Sequence[str] | None) -> Experiment:
    """The experiment with some of its rows and columns; names that are none get one line."""
    for kind, given, accepted in (
        ("method", methods, [row.name for row in experiment.rows]),
        ("column", columns, [column.name for column in experiment.columns]),
    ):
        for name in given or ():
            if name not in accepted:
                raise unknown_name(f"{experiment.name}: {kind}", name, accepted)
    return replace(
        experiment,
        reference=None if methods is not None and experiment.reference not in methods else experiment.reference,
        rows=tuple(row for row in experiment.rows if methods is None or row.name in methods),
        columns=tuple(column for column in experiment.columns if columns is None or column.name in columns),
        cells=tuple(
            cell
            for cell in experiment.cells
            if (methods is None or cell.row in methods) and (columns is None or cell.column in columns)
        ),
    )


def read_changes(words: Iterable[str]) -> Values:
    """NAME=VALUE words as settings of `automix train`; model_options.NAME=VALUE goes into the options."""
    changes: Values = {}
    for name, value in read_pairs(words, "--set").items():
        first, _, option = name.partition(".")
        if first not in TrainConfig.flat_names():
            raise unknown_name("setting", first, TrainConfig.flat_names())
        if first in DECIDED:
            raise ValueError(f"--set {name}: is decided by the grid; accepted are other settings")
        if bool(option) != first.endswith("_options"):
            raise ValueError(f"--set {name}: accepted is NAME=VALUE, and for options model_options.NAME=VALUE")
        changes = merge(changes, {first: {option: value}} if option else {first: value})
    return changes


def read_pairs(words: Iterable[str], flag: str) -> dict[str, Any]:
    """NAME=VALUE words; the values are read as YAML, as in a config file."""
    pairs = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals):
            raise ValueError(f"{flag} {word}: accepted is NAME=VALUE")
        try:
            # 1e-3 is a number for everybody but YAML
            pairs[name.replace("-", "_")] = float(text) if EXPONENT.fullmatch(text) else yaml.safe_load(text)
        except yaml.YAMLError:
            raise ValueError(
                f"{flag} {word}: the value cannot be read; accepted is YAML, such as 2 or [1, 2]"
            ) from None
    return pairs


def plan(experiment: Experiment, grid: Grid) -> list[Job]:
    """The runs of all cells, each once; first all of seed 0, so that a whole table comes early."""
    jobs: dict[str, Job] = {}
    measures = {column.name: column.measure for column in experiment.columns}
    for seed in range(grid.trials):
        for cell in experiment.cells:
            for network, folder, values in runs_of(cell, seed, grid):
                job = jobs.setdefault(folder.name, Job(values))
                job.lams = experiment.lams
                job.wanted |= {(name, network) for name in experiment.evaluators}
                if (evaluator := evaluator_of(measures[cell.column])) is not None:
                    job.wanted.add((evaluator, network))
    return list(jobs.values())


def runs_of(cell: Cell, seed: int, grid: Grid) -> list[tuple[Network, Path, Values]]:
    """For each network of the cell that can be trained, the run's folder and all its settings."""
    found = []
    networks: tuple[Network, ...] = ("student", "teacher")
    for network in networks:
        if (source := cell.source(network)) is not None:
            values = all_settings(merge(source.values, grid.changes))
            values |= {"seed": seed, "data_root": grid.data_root}
            values["out"] = str(grid.out / folder_name(values))
            found.append((source.network, Path(values["out"]), values))
    return found


def evaluator_of(measure: str) -> str | None:
    """The evaluator behind a column's measure, where it takes one."""
    name, slash, _ = measure.partition("/")
    return name if slash and name != "detect" else None


def all_settings(values: Values) -> Values:
    """Every field of TrainConfig, flat, without any check: whether the data is there does not matter yet."""
    own = {
        item.name: item.default if item.default_factory is MISSING else item.default_factory()
        for item in fields(TrainConfig)
        if item.name not in ("settings", "data")
    }
    return plainly({**own, **complete(values)})


def plainly(values: Values) -> Values:
    """Without what is spelled out and would hold anyway, so that one run has one name in every experiment."""
    recipe = _recipe(values["recipe"])
    implied: Values = {"layer": AUTOMIX_LAYER} if values["method"] == "automix" else {}
    implied |= recipe.options_for(values["method"], values["model"], values["data"])
    given = values["method_options"].items()
    kept = {name: value for name, value in given if name not in implied or implied[name] != value}
    dropped = {name: None for name in ("alpha", "layer") if values[name] == implied.get(name)}
    return {**values, "method_options": kept, **dropped}


_recipe = functools.cache(find_recipe)  # which checks all its fields


def folder_name(values: Values) -> str:
    """DATA-MODEL-METHOD, a hash of all settings that decide the run, and the seed."""
    deciding = {name: value for name, value in values.items() if name not in TRIALS_DIFFER_IN}
    digest = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:8]
    words = (Path(values["data"]).name, values["model"].partition(".")[0], values["method"])
    return "-".join([*(re.sub(r"[^\w.-]+", "_", word) for word in words), digest, str(values["seed"])])


@dataclass(frozen=True)
class Cost:
    """What a grid takes; `seconds` of what is left, where runs like them have been timed."""

    cells: int
    runs: int
    finished: int
    steps: int
    images: int
    unknown: int  # runs on data of unknown size
    seconds: float
    untimed: int  # runs left for which no rate is known


def cost(experiment: Experiment, jobs: Sequence[Job]) -> Cost:
    left, timed = [job for job in jobs if not job.trained], rates(jobs)
    times = [estimate(job, timed) for job in left]
    return Cost(
        cells=sum(cell.student is not None or cell.teacher is not None for cell in experiment.cells),
        runs=len(jobs),
        finished=len(jobs) - len(left),
        steps=sum(job.steps for job in left),
        images=sum(job.steps * job.values["batch_size"] for job in left),
        unknown=sum(job.images == 0 for job in left),
        seconds=sum(time for time in times if time is not None),
        untimed=sum(time is None for time in times),
    )


Rates = list[tuple[Job, float]]


def rates(jobs: Iterable[Job]) -> Rates:
    """The finished jobs and the seconds that each took for a step."""
    return [(job, _seconds(job.folder) / job.steps) for job in jobs if job.trained and job.steps]


def estimate(job: Job, timed: Rates) -> float | None:
    """Seconds that `job` will take by finished ones of the same network and data, of the same method if there are."""
    alike: dict[bool, list[float]] = {True: [], False: []}
    for other, rate in timed:
        if all(other.values[name] == job.values[name] for name in ("data", "model", "model_options", "train_size")):
            alike[other.values["method"] == job.values["method"]].append(rate)
    found = alike[True] or alike[False]
    return sum(found) / len(found) * job.steps if found else None


def _seconds(folder: Path) -> float:
    summary: dict[str, Any] = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    return float(summary["seconds"])
