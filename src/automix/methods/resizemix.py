"""ResizeMix (Qin et al., 2020): a whole image, made smaller, is pasted into another.

x_j is resized by the factor tau along both sides and pasted at a random place, always in full:

    tau ~ U(0.1, 0.8)        lam := 1 - area of the pasted image / area of the image

This is alpha = 1. With another alpha, as in OpenMixup, tau ~ Beta(alpha, alpha) where that lies within the bounds, and
uniform where it does not. CutMix may paste a piece of background under x_j's label; here the whole object is always
shown, only smaller. For data where the object is a small part of the image. Since x_j is resized, the pixels are not a
blend with x[index]; the mask is the share of x_i as everywhere.

In OpenMixup an x_j that reaches over the border is squeezed, and the mask it returns is transposed.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from automix.core.blend import at_least_float32, full_mask
from automix.core.draws import Pairing, draw_index, draw_lam, draw_uniform
from automix.core.errors import AutomixError
from automix.core.objects import ObjectsRule, check_objects_rule, label_by_objects, object_masks
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch, check_shape
from automix.core.transform import MixTransform
from automix.core.validation import check_alpha

__all__ = ["Pasted", "ResizeMix", "paste_resized", "resizemix"]


def resizemix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    scope: tuple[float, float] = (0.1, 0.8),
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    corner: Tensor | None = None,
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Paste the whole of its partner, made smaller, into each image (Qin et al., 2020).

    The label follows the area that was really pasted. Of its partner's object, made smaller too, the whole is visible.

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: Resizing factor ``tau ~ Beta(alpha, alpha)`` where that is within `scope`, else uniform in it.
        scope: Smallest and largest `tau` that is drawn, in [0, 1]. A given `lam` is not bound to it.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        corner: Pixel (row, column) of the pasted image's upper left corner, ``(2,)`` or ``(N, 2)``, moved inside where
            the image would stick out; drawn if not given.
        per_sample: Draw `tau` and the corner for every sample instead of once for the batch.
        objects: Where the object of each image is: masks ``(N, H, W)`` or boxes ``(N, 4)``. If given, the label follows
            the visible objects; see `label_by_objects`.
        objects_rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        objects_weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    check_batch(x, y)
    _check_options(alpha, scope)
    check_objects_rule(objects_rule, objects_weight)
    tau = _draw_tau(x, alpha, scope, lam, per_sample, generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    pasted = paste_resized(x, x[index], tau, corner, generator)
    mixed = Mixed(pasted.images, MixedTarget(y, y[index], pasted.lam), full_mask(pasted.mask, x))
    if objects is None:
        return mixed
    objects = object_masks(objects, x).to(pasted.mask.dtype)
    partners = pasted.shrink(objects[index]) * (1 - pasted.mask)
    return label_by_objects(mixed, objects, objects_rule, objects_weight, partners=partners)


@dataclass(frozen=True)
class Pasted:
    """Images with smaller images pasted into them.

    Attributes:
        images: The images, ``(N, C, H, W)``.
        mask: 0 where the smaller image is and 1 elsewhere, ``(N or 1, 1, H, W)``.
        lam: Share of each image that is not covered, ``()`` or ``(N,)``.
        shrink: Resizes and moves other maps in the same way, ``(N, C, H, W)``.
        corner: Pixel (row, column) of the upper left corner, ``(2,)`` or ``(N, 2)``.
        size: Height and width of the pasted images in pixels, ``(2,)`` or ``(N, 2)``.
    """

    images: Tensor
    mask: Tensor
    lam: Tensor
    shrink: Callable[[Tensor], Tensor]
    corner: Tensor
    size: Tensor


def paste_resized(
    x: Tensor, partner: Tensor, tau: Tensor, corner: Tensor | None, generator: torch.Generator | None
) -> Pasted:
    """Paste the whole of other images, made smaller, into images.

    Args:
        x: Images, ``(N, C, H, W)``.
        partner: The images to paste, of the same shape.
        tau: Resizing factor of their sides, ``()`` or ``(N,)``, in [0, 1].
        corner: Pixel (row, column) of the upper left corner, ``(2,)`` or ``(N, 2)``, moved inside where the pasted
            image would stick out; drawn if None.
        generator: Source of randomness.

    Returns:
        The images, and where the others are.
    """
    size = torch.tensor(x.shape[-2:], device=x.device)
    pasted = (tau.unsqueeze(-1) * size).round().long()  # height and width in pixels: (2,) or (N, 2)
    if corner is None:
        corner = (draw_uniform(x, (*tau.shape, 2), generator) * (size - pasted + 1)).long()
    check_shape("corner", corner, (2,), (len(x), 2))
    corner = torch.minimum(corner.to(x.device), size - pasted)

    inside, resize = zip(*(_along(axis, corner, pasted, x) for axis in (0, 1)), strict=True)
    partner = at_least_float32(partner)

    def shrink(images: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):  # pixels, not features: they keep their precision
            return resize[0] @ images @ resize[1].mT

    mask = 1 - (inside[0][:, :, None] & inside[1][:, None, :]).unsqueeze(1).to(partner.dtype)
    true_lam = mask.mean(dim=(1, 2, 3)).reshape(corner.shape[:-1])
    images = torch.lerp(x, shrink(partner).to(x.dtype), 1 - mask.to(x.dtype))
    return Pasted(images, mask, true_lam, shrink, corner, pasted)


def _draw_tau(
    x: Tensor,
    alpha: float,
    scope: tuple[float, float],
    lam: float | Tensor | None,
    per_sample: bool,
    generator: torch.Generator | None,
) -> Tensor:
    """Draw the resizing factor of the sides, one for the batch or one per sample."""
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
    """Compute the weights of bilinear interpolation with antialiasing along one axis.

    Every source pixel counts by its distance from the target's center, linearly down to 0 at the center of the next
    target pixel. Targets outside 0 .. count - 1 repeat the one at the border.

    Args:
        target: Target pixels, ``(N, pixels)``.
        count: Number of target pixels that the axis is resized to, ``(N, 1)``.
        length: Number of source pixels.

    Returns:
        Weights of the source pixels, ``(N, pixels, length)``.
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
        raise AutomixError(f"scope must be two numbers in [0, 1], the smaller one first, got {scope}")


class ResizeMix(MixTransform):
    """Paste the whole of its partner, made smaller, into each image (Qin et al., 2020).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        alpha: Resizing factor ``tau ~ Beta(alpha, alpha)`` where that is within `scope`, else uniform in it; 1 if not
            given.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw `lam` for every sample instead of once for the batch.
        prob: Probability that a batch is mixed at all, in [0, 1]; 1 if not given.
        generator: Source of randomness; torch's default generator if not given.
        pairing: "random", or "other-class" for partners of another class, as far as the batch permits.
        scope: Smallest and largest `tau`, in [0, 1]; (0.1, 0.8) if not given.
        corner: Pixel (row, column) of the pasted image's upper left corner, ``(2,)`` or ``(N, 2)``; drawn if not given.
        objects_rule: "absolute" or "relative", for objects that are passed in the call; "absolute" if not given.
        objects_weight: Weight of the objects in the label, in [0, 1]; 1 if not given.
    """

    function = resizemix
