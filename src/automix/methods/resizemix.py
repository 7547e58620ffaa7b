"""ResizeMix (Qin et al., 2020): all of x_j, made smaller, is pasted into x_i.

x_j is resized by the factor tau along both sides and pasted at a random place, always in full:

    tau ~ U(0.1, 0.8)        lam := 1 - area of the pasted image / area of the image

That is alpha = 1. As in OpenMixup, with another alpha tau ~ Beta(alpha, alpha) where that is within the bounds, and
uniform where it is not. CutMix may paste a piece of
background under x_j's label; here the whole object is always there, only smaller. For data where the object is a small
part of the image. Since x_j is resized, the pixels are no blend with x[index]; the mask is x_i's share, as everywhere.
In OpenMixup an x_j that reaches over the border is squeezed, and the mask it returns is transposed.
"""

import math

import torch
from torch import Tensor

from automix.core.blend import at_least_float32, full_mask
from automix.core.draws import draw_index, draw_lam, draw_uniform
from automix.core.target import Mixed, MixedTarget
from automix.core.transform import MixTransform
from automix.core.validation import check_alpha, check_batch


def resizemix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    scope: tuple[float, float] = (0.1, 0.8),
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    corner: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix images `x` and labels `y`; `lam`, `index` and `corner` are drawn from `generator` unless given.

    A drawn tau stays in `scope`; a given `lam` is followed wherever it leads. `corner` is the pixel (row, column) of
    the pasted image's upper left corner, moved inside where the image would stick out: shape (2,), or (N, 2).
    """
    check_batch(x, y)
    _check_options(alpha, scope)
    tau = _draw_tau(x, alpha, scope, lam, per_sample, generator)
    index = draw_index(x, index=index, generator=generator)
    size = torch.tensor(x.shape[-2:], device=x.device)
    pasted = (tau.unsqueeze(-1) * size).round().long()  # height and width in pixels: (2,) or (N, 2)
    if corner is None:
        corner = (draw_uniform(x, (*tau.shape, 2), generator) * (size - pasted + 1)).long()
    elif corner.shape not in ((2,), (len(x), 2)):
        raise ValueError(f"corner has shape {tuple(corner.shape)}: accepted are (2,) and ({len(x)}, 2)")
    corner = torch.minimum(corner.to(x.device), size - pasted)

    inside, resize = zip(*(_along(axis, corner, pasted, x) for axis in (0, 1)), strict=True)
    partner = at_least_float32(x[index])
    with torch.autocast(x.device.type, enabled=False):  # pixels, not features: they keep their precision
        smaller = resize[0] @ partner @ resize[1].mT
    mask = 1 - (inside[0][:, :, None] & inside[1][:, None, :]).unsqueeze(1).to(partner.dtype)
    true_lam = mask.mean(dim=(1, 2, 3)).reshape(corner.shape[:-1])
    mixed = torch.lerp(x, smaller.to(x.dtype), 1 - mask.to(x.dtype))
    return Mixed(mixed, MixedTarget(y, y[index], true_lam), full_mask(mask, x))


def _draw_tau(
    x: Tensor,
    alpha: float,
    scope: tuple[float, float],
    lam: float | Tensor | None,
    per_sample: bool,
    generator: torch.Generator | None,
) -> Tensor:
    """The factor of the sides, one for the batch or one per sample."""
    if lam is not None:
        return (1 - draw_lam(x, alpha, lam=lam)).sqrt()
    tau = draw_lam(x, alpha, per_sample=per_sample, generator=generator)  # of the same law as a lam
    uniform = scope[0] + (scope[1] - scope[0]) * draw_uniform(x, tuple(tau.shape), generator).to(tau.dtype)
    return torch.where((tau >= scope[0]) & (tau <= scope[1]), tau, uniform)


def _along(axis: int, corner: Tensor, pasted: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Which pixels of this axis lie in the pasted image (N or 1, length), and the matrix that resizes x_j along it."""
    length = x.shape[2 + axis]
    first, count = (bound[..., axis].reshape(-1, 1) for bound in (corner, pasted))
    place = torch.arange(length, device=x.device)
    inside = (place >= first) & (place < first + count)
    return inside, resize_matrix(place - first, count.to(at_least_float32(x).dtype), length).unsqueeze(1)


def resize_matrix(target: Tensor, count: Tensor, length: int) -> Tensor:
    """The weights (N, pixels, length) with which `length` pixels make each `target` pixel of the `count` that remain.

    Every source pixel counts by its distance from the target's center, linearly down to 0 at the next target pixel's
    center: bilinear interpolation with antialiasing. Targets outside 0 .. count - 1 repeat the one at the border.
    """
    scale = length / count.clamp(min=1)
    target = torch.minimum(target.clamp(min=0), (count - 1).clamp(min=0))
    center = ((target + 0.5) * scale).unsqueeze(-1)
    source = torch.arange(length, device=target.device) + 0.5
    weight = (1 - (source - center).abs() / scale.unsqueeze(-1)).clamp(min=0)
    return weight / weight.sum(dim=-1, keepdim=True)


def _check_options(alpha: float, scope: tuple[float, float]) -> None:
    check_alpha(alpha)
    if not 0 <= scope[0] <= scope[1] <= 1 or math.isnan(sum(scope)):
        raise ValueError(f"scope={scope}: accepted are two numbers from 0 to 1, the smaller one first")


class ResizeMix(MixTransform):
    """``x, soft = ResizeMix(num_classes=100)(x, y)``"""

    function = resizemix
