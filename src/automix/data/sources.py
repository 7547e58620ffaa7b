"""What all kinds of datasets have in common."""

from typing import Any, Protocol

from torch import Tensor

from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet
from automix.data.readers import ReaderSet
from automix.data.shards import ShardSet

Split = ImageSet | ImageFiles | ReaderSet | ShardSet
"""The training or the test part of a dataset."""

Loadable = ImageSet | ImageFiles
"""The kinds that can be held in memory; the others are streamed."""


class Source(Protocol):
    """A dataset whose images can be read by position."""

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the labels."""

    @property
    def labels(self) -> Tensor | None:
        """Class indices, ``(N,)``; None if they are known only by reading the images."""

    def __len__(self) -> int: ...
    def name_of(self, index: int) -> str:
        """Name an image for messages."""

    def read(self, index: int) -> tuple[Any, int]:
        """Read one image as a PIL image (RGB), and its label."""
