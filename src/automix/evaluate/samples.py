"""Test images as evaluators get them: pixels in [0, 1] of one size, with labels and, where known, boxes."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from automix.data.choose import spread_over_classes
from automix.data.images import ImageSet, fit
from automix.data.listing import Listing
from automix.data.names import Split

BATCH = 100


@dataclass(frozen=True)
class Samples:
    """The images of `source`, each prepared by `data.images.fit`, in order and as often as wanted.

    Files are read a batch at a time, so the set may be larger than the memory.
    """

    source: Split
    image_size: int
    crop: float = 1.0

    def __len__(self) -> int:
        return len(self.source)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.source.classes

    @property
    def has_boxes(self) -> bool:
        return getattr(self.source, "boxes", None) is not None

    def parts(self, batch_size: int = BATCH) -> Iterator[ImageSet]:
        """Prepared images (uint8), labels and boxes, `batch_size` at a time."""
        for positions in torch.arange(len(self)).split(batch_size):
            if isinstance(self.source, Listing):
                yield self.source.take(positions).in_memory(self.image_size, self.crop)
            elif isinstance(self.source, ImageSet):
                yield self.source.take(positions).resized(self.image_size, self.crop)
            else:
                yield self._read(positions)

    def batches(self, batch_size: int = BATCH, device: torch.device | str = "cpu") -> Iterator[tuple[Tensor, Tensor]]:
        """Pixels (N, 3, S, S) float32 in [0, 1], and labels (N,)."""
        for part in self.parts(batch_size):
            yield to_floats(part.images, device), part.labels.to(device)

    def first(self, count: int) -> "Samples":
        """`count` images only, of as many classes as possible; all of them where there are no more."""
        if count >= len(self):
            return self
        if not isinstance(self.source, Listing | ImageSet):
            raise ValueError("a part of data that can be streamed only: accepted are named datasets and folders")
        chosen = spread_over_classes(self.source.labels, count).sort().values
        return Samples(self.source.take(chosen), self.image_size, self.crop)

    def _read(self, positions: Tensor) -> ImageSet:
        images, labels = zip(*(self.source.read(position) for position in positions.tolist()), strict=True)
        pixels = [np.asarray(fit(image, image.size, self.image_size, self.crop)) for image in images]
        return ImageSet(
            torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels), self.classes
        )


def to_floats(images: Tensor, device: torch.device | str = "cpu") -> Tensor:
    """Images of values 0 to 255 as float32 in [0, 1]."""
    return images.to(device).contiguous(memory_format=torch.channels_last).div(255)
