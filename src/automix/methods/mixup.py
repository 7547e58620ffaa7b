"""Mixup (Zhang et al., 2018): two images are interpolated pixel by pixel.

    x_mix = lam * x_i + (1 - lam) * x_j,    lam ~ Beta(alpha, alpha)

The simplest method, and hard to beat on small networks and short schedules.
"""

import torch
from torch import Tensor

from automix.core.blend import as_map, blend, full_mask
from automix.core.draws import Pairing, draw_index, draw_lam
from automix.core.objects import ObjectsRule, label_by_objects
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch
from automix.core.transform import MixTransform

__all__ = ["Mixup", "mixup"]


def mixup(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Interpolate each image with its partner (Zhang et al., 2018).

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)``.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        per_sample: Draw `lam` for every sample instead of once for the batch.
        objects: Where the object of each image is: masks ``(N, H, W)`` or boxes ``(N, 4)``. If given, the label follows
            the visible objects; see `label_by_objects`.
        objects_rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        objects_weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    check_batch(x, y)
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    mask = as_map(lam)
    mixed = Mixed(blend(x, index, mask), MixedTarget(y, y[index], lam), full_mask(mask, x), index)
    return label_by_objects(mixed, objects, objects_rule, objects_weight)


class Mixup(MixTransform):
    """Interpolate each image with its partner (Zhang et al., 2018).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        alpha: ``lam ~ Beta(alpha, alpha)``.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw `lam` for every sample instead of once for the batch.
        prob: Probability that a batch is mixed at all, in [0, 1]; 1 if not given.
        generator: Source of randomness; torch's default generator if not given.
        pairing: "random", or "other-class" for partners of another class, as far as the batch permits.
        objects_rule: "absolute" or "relative", for objects that are passed in the call; "absolute" if not given.
        objects_weight: Weight of the objects in the label, in [0, 1]; 1 if not given.
    """

    function = mixup
