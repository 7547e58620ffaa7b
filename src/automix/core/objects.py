"""Labels by visible object (OA-CutMix, 2026): the label follows how much of each object a mixed image shows.

With object masks M and the mask s of the mixture (1 where it shows the first image),

    visible_a = sum(s * M_a)        visible_b = sum((1 - s) * M_b)

    absolute:  w_a = visible_a / (visible_a + visible_b)
    relative:  each visible area is first divided by the area of its own object
    lam := weight * w_a + (1 - weight) * lam

w_a is 0.5 where neither object is visible. By the relative rule an empty mask counts as an object that fills its image:
the share of the image that is visible takes its place, and two empty masks leave the plain area.
"""

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.compiler import is_compiling

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError
from automix.core.target import Mixed
from automix.core.tensor_checks import check_shape
from automix.core.validation import check_choice, check_range

ObjectsRule = Literal["absolute", "relative"]
"""How visible areas are compared: by their pixels, or each as a share of its own object."""


def label_by_objects(
    mixed: Mixed,
    objects: Tensor | None,
    rule: ObjectsRule = "absolute",
    weight: float = 1.0,
    *,
    partners: Tensor | None = None,
) -> Mixed:
    """Let the label of a mixed batch follow the visible share of each object.

    Args:
        mixed: The mixed batch.
        objects: Where the object of each image is; see `object_masks`. None leaves the label as it is.
        rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        partners: Masks of the partners' objects as they lie in the mixed images, ``(N, 1, H, W)``, for methods that
            move pixels; ``objects[mixed.index]`` if not given.

    Returns:
        The batch with one `lam` per sample.
    """
    if objects is None and rule == "absolute" and weight == 1:
        return mixed  # every step without objects: nothing to check
    check_objects_rule(rule, weight)
    if objects is None:
        return mixed
    if partners is None and mixed.index is None:
        raise AutomixError(
            "objects must be None where pixels were moved or more than two images were mixed (the batch has no index)"
        )
    with torch.no_grad():
        masks = object_masks(objects, mixed.x)
        partners = masks[mixed.index] if partners is None else partners
        lam = visible_lam(mixed.mask, masks, partners, mixed.target.lam, rule, weight)
    return replace(mixed, target=replace(mixed.target, lam=lam))


def visible_lam(
    mask: Tensor,
    objects_a: Tensor,
    objects_b: Tensor,
    lam: Tensor,
    rule: ObjectsRule = "absolute",
    weight: float = 1.0,
) -> Tensor:
    """Compute the label's weight of the first images from the visible areas of the objects.

    Args:
        mask: Share of the first image at each pixel, ``(N or 1, C, H, W)``; its channels are averaged.
        objects_a: Objects of the first images, ``(N, 1, H, W)``, in [0, 1].
        objects_b: Objects of their partners as they lie in the mixed images, ``(N, 1, H, W)``.
        lam: The plain `lam`, a number or ``(N,)``.
        rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        weight: Weight of the objects in the label, in [0, 1].

    Returns:
        `lam`, ``(N,)``, in the type of the given one.
    """
    check_objects_rule(rule, weight)
    shown_a = at_least_float32(mask).mean(dim=1, keepdim=True)
    visible = [_visible(share, objects, rule) for share, objects in ((shown_a, objects_a), (1 - shown_a, objects_b))]
    both = visible[0] + visible[1]
    by_object = torch.where(both > 0, visible[0] / both, 0.5).to(lam.dtype)
    return weight * by_object + (1 - weight) * lam


def _visible(shown: Tensor, objects: Tensor, rule: ObjectsRule) -> Tensor:
    """The visible area of each object (N,), or by the relative rule its visible share."""
    objects = at_least_float32(objects)
    area = (shown * objects).sum(dim=(1, 2, 3))
    if rule == "absolute":
        return area
    whole = objects.sum(dim=(1, 2, 3))
    return torch.where(whole > 0, area / whole, shown.mean(dim=(1, 2, 3)))


def object_masks(objects: Tensor, x: Tensor) -> Tensor:
    """Check where the objects are and return it as masks.

    Values are checked on the CPU only, see `check_classes`.

    Args:
        objects: Masks ``(N, 1, H, W)`` or ``(N, H, W)``, bool or numbers in [0, 1], or boxes ``(N, 4)`` as for
            `boxes_to_masks`.
        x: Images, ``(N, C, H, W)``.

    Returns:
        Masks ``(N, 1, H, W)`` of a floating type, on the device of `x`.
    """
    count, size = len(x), (x.shape[-2], x.shape[-1])
    check_shape("objects", objects, (count, 1, *size), (count, *size), (count, 4))
    objects = objects.to(x.device)
    if objects.ndim == 2:
        return boxes_to_masks(objects, size)
    masks = at_least_float32(objects).reshape(count, 1, *size)
    if masks.device.type == "cpu" and not is_compiling():
        for value in torch.aminmax(masks):
            if not 0 <= value <= 1:
                raise AutomixError(f"objects must be masks with values in [0, 1], got {value.item():g}")
    return masks


def boxes_to_masks(boxes: Tensor, size: tuple[int, int]) -> Tensor:
    """Draw boxes as masks.

    A pixel has the share of it that the box covers, so that the sum of a mask is the area of the box inside the image.
    A box without area gives an empty mask.

    Args:
        boxes: Boxes (x0, y0, x1, y1) in pixels, ``(N, 4)``; x1 and y1 are the first coordinates beyond the box.
        size: Height and width of the image.

    Returns:
        Masks, ``(N, 1, H, W)``, in [0, 1].
    """
    check_shape("boxes", boxes, ("N", 4))
    boxes = at_least_float32(boxes)

    def covered(first: Tensor, end: Tensor, length: int) -> Tensor:
        pixel = torch.arange(length, device=boxes.device, dtype=boxes.dtype)
        return (torch.minimum(end[:, None], pixel + 1) - torch.maximum(first[:, None], pixel)).clamp(min=0)

    columns, rows = (covered(boxes[:, axis], boxes[:, axis + 2], size[1 - axis]) for axis in (0, 1))
    return (rows[:, :, None] * columns[:, None, :]).unsqueeze(1)


def check_objects_rule(rule: ObjectsRule, weight: float) -> None:
    """Raise an error unless a rule and a weight can be those of `label_by_objects`.

    Args:
        rule: The rule to check.
        weight: The weight to check.
    """
    check_choice("objects_rule", rule, get_args(ObjectsRule))
    check_range("objects_weight", weight, 0, 1)


def check_takes_objects(function: Callable[..., object]) -> None:
    """Raise an error unless the function of a method can label by visible object.

    Args:
        function: The function of a method.
    """
    if "objects" not in inspect.signature(function).parameters:
        raise AutomixError(
            f"objects must be None for {getattr(function, '__name__', 'this method')}: "
            "it cannot tell how much of each object is visible"
        )
