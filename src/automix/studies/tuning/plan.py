"""How a search is laid out: the lengths of its runs, chosen so that the whole of it takes the given time.

Runs too short to tell methods apart are worth nothing, so a search of few minutes tries fewer configurations, not
shorter runs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from automix.core.errors import AutomixError
from automix.core.validation import check_range
from automix.runs.config import TrainConfig
from automix.studies.tuning.candidates import Candidate
from automix.training.budget import Speed, measure_speed, smaller_sizes, with_size
from automix.training.build import build_data
from automix.training.defaults import warmup_for
from automix.training.distributed import World

VALIDATION = 0.2  # of the training images of each class are held out
FULL_SHARE = (
    1 / 8
)  # of the time is one plain run of full length: room for the first three methods and the last training
LARGEST_SHARE = 1 / 5  # if a run would be too short else: room for two methods and the last training
LEAST_STEPS, LEAST_EPOCHS = 300, 3  # of a run
TIMES = 2  # that a few steps of plain training are timed; the faster counts
COMPARED = 3  # classifiers, at most, that classify the held-out images once more for the margins
REDUCTION = 3  # one configuration in so many is trained longer, for so many times as many epochs
RATES = (0.25, 4.0)  # learning rates, as multiples of the recipe's


@dataclass(frozen=True)
class TunePlan:
    """The settings of a search.

    Attributes:
        base: The settings that all runs share; a share of the training images is held out.
        candidates: The methods to try.
        epochs: Lengths of the runs at each level, the last one the full length.
        longest: Most epochs of the last training, on all images.
        testing: Seconds at the end: the test images, and the held-out ones for the margins.
        minutes: Time for all of it.
    """

    base: TrainConfig
    candidates: tuple[Candidate, ...]
    epochs: tuple[int, ...]
    longest: int
    testing: float
    minutes: float

    @property
    def last_level(self) -> int:
        """The level of the runs of full length."""
        return len(self.epochs) - 1

    def step(self, level: int) -> int:
        """Give the resource of a level as the pruner counts it.

        Args:
            level: The level, 0 for the shortest runs.

        Returns:
            A power of the reduction factor.
        """
        return REDUCTION**level

    def candidate(self, name: str) -> Candidate:
        """Find a candidate.

        Args:
            name: Its name.

        Returns:
            The candidate.
        """
        return next(candidate for candidate in self.candidates if candidate.name == name)

    def to_json(self) -> dict[str, Any]:
        """Describe the plan by values that JSON has, to recognize it when a search is resumed.

        Returns:
            The values, by name.
        """
        base = {name: list(value) if isinstance(value, tuple) else value for name, value in self.base.flat().items()}
        names = [candidate.name for candidate in self.candidates]
        lengths = {"epochs": list(self.epochs), "longest": self.longest, "testing": self.testing}
        return {"base": base, "candidates": names, **lengths}


def plan_tuning(
    config: TrainConfig, candidates: tuple[Candidate, ...], minutes: float, fixed: Sequence[str] = ()
) -> TunePlan:
    """Time a few steps of plain training and choose the lengths of all runs, and the size of large images.

    Args:
        config: The settings of a training, whose `epochs` is the most that a run may have.
        candidates: The methods to try.
        minutes: Time for the whole search, > 0. An error names the minutes it takes if they are too few.
        fixed: Names of settings that must stay.

    Returns:
        The plan.
    """
    check_range("minutes", minutes, 0, bounds="()")
    longest = config.settings.epochs
    plain = replace(config, validation=VALIDATION, method="vanilla")
    size = config.settings.train_size
    for side in [size] if "train_size" in fixed else smaller_sizes(size):
        tried = plain if side is None else with_size(plain, side)
        timed = [measure_speed(tried)[0] for _ in range(TIMES)]  # other programs make a few steps slow
        speed = min(timed, key=lambda one: one.mixed_step)
        least = least_epochs(speed.steps_per_epoch, longest)
        fitting = epochs_in(FULL_SHARE * 60 * minutes, speed)
        if fitting >= least:
            break
    if fitting < least and epochs_in(LARGEST_SHARE * 60 * minutes, speed) < least:
        needed = math.ceil((least * speed.steps_per_epoch * speed.mixed_step + speed.evaluation) / LARGEST_SHARE / 60)
        raise AutomixError(f"minutes must be >= {needed} here, for runs of {least} epochs "
                           f"({least * speed.steps_per_epoch} steps), got {minutes:g}; or use fewer or smaller images "
                           "(--set per_class=N, --size)")  # fmt: skip
    full = min(max(fitting, least), longest)
    warmup = warmup_for(full) if config.settings.warmup_epochs else 0
    settings = replace(tried.settings, epochs=full, warmup_epochs=warmup, freeze=min(config.settings.freeze, full))
    return TunePlan(
        replace(tried, settings=settings, eval_every=full, eval_last=1),
        candidates,
        lengths(full, least),
        longest,
        _testing(tried, speed),
        minutes,
    )


def least_epochs(steps_per_epoch: int, longest: int) -> int:
    """Choose the length of the shortest run that says something about a method.

    Args:
        steps_per_epoch: Steps in an epoch.
        longest: The recipe's length in epochs.

    Returns:
        Epochs: three, or as many as 300 steps take, but no more than the recipe's.
    """
    return min(longest, max(LEAST_EPOCHS, math.ceil(LEAST_STEPS / steps_per_epoch)))


def epochs_in(seconds: float, speed: Speed) -> int:
    """Compute how many epochs of plain training fit, with one evaluation at the end.

    Args:
        seconds: The time.
        speed: The times of plain training.

    Returns:
        The number, which may be 0.
    """
    return max(0, int((seconds - speed.evaluation) / (speed.steps_per_epoch * speed.mixed_step)))


def lengths(epochs: int, least: int) -> tuple[int, ...]:
    """List the lengths of the runs of each level.

    Args:
        epochs: The full length.
        least: The shortest length.

    Returns:
        Up to three lengths: a ninth, a third and the whole of it, without those below the shortest length.
    """
    parts = [REDUCTION**power for power in (2, 1) if epochs >= least * REDUCTION**power]
    return (*(round(epochs / part) for part in parts), epochs)


def _testing(config: TrainConfig, speed: Speed) -> float:
    """The seconds of the evaluations at the end, from the time to evaluate the held-out images."""
    test, held_out = (
        build_data(replace(config, validation=share), World(), use_skip_list=False).test_count
        for share in (None, VALIDATION)
    )
    return speed.evaluation * (COMPARED + test / held_out)
