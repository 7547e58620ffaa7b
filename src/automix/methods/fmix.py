"""FMix (Harris et al., 2020): two images are combined by a binary mask of smooth random shapes.

White noise is weighted by 1 / f^decay in the Fourier domain, f being the frequency. That leaves a smooth random height
map. x_i covers its highest pixels, in the share lam ~ Beta(alpha, alpha):

    s = 1 on the round(lam * H * W) highest pixels, 0 on the others        lam := mean(s)

The shapes are large, smooth and different each time, so that a network cannot learn to recognize a box. For
convolutional networks from scratch; in the AutoMix paper transformers do better with CutMix. The original repeats one
mask over the batch and keeps the label that was drawn; here each sample has its own mask, and the label follows its
area.
"""

import functools
import math

import torch
from torch import Tensor

from automix.core.blend import at_least_float32, blend
from automix.core.draws import Pairing, draw_index, draw_lam, draw_uniform
from automix.core.objects import ObjectsRule, label_by_objects
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch, check_shape
from automix.core.transform import MixTransform
from automix.core.validation import check_range

__all__ = ["FMix", "fmix"]


def fmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    decay: float = 3.0,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    noise: Tensor | None = None,
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Combine each image with its partner by a mask of smooth random shapes (Harris et al., 2020).

    Args:
        x: Images, ``(N, C, H, W)``, of a floating type or uint8; pixels are copied, never blended.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)``.
        decay: Exponent of the frequency, >= 0; a larger one gives larger shapes.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        noise: Height maps ``(N, H, W)`` to cut at their lam quantile; drawn if not given.
        per_sample: Draw `lam` for every sample instead of once for the batch.
        objects: Where the object of each image is: masks ``(N, H, W)`` or boxes ``(N, 4)``. If given, the label follows
            the visible objects; see `label_by_objects`.
        objects_rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        objects_weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    check_batch(x, y, uint8=True)
    size = len(x), *x.shape[-2:]
    check_range("decay", decay, 0, bounds="[)")
    if noise is not None:
        check_shape("noise", noise, size)
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    noise = fourier_noise(x, decay, generator) if noise is None else noise.to(x.device)
    pixels = size[1] * size[2]
    count = (lam * pixels).round()
    mask = highest(noise, count).unsqueeze(1).to(at_least_float32(x).dtype)
    mixed = Mixed(blend(x, index, mask), MixedTarget(y, y[index], count / pixels), mask, index)
    return label_by_objects(mixed, objects, objects_rule, objects_weight)


def fourier_noise(x: Tensor, decay: float, generator: torch.Generator | None = None) -> Tensor:
    """Draw a smooth random height map for each image.

    Args:
        x: Images, ``(N, C, H, W)``.
        decay: Exponent of the frequency, >= 0.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        Height maps, ``(N, H, W)``.
    """
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
    """Mark the highest pixels of each map, exactly as many as asked for even where values tie.

    Args:
        noise: Height maps, ``(N, H, W)``.
        count: Number of pixels to mark; one for all maps or ``(N,)``.

    Returns:
        The mask, a bool tensor ``(N, H, W)``.
    """
    order = noise.flatten(1).argsort(dim=1, descending=True)
    chosen = torch.arange(order.shape[1], device=noise.device) < count.reshape(-1, 1)
    return torch.zeros_like(order, dtype=torch.bool).scatter_(1, order, chosen.expand_as(order)).view_as(noise)


class FMix(MixTransform):
    """Combine each image with its partner by a mask of smooth random shapes (Harris et al., 2020).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        alpha: ``lam ~ Beta(alpha, alpha)``.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw `lam` for every sample instead of once for the batch.
        prob: Probability that a batch is mixed at all, in [0, 1]; 1 if not given.
        generator: Source of randomness; torch's default generator if not given.
        pairing: "random", or "other-class" for partners of another class, as far as the batch permits.
        decay: Exponent of the frequency, >= 0; a larger one gives larger shapes. 3 if not given.
        noise: Height maps ``(N, H, W)``; drawn if not given.
        objects_rule: "absolute" or "relative", for objects that are passed in the call; "absolute" if not given.
        objects_weight: Weight of the objects in the label, in [0, 1]; 1 if not given.
    """

    function = fmix
