"""Wrong labels on purpose: symmetric label noise, for experiments on how methods bear it."""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from automix.core.draws import step_generator
from automix.core.validation import check_range
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet
from automix.data.readers import ReaderSet
from automix.data.shards import ShardSet
from automix.data.sources import Source, Split


def draw_shifts(count: int, num_classes: int, noise: float, seed: int) -> Tensor:
    """Draw what is added to class indices, modulo their number, to make some of them wrong.

    A share `noise` of the images, rounded to whole ones, gets one of the other classes, each as likely.

    Args:
        count: Number of images.
        num_classes: Number of classes, >= 2.
        noise: Share of wrong labels, in [0, 1).
        seed: Seed of the draw.

    Returns:
        ``(count,)`` int64: 0 for labels that stay as they are.
    """
    check_range("label_noise", noise, 0, 1, bounds="[)")
    generator = step_generator(seed, 0, stream="label noise")
    wrong = torch.randperm(count, generator=generator)[: round(noise * count)]
    shifts = torch.zeros(count, dtype=torch.int64)
    shifts[wrong] = torch.randint(1, num_classes, (len(wrong),), generator=generator)
    return shifts


def add_label_noise(train: Split, noise: float, seed: int) -> "Split | NoisySource":
    """Replace a share of the labels of a training set by wrong ones.

    Args:
        train: The training set.
        noise: Share of wrong labels, in [0, 1); 0 returns the set itself.
        seed: Seed of the draw.

    Returns:
        The set with other labels; the images are not copied.
    """
    shifts = draw_shifts(len(train), len(train.classes), noise, seed)
    if not shifts.any():
        return train
    if isinstance(train, ReaderSet):
        return NoisySource(train, shifts)
    assert isinstance(train, ImageSet | ImageFiles | ShardSet)
    return replace(train, labels=(train.labels + shifts) % len(train.classes))


class NoisySource:
    """A dataset whose labels are known only by reading it, with wrong labels.

    Args:
        source: The dataset.
        shifts: What is added to each label, ``(N,)``.
    """

    labels: Tensor | None = None

    def __init__(self, source: Source, shifts: Tensor) -> None:
        self.source = source
        self.shifts = shifts

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the labels."""
        return self.source.classes

    def __len__(self) -> int:
        return len(self.source)

    def name_of(self, index: int) -> str:
        """Name an image for messages.

        Args:
            index: Position of the image.

        Returns:
            Its name in the dataset.
        """
        return self.source.name_of(index)

    def read(self, index: int) -> tuple[Any, int]:
        """Read one image.

        Args:
            index: Position of the image.

        Returns:
            The PIL image (RGB) and its label, which may be wrong.
        """
        image, label = self.source.read(index)
        return image, (label + int(self.shifts[index])) % len(self.classes)
