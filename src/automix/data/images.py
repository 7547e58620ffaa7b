"""A dataset in memory: one tensor of images and one of labels."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from automix.data.choose import choose_subset


@dataclass(frozen=True)
class ImageSet:
    """`images` (N, 3, H, W) uint8, `labels` (N,) int64, and the names of the classes."""

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.labels)

    def read(self, index: int) -> tuple[Any, int]:
        """Image `index` as PIL's, and its label."""
        from PIL import Image

        return Image.fromarray(self.images[index].permute(1, 2, 0).numpy()), int(self.labels[index])

    def subset(self, *, classes: int | None = None, per_class: int | None = None, seed: int = 0) -> "ImageSet":
        """The first `classes` classes, and `per_class` images of each, drawn by `seed`."""
        chosen = choose_subset(self.labels, len(self.classes), classes, per_class, seed)
        return ImageSet(self.images[chosen], self.labels[chosen], self.classes[:classes])

    def resized(self, size: int, crop: float = 1.0) -> "ImageSet":
        """Every image brought to `size` by `fit`."""
        shape = (self.images.shape[-1], self.images.shape[-2])
        return ImageSet(fit(self.images, shape, size, crop), self.labels, self.classes)

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of each channel, of pixels scaled to [0, 1]."""
        # Counting how often each of the 256 values occurs is exact and needs no second copy of the images as floats.
        values = torch.arange(256, dtype=torch.float64) / 255
        mean, std = torch.zeros(3), torch.zeros(3)
        for channel in range(3):
            chunks = self.images[:, channel].split(5000)
            counts = torch.stack([torch.bincount(chunk.flatten(), minlength=256) for chunk in chunks]).sum(dim=0)
            total = counts.sum()
            centre = (counts * values).sum() / total
            mean[channel] = centre
            std[channel] = ((counts * (values - centre) ** 2).sum() / (total - 1)).sqrt()
        return mean, std


def fit(image: Any, shape: tuple[int, int], size: int, crop: float = 1.0) -> Any:
    """A PIL image or a tensor of images, (width, height) `shape`, as `size` x `size` pixels.

    The short side is resized (bicubic) to size / crop, then the centre is cut out. Proportions are kept.
    """
    if crop == 1 and shape == (size, size):
        return image
    from torchvision.transforms import InterpolationMode
    from torchvision.transforms import functional as TF

    resized = TF.resize(image, int(size / crop), InterpolationMode.BICUBIC)
    return TF.center_crop(resized, size)
