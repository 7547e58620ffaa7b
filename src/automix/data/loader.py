"""Batches of a dataset in memory, cropped and flipped as tensor operations.

Batch number `step` is a function of (seed, step): whoever resumes at a step gets the batch that would have come.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.data.images import ImageSet
from automix.mixing import step_generator


class MemoryLoader:
    """Training batches: each epoch in a new order, incomplete batches left out, pixels normalised, channels last.

    `padding` black pixels around the image give the room for the random crop, as on CIFAR; 0 switches it off.
    """

    def __init__(self, data: ImageSet, batch_size: int, *, padding: int = 4, flip: bool = True, seed: int = 0) -> None:
        if not 1 <= batch_size <= len(data):
            raise ValueError(f"batch_size={batch_size}: accepted are 1 to {len(data)}, the number of training images")
        if padding < 0:
            raise ValueError(f"padding={padding}: accepted is a number of pixels >= 0")
        self.data = data
        self.batch_size = batch_size
        self.padding = padding
        self.flip = flip
        self.seed = seed
        self.mean, self.std = data.statistics()
        self._padded = F.pad(data.images, (padding,) * 4)
        self._order: tuple[int, Tensor] | None = None

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self.data) // self.batch_size

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Images (N, 3, H, W) and labels (N,) of training step 0, 1, ..."""
        epoch, position = divmod(step, len(self))
        chosen = self._order_of(epoch)[position * self.batch_size : (position + 1) * self.batch_size]
        generator = step_generator(self.seed, step, stream="augment")
        corner = torch.randint(2 * self.padding + 1, (2, self.batch_size), generator=generator)
        flip = (torch.rand(self.batch_size, generator=generator) < 0.5) & self.flip
        size = (self.data.images.shape[-2], self.data.images.shape[-1])
        images = crop_and_flip(self._padded[chosen], corner[0], corner[1], flip, size)
        return self.normalise(images), self.data.labels[chosen]

    def normalise(self, images: Tensor) -> Tensor:
        """uint8 images as float32 of mean 0 and variance 1 over the training set; for test images too."""
        scaled = images.contiguous(memory_format=torch.channels_last).float().div_(255)
        return scaled.sub_(self.mean.view(3, 1, 1)).div_(self.std.view(3, 1, 1))

    def _order_of(self, epoch: int) -> Tensor:
        if self._order is None or self._order[0] != epoch:
            generator = step_generator(self.seed, epoch, stream="order")
            self._order = (epoch, torch.randperm(len(self.data), generator=generator))
        return self._order[1]


def crop_and_flip(x: Tensor, top: Tensor, left: Tensor, flip: Tensor, size: tuple[int, int]) -> Tensor:
    """Cut `size` (height, width) out of each image at its own `top`, `left`, mirrored where `flip`, in one look-up."""
    height, width = size
    rows = top.view(-1, 1) + torch.arange(height)
    across = torch.arange(width)
    columns = left.view(-1, 1) + torch.where(flip.view(-1, 1), across.flip(0), across)
    samples, channels = torch.arange(len(x)).view(-1, 1, 1, 1), torch.arange(x.shape[1]).view(1, -1, 1, 1)
    return x[samples, channels, rows[:, None, :, None], columns[:, None, None, :]]
