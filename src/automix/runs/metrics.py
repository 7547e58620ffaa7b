"""The numbers a run logs: metrics.jsonl, one JSON record a line, and which network's accuracy is the result."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from automix.core.files import write_text

Network = Literal["student", "teacher"]


@dataclass(frozen=True)
class Metrics:
    """The records of a metrics file.

    Attributes:
        records: Every readable record in the order of the file; each has a `kind` and a `step`.
        unreadable: Numbers of the lines that are no records, such as the last line of a killed process, counted from 1.
    """

    records: list[dict[str, Any]] = field(default_factory=list)
    unreadable: list[int] = field(default_factory=list)

    def of_kind(self, kind: Literal["step", "epoch", "warning"]) -> list[dict[str, Any]]:
        """Select the records of one kind.

        Args:
            kind: Every so many steps, after each epoch, or a warning about the masks.

        Returns:
            The records, in the order of the file.
        """
        return [record for record in self.records if record["kind"] == kind]


def read_metrics(path: Path) -> Metrics:
    """Read a metrics file; lines that are no records are passed over.

    Args:
        path: The file; it need not exist.

    Returns:
        The records, and the numbers of the lines that could not be read.
    """
    found = Metrics()
    if not path.is_file():
        return found
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        try:
            record = json.loads(line)
            if not isinstance(record["kind"], str):
                raise TypeError
            if record["kind"] == "epoch":
                record["epoch"] = int(record["epoch"])
            found.records.append({**record, "step": int(record["step"])})
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            found.unreadable.append(number)
    return found


def truncate_metrics(path: Path, step: int) -> Metrics:
    """Remove the records that were logged after `step`, when a run resumes from a checkpoint of that step.

    Args:
        path: The file, rewritten atomically; it need not exist.
        step: The last step whose records stay.

    Returns:
        The records that stay.
    """
    kept = Metrics([record for record in read_metrics(path).records if record["step"] <= step])
    if path.is_file():
        write_text(path, "".join(json.dumps(record) + "\n" for record in kept.records))
    return kept


def deployed_network(metrics: Iterable[str]) -> Network:
    """Tell whose accuracy is a run's result: the teacher's if there is one, as `Task.classifier` has it.

    Args:
        metrics: Names of metrics, such as a record's or a summary's.

    Returns:
        The network whose `..._top1` counts.
    """
    return "teacher" if "teacher_top1" in metrics else "student"


def deployed_top1(metrics: Mapping[str, Any]) -> float | None:
    """Look up the accuracy of the deployed network.

    Args:
        metrics: A record or a summary.

    Returns:
        Its top-1 accuracy in percent; None where it was not measured, or is not finite.
    """
    return _finite(metrics.get(f"{deployed_network(metrics)}_top1"))


def top1_by_epoch(metrics: Metrics, network: Network | None = None) -> dict[int, float]:
    """Collect the test accuracies of a run.

    Args:
        metrics: The run's records.
        network: Whose accuracy; that of the deployed network if not given.

    Returns:
        Top-1 accuracy in percent by epoch, for the epochs that were evaluated.
    """
    epochs = metrics.of_kind("epoch")
    values = {
        record["epoch"]: deployed_top1(record) if network is None else _finite(record.get(f"{network}_top1"))
        for record in epochs
    }
    return {epoch: value for epoch, value in values.items() if value is not None}


def _finite(value: Any) -> float | None:
    return value if isinstance(value, int | float) and math.isfinite(value) else None
