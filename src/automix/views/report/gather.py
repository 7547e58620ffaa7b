"""What a run folder holds, read for a report: whatever is missing or damaged is left out, and said."""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from automix.core.errors import AutomixError
from automix.evaluation.suite import read_results
from automix.runs.folder import RunFolder
from automix.runs.metrics import deployed_network
from automix.runs.protocol import LAST, median_of_last

Points = list[tuple[int, float]]
"""A number over the steps of a run."""

DEPLOYED = "deployed_top1"  # a curve: the teacher's accuracy, where there is one, else the student's


@dataclass
class RunRecord:
    """A run, as far as it has come."""

    folder: Path
    config: dict[str, Any]
    config_text: str
    epochs: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)  # of the training
    damage: list[str] = field(default_factory=list)  # what could not be read
    summary: dict[str, Any] = field(default_factory=dict)
    evaluations: dict[str, dict[str, Any]] = field(default_factory=dict)  # by evaluator
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
        """The network whose accuracy is the result: the teacher, where there is one."""
        return deployed_network({name for record in self.epochs for name in record})

    @cached_property
    def top1(self) -> dict[int, float]:
        """The accuracy of the deployed network after each epoch in which it was measured."""
        name = f"{self.deployed}_top1"
        return {record["epoch"]: record[name] for record in self.epochs if name in record}

    @property
    def result(self) -> float | None:
        """The median over the last ten epochs, as the paper counts; none before the run is finished."""
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
    """The run in `folder`; a ValueError of one line where there is none."""
    where = RunFolder(folder)
    path = where.config
    if not where.is_run:
        what = f"no {path.name} in it" if folder.is_dir() else "no such folder"
        raise ValueError(f"{folder}: {what}; accepted is the folder of a run (automix train)")
    config = where.read_values()
    if missing := [name for name in ("data", "method", "model") if not isinstance(config.get(name), str)]:
        raise ValueError(f"{path}: has no {missing[0]}; accepted is the folder of a run (automix train)")
    run = RunRecord(folder, config, path.read_text(encoding="utf-8"))
    _read_metrics(run)
    try:
        run.summary = where.summary() if where.is_finished else {}
    except AutomixError as error:
        run.damage.append(f"{error}; left out here")
    _read_evaluations(run)
    run.versions = dict(_versions(folder))
    return run


def _read_metrics(run: RunRecord) -> None:
    """Epochs and warnings; a line that is no record, such as the last one of a killed process, is passed over."""
    found = RunFolder(run.folder).read_metrics()
    for record in sorted(found.of_kind("epoch"), key=lambda record: record["step"]):
        run.epochs.append({"epoch": record["epoch"], **_numbers(record), "step": record["step"]})
    run.warnings += [str(record.get("message", "")) for record in found.of_kind("warning")]
    if unreadable := [str(number) for number in found.unreadable]:
        lines = f"line {unreadable[0]}" if len(unreadable) == 1 else f"lines {', '.join(unreadable[:5])}"
        more = f" and {len(unreadable) - 5} more" if len(unreadable) > 5 else ""
        run.damage.append(f"{RunFolder(run.folder).metrics}: {lines}{more} cannot be read; left out here")


def _numbers(record: dict[str, Any]) -> dict[str, float]:
    """The finite numbers of a record: nothing else can be drawn."""
    kept = {name: value for name, value in record.items() if isinstance(value, int | float) and name != "epoch"}
    return {name: float(value) for name, value in kept.items() if math.isfinite(value)}


def strings(value: Any) -> list[str]:
    """The strings of a list that was read from a file; none if it is no list."""
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _read_evaluations(run: RunRecord) -> None:
    folder = RunFolder(run.folder).evaluation
    try:
        found = read_results(folder)
    except ValueError as error:
        run.damage.append(str(error))
        return
    for name, entry in found.items():
        if isinstance(entry, dict) and isinstance(entry.get("values"), dict):
            run.evaluations[name] = {**entry, "values": _numbers(entry["values"])}
        else:
            run.damage.append(f"{folder}: the results of {name} cannot be read; left out here")


def _versions(folder: Path) -> Iterator[tuple[str, str]]:
    """What the run was trained with, from the headers of its weights; no tensor is read."""
    where = RunFolder(folder)
    card = _header(where.classifier("last")) or _header(where.classifier("best"))
    for path in where.checkpoints[:2]:
        if header := _header(path):
            yield from ((str(key), str(value)) for key, value in header.get("environment", {}).items())
            card = card or json.loads(header.get("facts", {}).get("card", "{}"))
            break
    if version := card.get("facts", {}).get("automix"):
        yield "automix", str(version)


def _header(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, framework="pt") as opened:
            found = json.loads((opened.metadata() or {}).get("automix", "{}"))
    except (OSError, ValueError, SafetensorError):
        return {}
    return found if isinstance(found, dict) else {}
