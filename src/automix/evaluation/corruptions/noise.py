"""Noises: functions of pixels in [0, 1] (N, 3, H, W), a generator and the strength, as all corruptions are."""

import torch
from torch import Tensor


def normal(x: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Draw standard normal numbers, on the device of `x`."""
    return torch.randn(shape, generator=generator, device=generator.device).to(x.device)


def gaussian_noise(x: Tensor, generator: torch.Generator, scale: float) -> Tensor:
    """Add noise of standard deviation `scale`."""
    return x + scale * normal(x, x.shape, generator)


def shot_noise(x: Tensor, generator: torch.Generator, photons: float) -> Tensor:
    """Replace each pixel by a Poisson count, `photons` on average for a white one."""
    return torch.poisson((x * photons).to(generator.device), generator).to(x.device) / photons


def impulse_noise(x: Tensor, generator: torch.Generator, amount: float) -> Tensor:
    """Set each channel of a pixel to 0 or 1 with probability `amount` (salt and pepper, as in skimage)."""
    chosen, salt = torch.rand((2, *x.shape), generator=generator, device=generator.device).to(x.device)
    return torch.where(chosen <= amount, (salt <= 0.5).to(x), x)


def speckle_noise(x: Tensor, generator: torch.Generator, scale: float) -> Tensor:
    """Add noise in proportion to the pixels."""
    return x + scale * x * normal(x, x.shape, generator)
