"""The paper's protocol: the result of one run, and of several that differ in the seed.

A trial's result is the median of the top-1 test accuracies of its last ten epochs, in percent. What is reported is the
mean of these medians over trials that differ in the seed alone (the paper has three), with their standard deviation
(n - 1 in the denominator). The accuracy is that of the deployed network: the teacher's if there is one. A best epoch
chosen on test data is no result.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automix.core.errors import AutomixError
from automix.runs.config import TRIALS_DIFFER_IN
from automix.runs.folder import RunFolder
from automix.runs.metrics import top1_by_epoch

LAST = 10  # epochs


def protocol(runs: Sequence[Path]) -> "Trials":
    """Compute the result of finished runs, as the paper does.

    Args:
        runs: Folders of runs that differ in the seed alone.

    Returns:
        Mean and deviation; as text "76.02 +- 0.13 (3 trials, median of the last 10 epochs)".
    """
    if not runs:
        raise AutomixError("runs must be one folder or more, got none")
    configs = [RunFolder(run).read_values() for run in runs]
    check_same(runs, configs)
    medians = [median_of_last(_top1_by_epoch(*run)) for run in zip(runs, configs, strict=True)]
    return over_trials([median for median, _ in medians], epochs=medians[0][1])


def median_of_last(top1: Mapping[int, float], count: int = LAST) -> tuple[float, int]:
    """Compute the median of the accuracies of the last epochs.

    Args:
        top1: Accuracies by epoch; the last epoch is there, others may be missing if a run was not evaluated after each.
        count: How many epochs at the end are looked at.

    Returns:
        The median, and how many of these epochs have an accuracy.
    """
    if not top1:
        raise AutomixError("top1 must have one epoch or more, got none")
    first = max(top1) - count + 1
    counted = [value for epoch, value in top1.items() if epoch >= first]
    return statistics.median(counted), len(counted)


def over_trials(values: Sequence[float], epochs: int = LAST) -> "Trials":
    """Put trials together.

    Args:
        values: One number per trial.
        epochs: How many epochs are in the median of each trial.

    Returns:
        Mean and standard deviation (n - 1); a single trial has no deviation.
    """
    if not values:
        raise AutomixError("values must be one trial or more, got none")
    std = statistics.stdev(values) if len(values) > 1 else None
    return Trials(statistics.fmean(values), std, len(values), epochs)


@dataclass(frozen=True)
class Trials:
    """The result of several trials, in percent.

    Attributes:
        mean: Mean over the trials.
        std: Standard deviation (n - 1); None for a single trial.
        count: Number of trials.
        epochs: How many of the last ten epochs are in each trial's median.
    """

    mean: float
    std: float | None
    count: int
    epochs: int = LAST

    def __str__(self) -> str:
        spread = "" if self.std is None else f" +- {self.std:.2f}"
        trials = "1 trial" if self.count == 1 else f"{self.count} trials"
        measured = "" if self.epochs == LAST else f"{self.epochs} measured of the "
        return f"{self.mean:.2f}{spread} ({trials}, median of the {measured}last {LAST} epochs)"


def check_same(runs: Sequence[Path], configs: Sequence[dict[str, Any]]) -> None:
    """Refuse runs that differ in more than the seed, or not in the seed.

    Args:
        runs: The run folders.
        configs: The settings of each, by name.
    """
    seeds: dict[Any, Path] = {}
    for run, config in zip(runs, configs, strict=True):
        for name in sorted({*configs[0], *config} - TRIALS_DIFFER_IN):
            if config.get(name) != configs[0].get(name):
                raise AutomixError(
                    f"{run}: {name}={config.get(name)} differs from {name}={configs[0].get(name)} of {runs[0]}; "
                    "give runs that differ in the seed alone"
                )
        if (seed := config.get("seed")) in seeds:
            raise AutomixError(f"{run}: has seed {seed} as {seeds[seed]} does; give runs of different seeds")
        seeds[seed] = run


def _top1_by_epoch(run: Path, config: dict[str, Any]) -> dict[int, float]:
    """The deployed network's accuracies of a finished run."""
    folder = RunFolder(run)
    if not folder.metrics.is_file():
        raise AutomixError(f"{run}: no {folder.metrics.name} in it; give the folder of a finished run")
    metrics = folder.read_metrics()
    top1 = top1_by_epoch(metrics)
    done = max((record["epoch"] for record in metrics.of_kind("epoch")), default=0)
    if done != config.get("epochs") or done not in top1:
        raise AutomixError(
            f"{run}: {done} of {config.get('epochs')} epochs are done; give the folder of a finished run"
        )
    return top1
