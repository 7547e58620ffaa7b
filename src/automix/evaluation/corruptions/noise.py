"""Noises. As all corruptions: pixels in [0, 1] (N, 3, H, W), a generator, and the strength, to pixels."""

import torch
from torch import Tensor


def normal(x: Tensor, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard normal numbers on the device of `x`."""
    return torch.randn(shape, generator=generator, device=generator.device).to(x.device)


def gaussian_noise(x: Tensor, generator: torch.Generator, scale: float) -> Tensor:
    return x + scale * normal(x, x.shape, generator)


def shot_noise(x: Tensor, generator: torch.Generator, photons: float) -> Tensor:
    """Poisson: a white pixel counts `photons` on average."""
    return torch.poisson((x * photons).to(generator.device), generator).to(x.device) / photons


def impulse_noise(x: Tensor, generator: torch.Generator, amount: float) -> Tensor:
    """Salt and pepper: each of the three colors of a pixel becomes 0 or 1 by itself, as in skimage."""
    chosen, salt = torch.rand((2, *x.shape), generator=generator, device=generator.device).to(x.device)
    return torch.where(chosen <= amount, (salt <= 0.5).to(x), x)


def speckle_noise(x: Tensor, generator: torch.Generator, scale: float) -> Tensor:
    return x + scale * x * normal(x, x.shape, generator)
