"""What an evaluator gives back: named values, and pictures that are drawn when they are wanted."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from PIL import Image

Item = TypeVar("Item")


@dataclass(frozen=True)
class Evaluation:
    """`values` by name, in the order in which they are shown; percentages where the name does not say otherwise.

    `pictures` draw themselves, by file name without ending; `notes` say what a reader of the values must know.
    """

    values: dict[str, float]
    pictures: dict[str, Callable[[], Image.Image]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[tuple[str, float]]:
        return iter(self.values.items())


class Track(Protocol):
    """Passes items on while it shows how many of `total` are done."""

    def __call__(self, items: Iterable[Item], total: int, what: str) -> Iterable[Item]: ...


def silently(items: Iterable[Item], total: int, what: str) -> Iterable[Item]:
    """The track that shows nothing."""
    return items


def progress_bar(items: Iterable[Item], total: int, what: str) -> Iterable[Item]:
    """A bar that goes away when it is done."""
    from rich.progress import track

    return track(items, description=what, total=total, transient=True)
