"""GridMix (Baek et al., 2021): each cell of a grid comes from one of two images, at random.

The image is divided into grid x grid cells, and each cell comes whole from one of the two images, at the same place.
The share of x_i is lam ~ Beta(alpha, alpha); its cells are drawn for each sample:

    s = 1 in round(lam * grid^2) cells drawn at random, 0 in the others        lam := mean(s)

Every part of the object is shown sometimes, and a network cannot rely on any of them. For images that show one large
object. The mixing is built from the paper's abstract (grid-based, local); its second half, a loss on patch-level
labels, is left out. What other libraries call GridMix is I. Dobrynin's method, a regular pattern of holes in a random
crop.
"""

import torch
from torch import Tensor

from automix.core.blend import at_least_float32, blend
from automix.core.draws import draw_index, draw_lam, draw_uniform
from automix.core.objects import ObjectsRule, label_by_objects
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch, check_shape
from automix.core.transform import MixTransform
from automix.core.validation import check_whole

__all__ = ["GridMix", "gridmix"]


def gridmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    grid: int = 4,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    order: Tensor | None = None,
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Fill each cell of a grid from an image or its partner (Baek et al., 2021).

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)``.
        grid: Cells per side, >= 1.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        order: Numbers ``(N, grid, grid)``: each image keeps the cells with the smallest ones. Drawn if not given.
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
    check_whole("grid", grid, 1)
    if order is not None:
        check_shape("order", order, (len(x), grid, grid))
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, generator=generator)
    order = draw_uniform(x, (len(x), grid, grid), generator) if order is None else order.to(x.device)
    mask = spread(first_cells(order, lam), x.shape[-2], x.shape[-1]).unsqueeze(1).to(at_least_float32(x).dtype)
    mixed = Mixed(blend(x, index, mask), MixedTarget(y, y[index], mask.mean(dim=(1, 2, 3))), mask, index)
    return label_by_objects(mixed, objects, objects_rule, objects_weight)


def first_cells(order: Tensor, lam: Tensor) -> Tensor:
    """Mark the share `lam` of the cells of each grid, those with the smallest numbers.

    Args:
        order: Numbers of the cells, ``(N, grid, grid)``.
        lam: Share of the cells, a number or ``(N,)``.

    Returns:
        The marked cells, a bool tensor ``(N, grid, grid)``.
    """
    rank = order.flatten(1).argsort(dim=1, stable=True).argsort(dim=1)
    count = (lam * rank.shape[1]).round()
    return (rank < count.reshape(-1, 1)).view_as(order)


def spread(cells: Tensor, height: int, width: int) -> Tensor:
    """Enlarge cells to pixels; the borders between cells are as even as possible.

    Args:
        cells: Values of the cells, ``(N, rows, columns)``.
        height: Height of the image in pixels.
        width: Width of the image in pixels.

    Returns:
        Values of the pixels, ``(N, height, width)``.
    """

    def cell_of_pixel(pixels: int, count: int) -> Tensor:
        return torch.arange(pixels, device=cells.device) * count // pixels

    rows, columns = cell_of_pixel(height, cells.shape[1]), cell_of_pixel(width, cells.shape[2])
    return cells[:, rows[:, None], columns[None, :]]


class GridMix(MixTransform):
    """Fill each cell of a grid from an image or its partner (Baek et al., 2021).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        alpha: ``lam ~ Beta(alpha, alpha)``.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw `lam` for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.
        grid: Cells per side, >= 1; 4 if not given.
        order: Numbers ``(N, grid, grid)`` that rank the cells; drawn if not given.
        objects_rule: "absolute" or "relative", for objects that are passed in the call; "absolute" if not given.
        objects_weight: Weight of the objects in the label, in [0, 1]; 1 if not given.
    """

    function = gridmix
