"""What every evaluator returns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from PIL import Image


@dataclass(frozen=True)
class EvaluationResult:
    """Values, pictures and notes of one evaluator; ``dict(result)`` gives the values."""

    values: dict[str, float]
    """Numbers by name, in the order in which they are shown; percentages unless a note says otherwise."""
    pictures: dict[str, Callable[[], Image.Image]] = field(default_factory=dict)
    """Functions that draw a picture, by file name without its ending."""
    notes: tuple[str, ...] = ()
    """What a reader of the values must know, a sentence each."""
    series: dict[str, list[float | None]] = field(default_factory=dict)
    """Numbers along an axis, by name, from which several runs are drawn in one picture; None where there is none."""

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(self.values.items())
