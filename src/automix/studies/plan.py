"""The runs of an experiment, each with a folder named by its settings."""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path

from automix.core.validation import unknown_name
from automix.data import DATASETS
from automix.methods import find_method
from automix.runs.config import TRIALS_DIFFER_IN, TrainConfig
from automix.runs.folder import RunFolder
from automix.studies.cells import NETWORKS, PARAMETERS, Cell, Network
from automix.studies.experiment import Experiment
from automix.studies.settings import Values, cached_recipe, merge_values, with_recipe

TRAINING_IMAGES = {
    "cifar10": 50_000,
    "cifar100": 50_000,
    "tiny-imagenet": 100_000,
    "imagenet": 1_281_167,
    "cub200": 5_994,
    "aircraft": 6_667,
    "pets": 3_680,
    "inat2017": 579_184,
    "inat2018": 437_513,
    "places205": 2_448_873,
}

ADDED_LATER = (
    *("preset", "crop_scale", "balance", "head_lr", "layer_decay", "frozen_stages", "freeze"),
    *("mean", "std", "eval_last", "decode_cache", "validation", "label_noise", "compile"),
)
"""Settings that are not hashed while they have the recipe's or the default value: runs made before them keep their
names."""


CHANGED_DEFAULTS: dict[str, Values] = {
    "manifoldmix": {"layers": ([0, 1, 2, 3], [0, 1, 2])},
    "puzzlemix": {"levels": (2, 3)},
}
"""Options of methods whose default has changed, before and now. A run is named as if the one before still held: runs
made before keep their names, and rows that ask for the one before find them."""


@dataclass(frozen=True)
class Grid:
    """How an experiment is run.

    Attributes:
        out: The folder of the runs.
        trials: Runs of each cell, with seeds 0, 1, ...
        data_root: The folder of the datasets; AUTOMIX_DATA or ./data if None.
        changes: Settings that differ from the experiment's.
    """

    out: Path
    trials: int
    data_root: str | None = None
    changes: Values = field(default_factory=dict)


@dataclass
class Job:
    """One run of a grid.

    Attributes:
        values: All settings, with the seed and the folder.
        evaluations: Evaluators to run, each with the network it runs on.
        lams: Values of lam at which mixed samples are kept.
        series: Evaluators whose series are needed.
    """

    values: Values
    evaluations: set[tuple[str, Network]] = field(default_factory=set)
    lams: tuple[float, ...] = ()
    series: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.values["out"])

    @property
    def name(self) -> str:
        """The name of the run folder."""
        return self.folder.name

    @property
    def is_trained(self) -> bool:
        """Whether the training is finished."""
        return RunFolder(self.folder).is_finished

    @property
    def images(self) -> int:
        """Training images in one epoch; 0 if the size of the dataset is not known."""
        values, known = self.values, DATASETS.get(self.values["data"])
        if known is None:
            return 0
        count = TRAINING_IMAGES.get(values["data"]) or known.train_count or 0
        classes, per_class = values["classes"] or known.num_classes, values["per_class"]
        return classes * per_class if per_class else count * classes // known.num_classes

    @property
    def steps(self) -> int:
        """Training steps of the run."""
        return self.values["epochs"] * (self.images // self.values["batch_size"])


def select(experiment: Experiment, methods: Sequence[str] | None, columns: Sequence[str] | None) -> Experiment:
    """Select some rows and columns of an experiment.

    Args:
        experiment: The experiment.
        methods: Names of rows; all if None.
        columns: Names of columns; all if None.

    Returns:
        The smaller experiment. It has no reference row if that is not selected.

    Raises:
        AutomixError: If there is no row or column of a name.
    """
    for kind, names, accepted in (
        ("method", methods, [row.name for row in experiment.rows]),
        ("column", columns, [column.name for column in experiment.columns]),
    ):
        for name in names or ():
            if name not in accepted:
                raise unknown_name(f"{kind} of {experiment.name}", name, accepted)
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


def plan_jobs(experiment: Experiment, grid: Grid) -> list[Job]:
    """List the runs of all cells, each once, seed 0 of all cells first.

    Args:
        experiment: The experiment.
        grid: How it is run.

    Returns:
        The jobs.
    """
    jobs: dict[str, Job] = {}
    measures = {column.name: column.measure for column in experiment.columns}
    for seed in range(grid.trials):
        for cell in experiment.cells:
            if measures[cell.column] == PARAMETERS:
                continue
            for network, folder, values in runs_of(cell, seed, grid):
                job = jobs.setdefault(folder.name, Job(values))
                job.lams, job.series = experiment.lams, experiment.series
                if (evaluator := evaluator_of(measures[cell.column])) is not None:
                    job.evaluations.add((evaluator, network))
    return list(jobs.values())


def runs_of(cell: Cell, seed: int, grid: Grid) -> list[tuple[Network, Path, Values]]:
    """List the runs behind a cell.

    Args:
        cell: The cell.
        seed: The seed of the trial.
        grid: How the experiment is run.

    Returns:
        For each network that can be trained: the network, the run folder and all settings.
    """
    runs = []
    for network in NETWORKS:
        if (source := cell.source(network)) is not None:
            values = all_settings(merge_values(source.values, grid.changes))
            values |= {"seed": seed, "data_root": grid.data_root}
            values["out"] = str(grid.out / folder_name(values))
            runs.append((source.network, Path(values["out"]), values))
    return runs


def evaluator_of(measure: str) -> str | None:
    """Name the evaluator behind a column's measure.

    Args:
        measure: See `Column`.

    Returns:
        The evaluator, or None if the measure needs none.
    """
    name, slash, _ = measure.partition("/")
    return name if slash and name != "detect" else None


def all_settings(values: Values) -> Values:
    """List every field of a TrainConfig without checking it: the data need not be there.

    Args:
        values: The settings that are given.

    Returns:
        All settings, flat, without those that the recipe implies for the method anyway.
    """
    own = {
        item.name: item.default if item.default_factory is MISSING else item.default_factory()
        for item in fields(TrainConfig)
        if item.name not in ("settings", "data")
    }
    return drop_implied({**own, **with_recipe(values)})


def drop_implied(values: Values) -> Values:
    """Drop settings that equal what holds without them, so that a run has one name in all experiments.

    Args:
        values: All settings, flat.

    Returns:
        The settings without explicit method options, alpha and layer that the recipe or the method has anyway.
    """
    recipe = cached_recipe(values["recipe"])
    layer = getattr(find_method(values["method"]), "DEFAULT_LAYER", None)
    implied: Values = {} if layer is None else {"layer": layer}
    implied |= recipe.options_for(values["method"], values["model"], values["data"])
    given = values["method_options"].items()
    kept = {name: value for name, value in given if name not in implied or implied[name] != value}
    dropped = {name: None for name in ("alpha", "layer") if values[name] == implied.get(name)}
    return {**values, "method_options": kept, **dropped}


def folder_name(values: Values) -> str:
    """Name a run folder by its settings.

    Args:
        values: All settings, flat.

    Returns:
        DATA-MODEL-METHOD-HASH-SEED; the hash is over all settings that decide the run.
    """
    deciding = {name: value for name, value in values.items() if name not in TRIALS_DIFFER_IN}
    deciding["method_options"] = _options_to_hash(values["method"], values["method_options"])
    recipe = cached_recipe(values["recipe"])
    for name in ADDED_LATER:
        if name in deciding and deciding[name] == getattr(recipe, name, getattr(TrainConfig, name, None)):
            del deciding[name]
    digest = hashlib.sha256(json.dumps(deciding, sort_keys=True).encode()).hexdigest()[:8]
    words = (Path(values["data"]).name, values["model"].partition(".")[0], values["method"])
    return "-".join([*(re.sub(r"[^\w.-]+", "_", word) for word in words), digest, str(values["seed"])])


def _options_to_hash(method: str, options: Values) -> Values:
    """Options of a method with those of `CHANGED_DEFAULTS` as if the default before still held."""
    hashed = dict(options)
    for name, (before, now) in CHANGED_DEFAULTS.get(method, {}).items():
        value = hashed.pop(name, now)
        if value != before:
            hashed[name] = value
    return hashed
