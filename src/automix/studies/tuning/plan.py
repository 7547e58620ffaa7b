"""How a search is laid out: the lengths of its runs, chosen so that the whole of it takes the given time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from automix.core.validation import check_range
from automix.runs.config import TrainConfig
from automix.studies.tuning.candidates import Candidate
from automix.training.budget import fit_into

VALIDATION = 0.2  # of the training images of each class are held out
LAST_SHARE = 0.2  # of the time is for one plain training of full length; a run that mixes takes longer
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
        minutes: Time for all of it.
    """

    base: TrainConfig
    candidates: tuple[Candidate, ...]
    epochs: tuple[int, ...]
    longest: int
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
        return {"base": base, "candidates": names, "epochs": list(self.epochs), "longest": self.longest}


def plan_tuning(
    config: TrainConfig, candidates: tuple[Candidate, ...], minutes: float, fixed: Sequence[str] = ()
) -> TunePlan:
    """Time a few steps of plain training and choose the lengths of all runs, and the size of large images.

    Args:
        config: The settings of a training, whose `epochs` is the most that a run may have.
        candidates: The methods to try.
        minutes: Time for the whole search, > 0.
        fixed: Names of settings that must stay.

    Returns:
        The plan.
    """
    check_range("minutes", minutes, 0, bounds="()")
    plain = replace(config, validation=VALIDATION, method="vanilla")
    fitted = fit_into(plain, LAST_SHARE * minutes, fixed=(*fixed, "method"))
    longest = config.settings.epochs
    full = min(fitted.settings.epochs, longest)
    return TunePlan(fitted, candidates, lengths(full), longest, minutes)


def lengths(epochs: int) -> tuple[int, ...]:
    """List the lengths of the runs of each level.

    Args:
        epochs: The full length.

    Returns:
        Up to three lengths: a ninth, a third and the whole of it, each of one epoch or more.
    """
    parts = [REDUCTION**power for power in (2, 1, 0) if epochs >= REDUCTION**power]
    return tuple(round(epochs / part) for part in parts)
