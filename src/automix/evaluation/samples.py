"""Test images as evaluators take them: pixels in [0, 1] of one size, with labels and, if there are any, boxes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet, resize_and_crop
from automix.data.sources import Source
from automix.data.subset import spread_over_classes

BATCH = 100


@dataclass(frozen=True)
class Samples:
    """Test images, resized and center-cropped, or squeezed, to one size.

    Files are read batch by batch, in order, in every pass, so a test set may be larger than the memory.

    Attributes:
        source: The images: an `ImageSet`, `ImageFiles`, or any object with `classes`, `labels`, `read` and a length.
        image_size: Side of the images in pixels.
        crop: The shorter side is resized to ``image_size / crop``, then the center is cropped.
        squeeze: Resize both sides to `image_size` instead: nothing is cropped and the aspect ratio is lost.
    """

    source: Source
    image_size: int
    crop: float = 1.0
    squeeze: bool = False

    def __len__(self) -> int:
        return len(self.source)

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names; a label is a position among them."""
        return self.source.classes

    @property
    def has_boxes(self) -> bool:
        """Whether there is a box for every image, or a mask to find it from."""
        if isinstance(self.source, ImageFiles) and self.source.masks is not None:
            return True
        return getattr(self.source, "boxes", None) is not None

    def with_boxes(self) -> "Samples":
        """Read the boxes if they have to be found from masks.

        Returns:
            The same images, with boxes if there are any.
        """
        return replace(self, source=self.source.with_boxes()) if isinstance(self.source, ImageFiles) else self

    def parts(self, batch_size: int = BATCH) -> Iterator[ImageSet]:
        """Iterate over the images as uint8.

        Args:
            batch_size: Images at a time.

        Yields:
            Images, labels and, if there are any, boxes.
        """
        for positions in torch.arange(len(self)).split(batch_size):
            if isinstance(self.source, ImageFiles):
                yield self.source.take(positions).in_memory(self.image_size, self.crop, self.squeeze)
            elif isinstance(self.source, ImageSet):
                yield self.source.take(positions).resized(self.image_size, self.crop, self.squeeze)
            else:
                yield self._read(positions)

    def batches(self, batch_size: int = BATCH, device: torch.device | str = "cpu") -> Iterator[tuple[Tensor, Tensor]]:
        """Iterate over the images as pixels in [0, 1].

        Args:
            batch_size: Images at a time.
            device: Where the tensors are.

        Yields:
            Images ``(N, 3, S, S)`` float32 in [0, 1], and labels ``(N,)``.
        """
        for part in self.parts(batch_size):
            yield to_float(part.images, device), part.labels.to(device)

    def take(self, positions: Tensor) -> "Samples":
        """Select images.

        Args:
            positions: Of the images, in the order to take them.

        Returns:
            The selected images.
        """
        if isinstance(self.source, ImageFiles | ImageSet):
            return replace(self, source=self.source.take(positions))
        return replace(self, source=_Chosen(self.source, positions))

    def first(self, count: int) -> "Samples":
        """Select some images, of as many classes as possible.

        Args:
            count: How many; all of them if there are fewer.

        Returns:
            The selected images, in order.
        """
        if count >= len(self):
            return self
        labels = self.source.labels
        if labels is None:  # known after reading only: take images at equal distances
            return self.take(torch.arange(count) * len(self) // count)
        return self.take(spread_over_classes(labels, count).sort().values)

    def _read(self, positions: Tensor) -> ImageSet:
        images, labels = zip(*(self.source.read(position) for position in positions.tolist()), strict=True)
        fit = (self.image_size, self.crop, self.squeeze)
        pixels = [np.asarray(resize_and_crop(image, image.size, *fit)) for image in images]
        return ImageSet(
            torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels), self.classes
        )


@dataclass(frozen=True)
class _Chosen:
    """Some images of a set that is read image by image."""

    source: Source
    positions: Tensor

    @property
    def classes(self) -> tuple[str, ...]:
        return self.source.classes

    @property
    def labels(self) -> Tensor | None:
        return None if self.source.labels is None else self.source.labels[self.positions]

    def __len__(self) -> int:
        return len(self.positions)

    def read(self, index: int) -> tuple[Any, int]:
        return self.source.read(int(self.positions[index]))

    def name_of(self, index: int) -> str:
        return self.source.name_of(int(self.positions[index]))


def to_float(images: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """Images of values 0 to 255 as float32 in [0, 1]."""
    return images.to(device).contiguous(memory_format=torch.channels_last).div(255)
