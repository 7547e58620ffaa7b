"""CutMix (Yun et al., 2019): a box of one image is pasted into another.

The box has the side ratio sqrt(1 - lam), lam ~ Beta(alpha, alpha). Its center is uniform over the pixels, and the part
beyond the border is cut off. The label follows the area that was really pasted:

    lam := 1 - area of the clipped box / area of the image

Strong on wide networks and long schedules. Local texture stays intact, which helps localization.
"""

import torch
from torch import Tensor

from automix.core.blend import at_least_float32, blend, full_mask
from automix.core.draws import Pairing, draw_index, draw_lam, draw_uniform, mix_with_probability
from automix.core.objects import ObjectsRule, label_by_objects
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch, check_shape
from automix.core.transform import MixTransform

__all__ = ["CutMix", "cutmix"]


def cutmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    prob: float = 1.0,
    even_sides: bool = False,
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
    """Paste a box of its partner into each image (Yun et al., 2019).

    The label follows the area that was really pasted, after clipping at the border.

    Args:
        x: Images, ``(N, C, H, W)``, of a floating type or uint8; pixels are copied, never blended.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)`` before clipping.
        prob: Probability that a batch is mixed at all, in [0, 1]; its authors have 0.5 on CIFAR and 1 on ImageNet. A
            given `lam` is used in any case.
        even_sides: Make the box's sides even, as its authors' code does; a box is then up to a pixel smaller.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        center: Pixel (row, column) of the box's center, ``(2,)``, or ``(N, 2)`` for one per sample; drawn if not given.
        per_sample: Draw `lam` and the box for every sample instead of once for the batch.
        objects: Where the object of each image is: masks ``(N, H, W)`` or boxes ``(N, 4)``. If given, the label follows
            the visible objects; see `label_by_objects`.
        objects_rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        objects_weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    check_batch(x, y, uint8=True)
    height, width = x.shape[-2:]
    given = lam is not None
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    lam = lam if given else mix_with_probability(lam, prob, generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    if center is None:
        uniform = draw_uniform(x, (*lam.shape, 2), generator)
        center = (uniform * uniform.new_tensor([height, width])).long()
    check_shape("center", center, (2,), (len(x), 2))
    mask = box_mask(center.to(x.device), (1 - lam).sqrt(), (height, width), even_sides).to(at_least_float32(x).dtype)
    true_lam = mask.mean(dim=(1, 2, 3)).reshape(lam.shape if center.ndim == 1 else (len(mask),))
    mixed = Mixed(blend(x, index, mask), MixedTarget(y, y[index], true_lam), full_mask(mask, x), index)
    return label_by_objects(mixed, objects, objects_rule, objects_weight)


def box_mask(center: Tensor, ratio: Tensor, size: tuple[int, int], even_sides: bool = False) -> Tensor:
    """Make a mask that is False inside a box and True outside.

    A side of n pixels gives a box of floor(n * ratio) pixels, of which the larger half lies after the center.

    Args:
        center: Pixel (row, column) of the box's center, ``(2,)`` or ``(N, 2)``.
        ratio: Ratio of the box's sides to the image's, in [0, 1]; a number or ``(N,)``.
        size: Height and width of the image.
        even_sides: Make a side of an odd number of pixels a pixel shorter.

    Returns:
        The mask, ``(N or 1, 1, H, W)``.
    """

    def outside(center: Tensor, length: int) -> Tensor:
        side = (ratio * length).floor()
        half = (side / 2).floor()
        side = 2 * half if even_sides else side
        first = (center - half).reshape(-1, 1)
        place = torch.arange(length, device=center.device)
        return (place < first) | (place >= first + side.reshape(-1, 1))

    rows, columns = (outside(center[..., axis], size[axis]) for axis in (0, 1))
    return (rows[:, :, None] | columns[:, None, :]).unsqueeze(1)


class CutMix(MixTransform):
    """Paste a box of its partner into each image (Yun et al., 2019).

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
        center: Pixel (row, column) of the box's center, ``(2,)`` or ``(N, 2)``; drawn if not given.
        objects_rule: "absolute" or "relative", for objects that are passed in the call; "absolute" if not given.
        objects_weight: Weight of the objects in the label, in [0, 1]; 1 if not given.
    """

    function = cutmix
