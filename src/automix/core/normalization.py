"""Normalization of images by the mean and the standard deviation of each channel, and its inverse."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError

Channels = tuple[float, float, float]
"""One number each for red, green and blue."""


@dataclass(frozen=True)
class Normalization:
    """The statistics that images are normalized by, of pixels in [0, 1].

    Attributes:
        mean: Mean of each channel.
        std: Standard deviation of each channel, > 0.
    """

    mean: Channels
    std: Channels

    def __post_init__(self) -> None:
        for name in ("mean", "std"):
            if len(values := getattr(self, name)) != 3:
                raise AutomixError(f"{name} must be 3 numbers, got {values}")
        if not min(self.std) > 0:
            raise AutomixError(f"std must be > 0, got {self.std}")


IMAGENET = Normalization((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""The statistics of ImageNet's pixels, which most pretrained networks expect."""


def normalize(pixels: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> Tensor:
    """Subtract the mean and divide by the standard deviation.

    Args:
        pixels: Images in [0, 1], ``(..., C, H, W)``.
        mean: One number per channel.
        std: One number > 0 per channel.

    Returns:
        The normalized images, in the type of `pixels`.
    """
    return (pixels - _per_channel(mean, pixels)) / _per_channel(std, pixels)


def denormalize(x: Tensor, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> Tensor:
    """Undo `normalize`.

    Args:
        x: Normalized images, ``(..., C, H, W)``.
        mean: One number per channel.
        std: One number per channel.

    Returns:
        Pixels, in float32 or wider; not clamped to [0, 1].
    """
    x = at_least_float32(x)
    return x * _per_channel(std, x) + _per_channel(mean, x)


def _per_channel(values: Sequence[float] | Tensor, like: Tensor) -> Tensor:
    return torch.as_tensor(values, device=like.device, dtype=like.dtype).view(-1, 1, 1)
