"""SmoothMix (Lee et al., 2020): two images are blended by a soft round patch without an edge.

The patch is a Gaussian bell. Its center c is uniform over the pixels, its width sigma is in shares of the image's
sides:

    s = 1 - exp(-|p - c|^2 / (2 sigma^2)) at pixel p        sigma ~ U(0.25, 0.5)        lam := mean(s)

With a lam (given, or drawn from Beta(alpha, alpha)) sigma is the width that gives this mean at this center. The sharp
edge of a box is a cue that a network can learn, and noise to a convolution; here there is none, and the paper gains
robustness to corruptions. Implementations that label the batch with the mean of the bell have x_i and x_j interchanged.
"""

import math

import torch
from torch import Tensor

from automix.core.blend import at_least_float32, blend, full_mask
from automix.core.draws import Pairing, draw_index, draw_lam, draw_uniform
from automix.core.errors import AutomixError
from automix.core.objects import ObjectsRule, label_by_objects
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch, check_shape
from automix.core.transform import MixTransform
from automix.core.validation import check_alpha

__all__ = ["SmoothMix", "smoothmix"]

_NARROW, _WIDE = 1e-4, 1e3  # sigmas: a bell within one pixel, and one that is flat over the image
_HALVINGS = 28  # of log sigma between them: more than float32 can tell apart


def smoothmix(
    x: Tensor,
    y: Tensor,
    alpha: float | None = None,
    *,
    scope: tuple[float, float] = (0.25, 0.5),
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    center: Tensor | None = None,
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Blend each image with its partner by a soft round patch (Lee et al., 2020).

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: If given, ``lam ~ Beta(alpha, alpha)`` and sigma follows from it. If not, sigma is drawn as in the paper.
        scope: Smallest and largest sigma that is drawn, > 0, in shares of the image's sides. Has no effect with `alpha`
            or `lam`.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        center: Pixel (row, column) of the patch's center, ``(2,)``, or ``(N, 2)`` for one per sample; drawn if not
            given.
        per_sample: Draw the patch for every sample instead of once for the batch.
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
    height, width = x.shape[-2:]
    share = None  # of x_j
    if alpha is not None or lam is not None:
        share = 1 - draw_lam(x, alpha or 1.0, lam=lam, per_sample=per_sample, generator=generator)
        per_sample = share.ndim == 1
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    shape = (len(x),) if per_sample else ()
    if center is None:
        uniform = draw_uniform(x, (*shape, 2), generator)
        center = (uniform * uniform.new_tensor([height, width])).long()
    check_shape("center", center, (2,), (len(x), 2))
    distances = _distances(center.to(x.device), (height, width), at_least_float32(x).dtype)
    if share is None:
        sigma = scope[0] + (scope[1] - scope[0]) * draw_uniform(x, shape, generator)
    else:
        sigma = sigma_of_share(share, *distances)
    rows, columns = (bell(distance, sigma) for distance in distances)
    mask = (1 - rows[:, :, None] * columns[:, None, :]).unsqueeze(1)
    true_lam = mask.mean(dim=(1, 2, 3)).reshape(shape if center.ndim == 1 else (len(mask),))
    mixed = Mixed(blend(x, index, mask), MixedTarget(y, y[index], true_lam), full_mask(mask, x), index)
    return label_by_objects(mixed, objects, objects_rule, objects_weight)


def bell(distance: Tensor, sigma: Tensor) -> Tensor:
    """Compute ``exp(-distance^2 / (2 sigma^2))``, or 0 where sigma is 0.

    Args:
        distance: Distances, ``(N or 1, pixels)``.
        sigma: Widths, one number or ``(N,)``.

    Returns:
        Values in [0, 1], ``(N or 1, pixels)``.
    """
    sigma = sigma.reshape(-1, 1)
    return torch.where(sigma > 0, torch.exp(-0.5 * (distance / sigma) ** 2), 0)


def sigma_of_share(share: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Find the sigma at which the patch has the mean `share`, by bisection of log sigma.

    Args:
        share: Mean of the patch, in [0, 1]; a number or ``(N,)``.
        rows: Distances of the rows from the center, ``(N or 1, height)``.
        columns: Distances of the columns from the center, ``(N or 1, width)``.

    Returns:
        The widths: 0 for share 0, infinity for share 1.
    """
    low = torch.full_like(share.expand(max(share.numel(), len(rows))), math.log(_NARROW))
    high = torch.full_like(low, math.log(_WIDE))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # The bell is the product of one along the rows and one along the columns, and so is its mean.
        mean = bell(rows, middle.exp()).mean(dim=1) * bell(columns, middle.exp()).mean(dim=1)
        low, high = torch.where(mean < share, middle, low), torch.where(mean < share, high, middle)
    sigma = low.exp()
    return torch.where(share <= 0, 0, torch.where(share >= 1, math.inf, sigma))


def _distances(center: Tensor, size: tuple[int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """How far each row and each column is from the center, in shares of the image's height and width."""

    def along(axis: int) -> Tensor:
        place = torch.arange(size[axis], device=center.device, dtype=dtype)
        return (place - center[..., axis].reshape(-1, 1)) / size[axis]

    return along(0), along(1)


def _check_options(alpha: float | None, scope: tuple[float, float]) -> None:
    if alpha is not None:
        check_alpha(alpha)
    if not 0 < scope[0] <= scope[1] < math.inf:
        raise AutomixError(f"scope must be two numbers > 0, the smaller one first, got {scope}")


class SmoothMix(MixTransform):
    """Blend each image with its partner by a soft round patch (Lee et al., 2020).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        alpha: If given, ``lam ~ Beta(alpha, alpha)`` and sigma follows from it. If not, sigma is drawn as in the paper.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw `lam` for every sample instead of once for the batch.
        prob: Probability that a batch is mixed at all, in [0, 1]; 1 if not given.
        generator: Source of randomness; torch's default generator if not given.
        pairing: "random", or "other-class" for partners of another class, as far as the batch permits.
        scope: Smallest and largest sigma, > 0, in shares of the image's sides; (0.25, 0.5) if not given.
        center: Pixel (row, column) of the patch's center, ``(2,)`` or ``(N, 2)``; drawn if not given.
        objects_rule: "absolute" or "relative", for objects that are passed in the call; "absolute" if not given.
        objects_weight: Weight of the objects in the label, in [0, 1]; 1 if not given.
    """

    function = smoothmix
