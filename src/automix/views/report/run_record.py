"""Read a run folder for the report; missing and damaged files are left out and named."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from automix.core.errors import AutomixError
from automix.evaluation.results_file import read_results
from automix.runs.folder import RunFolder
from automix.runs.metrics import deployed_network
from automix.runs.protocol import LAST, median_of_last

Points = list[tuple[int, float]]
"""The values of a metric: step and value, in order of the steps."""

DEPLOYED = (
    "deployed_top1"  # a metric for `RunRecord.curve`: the accuracy of the teacher if there is one, else the student's
)


@dataclass
class RunRecord:
    """A run, finished or not.

    Attributes:
        folder: The run folder.
        config: The settings, as they stand in config.yaml.
        config_text: The text of config.yaml.
        epochs: The metrics of each epoch; every record has `epoch` and `step`.
        warnings: Warnings of the training.
        damage: Files and lines that could not be read.
        summary: The result; empty for an unfinished run.
        evaluations: Results by evaluator.
        versions: Packages and hardware that the run was trained with.
    """

    folder: Path
    config: dict[str, Any]
    config_text: str
    epochs: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    damage: list[str] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.folder.resolve().name

    @property
    def seed(self) -> Any:
        return self.config.get("seed", 0)

    @property
    def epochs_done(self) -> int:
        return self.epochs[-1]["epoch"] if self.epochs else 0

    @property
    def is_finished(self) -> bool:
        return self.epochs_done == self.config.get("epochs") and self.epochs_done in self.top1

    @property
    def deployed(self) -> str:
        """The network whose accuracy is the result: the teacher if there is one."""
        return deployed_network({name for record in self.epochs for name in record})

    @cached_property
    def top1(self) -> dict[int, float]:
        """Test accuracy of the deployed network in percent, by epoch."""
        name = f"{self.deployed}_top1"
        return {record["epoch"]: record[name] for record in self.epochs if name in record}

    @property
    def result(self) -> float | None:
        """The median accuracy of the last ten epochs, as in the paper; None for an unfinished run."""
        return median_of_last(self.top1)[0] if self.is_finished else None

    @property
    def epochs_in_result(self) -> int:
        return median_of_last(self.top1)[1] if self.is_finished else LAST

    def curve(self, metric: str) -> Points:
        metric = f"{self.deployed}_top1" if metric == DEPLOYED else metric
        return [(record["step"], record[metric]) for record in self.epochs if metric in record]

    def last(self, metric: str) -> float | None:
        points = self.curve(metric)
        return points[-1][1] if points else None


def read_run(folder: Path) -> RunRecord:
    """Read the run in a folder; an AutomixError if there is none."""
    where = RunFolder(folder)
    path = where.config
    if not where.is_run:
        what = f"no {path.name} in it" if folder.is_dir() else "no such folder"
        raise AutomixError(f"{folder}: {what}; give the folder of a run")
    config = where.read_values()
    if missing := [name for name in ("data", "method", "model") if not isinstance(config.get(name), str)]:
        raise AutomixError(f"{path}: has no {missing[0]}; give the folder of a run")
    run = RunRecord(folder, config, path.read_text(encoding="utf-8"))
    _read_metrics(run)
    try:
        run.summary = where.summary() if where.is_finished else {}
    except AutomixError as error:
        run.damage.append(f"{error}; left out")
    _read_evaluations(run)
    run.versions = dict(_versions(folder))
    return run


def _read_metrics(run: RunRecord) -> None:
    """Read epochs and warnings; unreadable lines, such as the last one of a killed process, are left out."""
    metrics = RunFolder(run.folder).read_metrics()
    for record in sorted(metrics.of_kind("epoch"), key=lambda record: record["step"]):
        run.epochs.append({"epoch": record["epoch"], **_numbers(record), "step": record["step"]})
    run.warnings += [str(record.get("message", "")) for record in metrics.of_kind("warning")]
    if unreadable := [str(number) for number in metrics.unreadable]:
        lines = f"line {unreadable[0]}" if len(unreadable) == 1 else f"lines {', '.join(unreadable[:5])}"
        more = f" and {len(unreadable) - 5} more" if len(unreadable) > 5 else ""
        run.damage.append(f"{RunFolder(run.folder).metrics}: {lines}{more} cannot be read; left out")


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    """The finite numbers of a record, which are those that can be drawn."""
    kept = {name: value for name, value in record.items() if isinstance(value, int | float) and name != "epoch"}
    return {name: float(value) for name, value in kept.items() if math.isfinite(value)}


def strings(value: Any) -> list[str]:
    """The strings of a list that was read from a file; none if it is no list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _read_evaluations(run: RunRecord) -> None:
    folder = RunFolder(run.folder).evaluation
    try:
        results = read_results(folder)
    except ValueError as error:
        run.damage.append(str(error))
        return
    for name, entry in results.items():
        if isinstance(entry, dict) and isinstance(entry.get("values"), dict):
            run.evaluations[name] = {**entry, "values": _numbers(entry["values"])}
        else:
            run.damage.append(f"{folder}: the results of {name} cannot be read; left out")


def _versions(folder: Path) -> Iterator[tuple[str, str]]:
    """What the run was trained with, from the headers of its weights; no tensor is read."""
    run = RunFolder(folder)
    card = _header(run.classifier("last")) or _header(run.classifier("best"))
    for path in run.checkpoints[:2]:
        if header := _header(path):
            yield from ((str(key), str(value)) for key, value in _object(header.get("environment")).items())
            card = card or _parse(_object(header.get("facts")).get("card"))
            break
    if version := _object(card.get("facts")).get("automix"):
        yield "automix", str(version)


def _header(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, framework="pt") as opened:
            return _parse((opened.metadata() or {}).get("automix"))
    except (OSError, SafetensorError):
        return {}


def _parse(text: Any) -> dict[str, Any]:
    """A JSON object; an empty one if the text is none."""
    try:
        return _object(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return {}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
