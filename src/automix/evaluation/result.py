"""What every evaluator returns."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from PIL import Image


@dataclass(frozen=True)
class EvaluationResult:
    """Values, pictures and notes of one evaluator; ``dict(result)`` gives the values.

    Attributes:
        values: Numbers by name, in the order in which they are shown; percentages unless the name says otherwise.
        pictures: Functions that draw a picture, by file name without its ending.
        notes: What a reader of the values must know, one sentence each.
    """

    values: dict[str, float]
    pictures: dict[str, Callable[[], Image.Image]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(self.values.items())
