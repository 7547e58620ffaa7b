"""SaliencyMix (Uddin et al., 2021): CutMix whose box is centered on the most salient pixel of the pasted image.

The box has the side ratio sqrt(1 - lam), lam ~ Beta(alpha, alpha). Its center is the most salient pixel of the pasted
image x_j, and it is pasted at the same place of x_i; the part beyond the border is cut off:

    lam := 1 - area of the clipped box / area of the image

The pasted box is then rarely mere background. Saliency is the spectral residual (Hou and Zhang, 2007), which looks at
the pixels alone: no network is needed. For data whose objects stand out from their background. The original looks for
the most salient pixel of one image and uses it for the whole batch; here each pair has its own.
"""

import functools
import math

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.blend import at_least_float32, blend
from automix.core.draws import Pairing, draw_index, draw_lam, mix_with_probability
from automix.core.objects import ObjectsRule, label_by_objects
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch, check_shape
from automix.core.transform import MixTransform
from automix.methods.cutmix import box_mask

__all__ = ["SaliencyMix", "saliencymix"]

_SIDE = 64  # px at most: the scale at which Hou and Zhang look for objects
_BLUR = 8 / 64  # of the longer side: their blur, which makes a region of the salient points


def saliencymix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    prob: float = 1.0,
    even_sides: bool = False,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    saliency: Tensor | None = None,
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Paste a box around its partner's most salient pixel into each image (Uddin et al., 2021).

    The label follows the area that was really pasted, after clipping at the border.

    Args:
        x: Images, ``(N, C, H, W)``, of a floating type or uint8; pixels are copied, never blended.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)``.
        prob: Probability that a batch is mixed at all, in [0, 1]; its authors have 0.5 on CIFAR and 1 on ImageNet. A
            given `lam` is used in any case.
        even_sides: Make the box's sides even, as its authors' code does; a box is then up to a pixel smaller.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        saliency: Saliency of each pixel of `x`, ``(N, H, W)``; the spectral residual if not given.
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
    size = (x.shape[-2], x.shape[-1])
    if saliency is not None:
        check_shape("saliency", saliency, (len(x), *size))
    given = lam is not None
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    lam = lam if given else mix_with_probability(lam, prob, generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    saliency = spectral_residual(x) if saliency is None else saliency.to(x.device)
    center = most_salient(saliency)[index]
    mask = box_mask(center, (1 - lam).sqrt(), size, even_sides).to(at_least_float32(x).dtype)
    mixed = Mixed(blend(x, index, mask), MixedTarget(y, y[index], mask.mean(dim=(1, 2, 3))), mask, index)
    return label_by_objects(mixed, objects, objects_rule, objects_weight)


def most_salient(saliency: Tensor) -> Tensor:
    """Find the pixel where each map is highest.

    Args:
        saliency: Maps, ``(N, H, W)``.

    Returns:
        Pixels (row, column), ``(N, 2)``.
    """
    place = saliency.flatten(1).argmax(dim=1)
    width = saliency.shape[-1]
    return torch.stack([place // width, place % width], dim=1)


def spectral_residual(x: Tensor) -> Tensor:
    """Measure how much each pixel stands out from the rest of its image (Hou and Zhang, 2007).

    The logarithm of an image's amplitude spectrum is smooth except for what is peculiar to the image. With its local
    mean A taken away and the phase kept, the inverse transform is bright at unusual places:

        saliency = blur(|F^-1(F(x) * exp(-A))|^2)        A = mean of log |F(x)| over 3 x 3 frequencies

    Computed on the gray image, at no more than 64 px a side.

    Args:
        x: Images, ``(N, C, H, W)``.

    Returns:
        Saliency, ``(N, H, W)``, >= 0.
    """
    gray = at_least_float32(x.detach()).mean(dim=1, keepdim=True)
    longer = max(x.shape[-2:])
    if longer > _SIDE:
        small = [max(1, round(length * _SIDE / longer)) for length in x.shape[-2:]]
        gray = F.interpolate(gray, small, mode="bilinear", antialias=True)
    # Without the mean, which says nothing and would leak into the local means of the lowest frequencies.
    spectrum = torch.fft.fft2(gray - gray.mean(dim=(2, 3), keepdim=True))
    amplitude = spectrum.abs()
    floor = 1e-6 * amplitude.amax(dim=(2, 3), keepdim=True) + torch.finfo(amplitude.dtype).tiny
    # Frequencies are periodic, so the local mean is, too.
    local_mean = F.avg_pool2d(F.pad(amplitude.maximum(floor).log(), (1, 1, 1, 1), mode="circular"), 3, stride=1)
    residual = torch.fft.ifft2(spectrum * torch.exp(-local_mean)).abs().square()
    sigma = _BLUR * max(residual.shape[-2:])
    rows, columns = (_blur_matrix(length, sigma, x.device, residual.dtype) for length in residual.shape[-2:])
    with torch.autocast(x.device.type, enabled=False):  # where the maximum lies must not depend on rounding
        saliency = rows @ residual @ columns.mT
    return F.interpolate(saliency, x.shape[-2:], mode="bilinear").squeeze(1)


@functools.lru_cache(maxsize=32)
def _blur_matrix(length: int, sigma: float, device: torch.device, dtype: torch.dtype) -> Tensor:
    """A Gaussian blur along one side as a matrix (length, length); beyond the border there is nothing."""
    place = torch.arange(length, device=device, dtype=dtype)
    weight = torch.exp(-0.5 * ((place - place[:, None]) / sigma) ** 2)
    return weight / (sigma * math.sqrt(2 * math.pi))


class SaliencyMix(MixTransform):
    """Paste a box around its partner's most salient pixel into each image (Uddin et al., 2021).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        alpha: ``lam ~ Beta(alpha, alpha)``.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw `lam` for every sample instead of once for the batch.
        prob: Probability that a batch is mixed at all, in [0, 1]; 1 if not given.
        generator: Source of randomness; torch's default generator if not given.
        pairing: "random", or "other-class" for partners of another class, as far as the batch permits.
        even_sides: Make the box's sides even, as its authors' code does; False if not given.
        saliency: Saliency of each pixel, ``(N, H, W)``; the spectral residual if not given.
        objects_rule: "absolute" or "relative", for objects that are passed in the call; "absolute" if not given.
        objects_weight: Weight of the objects in the label, in [0, 1]; 1 if not given.
    """

    function = saliencymix
