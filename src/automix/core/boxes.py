"""Boxes of a mixed batch, for detection: those of both images, each with the share of it that is visible.

With the mask s of the mixture (1 where it shows the first image), a box B of the first image and one of its partner
have the weights

    w_a = mean of s over B        w_b = mean of 1 - s over B

and a box of which too little is visible is dropped: a detector must not be asked to find what is not there.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError
from automix.core.objects import boxes_to_masks
from automix.core.target import Mixed
from automix.core.tensor_checks import check_shape
from automix.core.validation import check_range


@dataclass(frozen=True)
class MixedBoxes:
    """The boxes that a mixed image shows.

    Attributes:
        boxes: Boxes (x0, y0, x1, y1) in pixels, ``(M, 4)``, as they were given; those of the first image come first.
        labels: Their classes, ``(M,)``.
        weights: Visible share of each box, ``(M,)``, to weight its loss with.
        of_partner: Whether a box is of the partner, ``(M,)`` bool.
    """

    boxes: Tensor
    labels: Tensor
    weights: Tensor
    of_partner: Tensor


def mix_boxes(
    mixed: Mixed, boxes: Sequence[Tensor], labels: Sequence[Tensor], min_visible: float = 0.1
) -> list[MixedBoxes]:
    """Collect the boxes of both images of each mixed image.

    Boxes keep their size where a part of them is covered.

    Args:
        mixed: The mixed batch.
        boxes: For each image that was mixed, its boxes (x0, y0, x1, y1) in pixels, ``(M, 4)``.
        labels: For each image, the classes of its boxes, ``(M,)``.
        min_visible: Drop boxes of which less than this share is visible, in [0, 1]. Boxes of which nothing is visible,
            or that lie outside of the image, are always dropped.

    Returns:
        The boxes of each mixed image.
    """
    check_range("min_visible", min_visible, 0, 1)
    for name, parts in (("boxes", boxes), ("labels", labels)):
        if len(parts) != len(mixed.x):
            raise AutomixError(f"{name} must have one tensor for each of the {len(mixed.x)} images, got {len(parts)}")
    for one, classes in zip(boxes, labels, strict=True):
        check_shape("boxes", one, ("M", 4))
        check_shape("labels", classes, (len(one),))
    shown = at_least_float32(mixed.mask.detach()).mean(dim=1)  # (N, H, W)
    pairs = enumerate(mixed.partners().tolist())
    return [_boxes_of(shown[i], boxes, labels, i, j, min_visible) for i, j in pairs]


def _boxes_of(
    shown: Tensor, boxes: Sequence[Tensor], labels: Sequence[Tensor], i: int, j: int, min_visible: float
) -> MixedBoxes:
    """The boxes of images i and j that are visible in their mixture; `shown` is the share of i, (H, W)."""
    if i == j:  # an image that is its own partner shows all of itself, once
        shown = torch.ones_like(shown)
    weights = torch.cat([_visible_shares(shown, boxes[i]), _visible_shares(1 - shown, boxes[j])])
    of_partner = torch.arange(len(weights), device=weights.device) >= len(boxes[i])
    kept = (weights >= min_visible) & (weights > 0)
    both, classes = (torch.cat([parts[i], parts[j]]).to(kept.device) for parts in (boxes, labels))
    return MixedBoxes(both[kept], classes[kept], weights[kept], of_partner[kept])


def _visible_shares(shown: Tensor, boxes: Tensor) -> Tensor:
    """The mean of `shown` (H, W) over each box (M,); 0 for boxes outside of the image."""
    masks = boxes_to_masks(boxes.to(shown.device), (shown.shape[0], shown.shape[1])).squeeze(1)
    return (masks * shown).sum(dim=(1, 2)) / masks.sum(dim=(1, 2)).clamp(min=torch.finfo(masks.dtype).tiny)
