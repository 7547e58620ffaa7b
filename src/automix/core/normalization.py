"""Normalization of images by the mean and the standard deviation of each channel, and its inverse."""

from collections.abc import Sequence

import torch
from torch import Tensor

from automix.core.blend import at_least_float32


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
