"""Mixup (Zhang et al., 2018): two images are interpolated pixel by pixel.

    x_mix = lam * x_i + (1 - lam) * x_j,    lam ~ Beta(alpha, alpha)

The simplest method, and hard to beat on small networks and short schedules. ``images=K`` interpolates K images, with
weights drawn from Dirichlet(alpha, ..., alpha), of which the Beta distribution is the case K = 2.
"""

import torch
from torch import Tensor

from automix.core.blend import as_map, blend, blend_many, chain_members, full_mask
from automix.core.draws import Pairing, draw_index, draw_lam, draw_weights
from automix.core.errors import AutomixError
from automix.core.objects import ObjectsRule, check_objects_rule, label_by_objects
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch
from automix.core.transform import MixTransform
from automix.core.validation import check_whole

__all__ = ["Mixup", "mixup"]


def mixup(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    images: int = 2,
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
        alpha: ``lam ~ Beta(alpha, alpha)``; with more images, weights ``~ Dirichlet(alpha, ..., alpha)``.
        images: Number of images in a mixture, >= 2: i, index[i], index[index[i]], ...
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``. With more images than two,
            the others share the rest as drawn.
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
    if images != 2:
        check_whole("images", images, 2)
        if objects is not None:
            raise AutomixError(f"objects must be None with images={images}: labels by visible object are for pairs")
        check_objects_rule(objects_rule, objects_weight)
        return _mixup_many(x, y, alpha, images, lam, index, pairing, per_sample, generator)
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    mask = as_map(lam)
    mixed = Mixed(blend(x, index, mask), MixedTarget(y, y[index], lam), full_mask(mask, x), index)
    return label_by_objects(mixed, objects, objects_rule, objects_weight)


def _mixup_many(
    x: Tensor,
    y: Tensor,
    alpha: float,
    images: int,
    lam: float | Tensor | None,
    index: Tensor | None,
    pairing: Pairing,
    per_sample: bool,
    generator: torch.Generator | None,
) -> Mixed:
    weights = draw_weights(x, alpha, images, lam=lam, per_sample=per_sample, generator=generator)
    members = chain_members(draw_index(x, index=index, y=y, pairing=pairing, generator=generator), images)
    masks = weights.reshape(-1, images, 1, 1)
    target = MixedTarget.of([y[of_image] for of_image in members], weights)
    shown = masks.expand(len(x), images, *x.shape[-2:])
    return Mixed(blend_many(x, members, masks), target, shown[:, :1], masks=shown)


class Mixup(MixTransform):
    """Interpolate each image with its partner (Zhang et al., 2018).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        alpha: ``lam ~ Beta(alpha, alpha)``.
        images: Number of images in a mixture; 2 if not given.
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
