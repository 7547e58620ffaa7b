"""FMix (Harris et al., 2020): both images show through a mask of smooth random shapes.

White noise is weighted by 1 / f^decay in the Fourier domain, f the frequency, which leaves a smooth random landscape.
x_i is what lies above the water level, chosen such that it covers the share lam ~ Beta(alpha, alpha) of the pixels:

    s = 1 on the round(lam * H * W) highest pixels, 0 on the others        lam := mean(s)

The shapes are large, smooth and never twice the same: there is no box for a network to learn. For convolutional
networks from scratch; in the AutoMix paper transformers do better with CutMix. The original repeats one mask over the
batch and keeps the label that was drawn; here each sample has its own mask, and the label says its area.
"""

import functools
import math

import torch
from torch import Tensor

from automix.core.blend import at_least_float32, blend
from automix.core.draws import draw_index, draw_lam, draw_uniform
from automix.core.target import Mixed, MixedTarget
from automix.core.transform import MixTransform
from automix.core.validation import check_batch


def fmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    decay: float = 3.0,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    noise: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix images `x` and labels `y`; `lam`, `index` and `noise` are drawn from `generator` unless given.

    `noise` (N, H, W) is the landscape that is cut at its lam quantile. The larger `decay`, the larger the shapes.
    """
    check_batch(x, y)
    size = len(x), *x.shape[-2:]
    if not (decay >= 0 and math.isfinite(decay)):
        raise ValueError(f"decay={decay}: accepted is a number >= 0")
    if noise is not None and noise.shape != size:
        raise ValueError(f"noise has shape {tuple(noise.shape)}: accepted is {size}")
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, generator=generator)
    noise = fourier_noise(x, decay, generator) if noise is None else noise.to(x.device)
    pixels = size[1] * size[2]
    count = (lam * pixels).round()
    mask = highest(noise, count).unsqueeze(1).to(at_least_float32(x).dtype)
    return Mixed(blend(x, index, mask), MixedTarget(y, y[index], count / pixels), mask)


def fourier_noise(x: Tensor, decay: float, generator: torch.Generator | None = None) -> Tensor:
    """A smooth random landscape (N, H, W) for each image of `x`."""
    height, width = x.shape[-2:]
    weight = _spectrum(height, width, decay, x.device)
    radius, angle = draw_uniform(x, (2, len(x), *weight.shape), generator)
    # Box and Muller: such a radius and a uniform angle make two independent normal numbers, here as one complex number.
    spectrum = torch.polar(weight * (-2 * torch.log1p(-radius)).sqrt(), 2 * math.pi * angle)
    return torch.fft.irfft2(spectrum, s=(height, width))


@functools.lru_cache(maxsize=32)
def _spectrum(height: int, width: int, decay: float, device: torch.device) -> Tensor:
    """1 / f^decay over the half plane of frequencies of a real image; frequency 0 counts as the lowest other one."""
    rows = torch.fft.fftfreq(height, device=device)
    columns = torch.fft.rfftfreq(width, device=device)
    frequency = torch.hypot(rows[:, None], columns[None, :])
    return frequency.clamp(min=1 / max(height, width)) ** -decay


def highest(noise: Tensor, count: Tensor) -> Tensor:
    """True at the `count` highest pixels of each map of `noise` (N, H, W), exactly as many even where pixels tie."""
    order = noise.flatten(1).argsort(dim=1, descending=True)
    chosen = torch.arange(order.shape[1], device=noise.device) < count.reshape(-1, 1)
    return torch.zeros_like(order, dtype=torch.bool).scatter_(1, order, chosen.expand_as(order)).view_as(noise)


class FMix(MixTransform):
    """``x, soft = FMix(alpha=1.0, num_classes=100)(x, y)``"""

    function = fmix
