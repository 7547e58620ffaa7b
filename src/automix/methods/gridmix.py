"""GridMix (Baek et al., 2021): each cell of a grid comes from one of two images, at random.

The image is divided into grid x grid cells, and each cell comes whole from one of the two images, at the same place.
The share of x_i is lam ~ Beta(alpha, alpha); its cells are drawn for each sample:

    s = 1 in round(lam * grid^2) cells drawn at random, 0 in the others        lam := mean(s)

Every part of the object is shown sometimes, and a network cannot rely on any of them. The second half of the method,
local context mapping, is the loss of a second classification layer that predicts each cell's label from the last
feature map; the task adds it. For images that show one large object. Built from the paper's abstract and overview: how
cells are drawn and the weight of the second loss are ours. What other libraries call GridMix is I. Dobrynin's method
(``form="holes"``): a regular pattern of holes, of the side ratio sqrt(1 - lam), in a random crop shows x_j.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32, blend, full_mask
from automix.core.draws import Pairing, draw_index, draw_lam, draw_uniform
from automix.core.errors import AutomixError
from automix.core.objects import ObjectsRule, label_by_objects
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch, check_shape
from automix.core.transform import MixTransform
from automix.core.validation import check_choice, check_range, check_whole
from automix.networks.feature_tap import count_classes, find_tap, stage_modules, to_feature_map
from automix.tasks.mix_task import MixTask
from automix.tasks.step_output import StepOutput

__all__ = ["GridMix", "create_task", "gridmix"]

CELLS, HOLES = 4, 20  # per side; of the holes as in I. Dobrynin's package


def gridmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    grid: int | None = None,
    form: str = "cells",
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    order: Tensor | None = None,
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Fill each cell of a grid from an image or its partner (Baek et al., 2021).

    Args:
        x: Images, ``(N, C, H, W)``, of a floating type or uint8; pixels are copied, never blended.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)``.
        grid: Cells per side, >= 1; 4, or 20 holes per side if not given.
        form: "cells" shows each cell from one of the images, "holes" shows the partner in regular holes of a crop.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        order: Numbers ``(N, grid, grid)``: each image keeps the cells with the smallest ones. Drawn if not given.
        per_sample: Draw `lam` for every sample instead of once for the batch; of holes also the crop.
        objects: Where the object of each image is: masks ``(N, H, W)`` or boxes ``(N, 4)``. If given, the label follows
            the visible objects; see `label_by_objects`.
        objects_rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        objects_weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    check_batch(x, y, uint8=True)
    check_choice("form", form, ("cells", "holes"))
    grid = (CELLS if form == "cells" else HOLES) if grid is None else grid
    check_whole("grid", grid, 1)
    if form == "holes" and order is not None:
        raise AutomixError('order has no effect with form="holes"')
    if order is not None:
        check_shape("order", order, (len(x), grid, grid))
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    size = (x.shape[-2], x.shape[-1])
    if form == "holes":
        shown = ~hole_mask(lam, draw_uniform(x, (*lam.shape, 4), generator), grid, size)
    else:
        order = draw_uniform(x, (len(x), grid, grid), generator) if order is None else order.to(x.device)
        shown = spread(first_cells(order, lam), *size)
    mask = full_mask(shown.unsqueeze(1).to(at_least_float32(x).dtype), x)
    mixed = Mixed(blend(x, index, mask), MixedTarget(y, y[index], mask.mean(dim=(1, 2, 3))), mask, index)
    return label_by_objects(mixed, objects, objects_rule, objects_weight)


def hole_mask(lam: Tensor, uniform: Tensor, holes: int, size: tuple[int, int]) -> Tensor:
    """Mark a regular pattern of holes in a crop (I. Dobrynin's GridMixup).

    The crop has 1/2 to 1 of the area and an aspect ratio of 1/2 to 2, cut at the border, at a random place. It is
    divided into `holes` columns of square tiles, and the first sqrt(1 - lam) of a tile's sides are its hole.

    Args:
        lam: Share of a tile that is no hole; a number or ``(N,)``.
        uniform: Numbers in [0, 1) for area, aspect ratio, row and column of the crop, ``(4,)`` or ``(N, 4)``.
        holes: Holes in a row of the crop.
        size: Height and width of the image.

    Returns:
        The holes, a bool tensor ``(N or 1, H, W)``.
    """
    (height, width), (area, aspect, row, column) = size, uniform.reshape(-1, 4).unbind(1)
    side = ((0.5 + area / 2) * height * width).sqrt()
    aspect = (0.5 + 1.5 * aspect).sqrt()
    high, wide = (side / aspect).clamp(max=height), (side * aspect).clamp(max=width)
    tile = (wide / holes).unsqueeze(1)
    hole = tile * (1 - lam).sqrt().reshape(-1, 1)

    def inside(pixels: int, length: Tensor, start: Tensor) -> Tensor:
        place = torch.arange(pixels, device=lam.device) + 0.5 - (start * (pixels - length)).unsqueeze(1)
        return (place >= 0) & (place < length.unsqueeze(1)) & (place.remainder(tile) < hole)

    return inside(height, high, row).unsqueeze(2) & inside(width, wide, column).unsqueeze(1)


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


def create_task(
    model: nn.Module,
    *,
    patch_weight: float | None = None,
    num_classes: int | None = None,
    **options: Any,
) -> MixTask:
    """Build the training task.

    Args:
        model: The network to train.
        patch_weight: Weight of the loss on the labels of the cells, >= 0. If not given: 1, or 0 for a network that does
            not describe its stages and for holes, which have no cells.
        num_classes: Number of classes; the network's if not given.
        **options: Options of `gridmix` and of `MixTask`.

    Returns:
        The task.
    """
    stages = stage_modules(model)
    if patch_weight is None:
        patch_weight = 1.0 if stages and options.get("form", "cells") == "cells" and not _is_shared(options) else 0.0
    check_range("patch_weight", patch_weight, 0)
    if patch_weight == 0:
        return MixTask(model, gridmix, **options)
    if not stages:
        raise AutomixError(f"patch_weight must be 0: {type(model).__name__} does not describe its stages")
    return GridMixTask(model, stages[-1], patch_weight, num_classes or count_classes(model), **options)


def _is_shared(options: dict[str, Any]) -> bool:
    """Whether a part of each batch stays clean: the second loss is for whole batches."""
    return options.get("mix_share", 1.0) < 1


class GridMixTask(MixTask):
    """Adds the loss of a second classification layer on the cells of the last feature map.

    Args:
        model: The network to train.
        layer: Name of the submodule that gives the last feature map.
        patch_weight: Weight of the second loss.
        num_classes: Number of classes.
        **options: Options of `gridmix` and of `MixTask`.
    """

    def __init__(self, model: nn.Module, layer: str, patch_weight: float, num_classes: int, **options: Any) -> None:
        super().__init__(model, gridmix, **options)
        self.layer, self.patch_weight = layer, patch_weight
        channels = find_tap(model, len(stage_modules(model))).channels
        self.patch_head = nn.Conv2d(channels, num_classes, 1)

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        mixed = self.make_mixed(x, y, lam=None, index=None, generator=generator)
        losses = self.release(self.clean_term(x, y)) if self.one_hot_loss else {}
        maps: list[Tensor] = []
        layer = self.student.get_submodule(self.layer)
        handle = layer.register_forward_hook(lambda module, inputs, output: maps.append(output))
        try:
            logits = self.run_student(mixed.x, hooked=True)
        finally:
            handle.remove()
        z = to_feature_map(maps[0], mixed.x, self.layer, self.patch_head.in_channels)
        losses |= {
            "loss_mixed": self.loss(logits, mixed.target),
            "loss_patches": self.patch_weight * self.patch_loss(z, mixed),
        }
        return self.output(losses, logits, mixed.target)

    def patch_loss(self, z: Tensor, mixed: Mixed) -> Tensor:
        """Compute the loss on the labels of the cells.

        Args:
            z: The last feature map, ``(N, C, h, w)``.
            mixed: The mixed batch.

        Returns:
            The mean over all cells; where the map is coarser than the grid, of the mixed labels of its positions.
        """
        grid = self.options.get("grid") or CELLS
        cells = (min(grid, z.shape[2]), min(grid, z.shape[3]))
        logits = self.patch_head(F.adaptive_avg_pool2d(z, cells)).flatten(2).transpose(1, 2).flatten(0, 1)
        share = F.adaptive_avg_pool2d(mixed.mask, cells).flatten()
        count = cells[0] * cells[1]
        y_a, y_b = (labels.repeat_interleave(count, dim=0) for labels in (mixed.target.y_a, mixed.target.y_b))
        return self.loss(logits, MixedTarget(y_a, y_b, share, mixed.target.multi_label))

    def clean_step(self, x: Tensor, y: Tensor) -> StepOutput:
        out = super().clean_step(x, y)
        # DistributedDataParallel wants a gradient for every parameter in every step
        out["loss"] = out.loss + 0 * sum(parameter.sum() for parameter in self.patch_head.parameters())
        return out

    def param_groups(self, lr: float, **options: Any) -> list[dict[str, Any]]:
        head = {"name": "patch_head", "params": list(self.patch_head.parameters()), "lr": lr, **options}
        return [*super().param_groups(lr, **options), head]


class GridMix(MixTransform):
    """Fill each cell of a grid from an image or its partner (Baek et al., 2021).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        alpha: ``lam ~ Beta(alpha, alpha)``.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw `lam` for every sample instead of once for the batch.
        prob: Probability that a batch is mixed at all, in [0, 1]; 1 if not given.
        generator: Source of randomness; torch's default generator if not given.
        pairing: "random", or "other-class" for partners of another class, as far as the batch permits.
        grid: Cells per side, >= 1; 4, or 20 holes per side if not given.
        form: "cells" or "holes"; "cells" if not given.
        order: Numbers ``(N, grid, grid)`` that rank the cells; drawn if not given.
        objects_rule: "absolute" or "relative", for objects that are passed in the call; "absolute" if not given.
        objects_weight: Weight of the objects in the label, in [0, 1]; 1 if not given.
    """

    function = gridmix
