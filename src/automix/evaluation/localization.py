"""Where the object is, asked of a classifier: MaxBoxAccV2 of its class activation maps (Choe et al., 2020).

The map of the TRUE class is enlarged to the image (bicubic), scaled to [0, 1] by its own extremes and rounded down to
8 bits. At threshold t, the pixels above t form connected regions (corners connect), and each region has a smallest
box. With the true box B, its image counts as found where the best of these boxes reaches an intersection over union:

    BoxAcc(t, d) = share of images with max over regions R of IoU(box(R), B) >= d
    MaxBoxAccV2  = mean over d in 0.3, 0.5, 0.7 of (max over t of BoxAcc(t, d))

The best threshold is chosen on the images that are evaluated, for each d by itself: this says how well the maps COULD
localize. Classification plays no part in it, as the class is given. `top1_loc` beside it does ask for both: the
most probable class is the true one, and an IoU of 0.5 is reached at the best threshold for 0.5.

Beside the authors' code: enlarging, scaling and 8 bits are theirs, and their 1,000 thresholds fall onto the 255 used
here (t / 255 for t from 0 to 254). Three things differ by a hair. They also try boxes around holes in a region. Their
boxes of regions that do not touch the border are one pixel wider and higher, ours are exact. They squeeze images into a
square, here the center is cut out, and a box that is cut away entirely is left out.

All thresholds come from one look at each map, see `region_boxes`.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from automix.core.accuracy import topk_correct
from automix.core.validation import check_choice, check_whole
from automix.data.image_set import ImageSet
from automix.evaluation.cam import METHODS, class_maps, resize_maps
from automix.evaluation.cam_panels import Tile, draw_boxes, overlay_maps, tile_grid, to_images, to_tile_size
from automix.evaluation.plots import BLUE, GREEN, ORANGE, as_image, new_figure
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples, to_float
from automix.networks.modes import eval_mode

DELTAS = (0.3, 0.5, 0.7)
LEVELS = 255  # thresholds: pixels of values 0 to 255 are above threshold 0, 1, ... or 254
PIXELS = 2**18  # looked at together, to bound the memory
SHOWN = 8  # images in the panel
TRUE_BOX, FOUND_BOX = "#20d040", "#ff3030"


def evaluate_localization(
    model: nn.Module,
    samples: Samples,
    *,
    method: str = "cam",
    layer: int | str = 4,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> EvaluationResult:
    """MaxBoxAccV2 (`max_box_acc`, percent), its three parts, and the top-1 localization accuracy.

    `method` is "cam", or "grad_cam" at `layer` for networks that have no CAM (see evaluation/cam.py).
    """
    check_choice("method", method, METHODS)
    check_whole("batch_size", batch_size, 1)
    if not samples.has_boxes:
        raise ValueError("these images have no boxes: accepted are datasets with boxes: cub200, tiny-imagenet, shapes")
    _check_answer(model, samples)
    look = partial(_look, model, method=method, layer=layer)
    counts = _Counts()
    total = math.ceil(len(samples) / batch_size)
    for part in track(samples.parts(batch_size), total, "localization"):
        seen = look(part)
        if len(seen.boxes):
            counts.add(best_ious(seen.maps, seen.boxes), seen.right)
        counts.left_out += len(part) - len(seen.boxes)
    if counts.images == 0:
        raise ValueError("no box is inside its image: accepted are images that show a part of their boxes")
    examples = look(next(samples.first(SHOWN).parts(SHOWN)))
    pictures: dict[str, Callable[[], Image.Image]] = {"localization_curve": partial(draw_curve, counts.accuracy())}
    if len(examples.boxes):
        level = int(counts.accuracy()[1].argmax())
        pictures["localization_panel"] = partial(draw_panel, examples, samples.classes, level)
    return EvaluationResult(counts.values(), pictures, counts.notes())


# --- from maps to boxes ----------------------------------------------------------------------------------------------


def best_ious(maps: Tensor, boxes: Tensor) -> Tensor:
    """For maps (N, H, W) in [0, 1] and true boxes (N, 4): the best region's IoU at each threshold, (N, 255)."""
    return best_boxes(maps, boxes)[0]


def best_boxes(maps: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """`best_ious` (N, 255), and the boxes that reach them (N, 255, 4); where there is no region, 0 and 0 0 0 0."""
    count = max(1, PIXELS // maps[0].numel())
    parts = [_best_boxes(*pair) for pair in zip(maps.split(count), boxes.split(count), strict=True)]
    return torch.cat([ious for ious, _ in parts]), torch.cat([found for _, found in parts])


def _best_boxes(maps: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    regions, owner = region_boxes(maps)
    ious = box_iou(regions, boxes.cpu().float()[owner].unsqueeze(1))  # (regions, 255)
    best = ious.new_zeros(len(maps), LEVELS)
    best.scatter_reduce_(0, owner.unsqueeze(1).expand_as(ious), ious, "amax")
    found = regions.new_zeros(len(maps), LEVELS, 4)
    region, level = ((ious == best[owner]) & (ious > 0)).nonzero(as_tuple=True)
    found[owner[region], level] = regions[region, level]
    return best, found


def box_iou(first: Tensor, second: Tensor) -> Tensor:
    """Intersection over union of boxes (..., 4), x0 y0 x1 y1 with x1 and y1 exclusive; 0 for a box without area."""
    low, high = torch.maximum(first[..., :2], second[..., :2]), torch.minimum(first[..., 2:], second[..., 2:])
    shared = (high - low).clamp(min=0).prod(dim=-1)
    areas = [(box[..., 2:] - box[..., :2]).clamp(min=0).prod(dim=-1) for box in (first, second)]
    union = areas[0] + areas[1] - shared
    return torch.where(union > 0, shared / union.clamp(min=1e-12), 0.0)


def region_boxes(maps: Tensor) -> tuple[Tensor, Tensor]:
    """The boxes of all regions of maps (N, H, W) in [0, 1] at all 255 thresholds: (R, 255, 4), and whose they are (R,).

    A row follows one hill from the top down: at thresholds where it has no pixel, or where it is part of another
    hill's region, its box is 0 0 0 0. Every pixel climbs to its highest neighbor until it stands on a peak; those
    above a threshold that reach the same peak hang together. What is left is to join hills, from the highest pass
    between two of them down: few steps on maps as smooth as these.
    """
    heights = maps.detach().cpu().float()
    levels = (heights * 255).long().clamp(0, 255)
    peaks = _peaks(heights)
    kept, hill = torch.unique(torch.where(levels > 0, peaks, -1), return_inverse=True)  # level 0 is above no threshold
    if kept[0] == -1:
        kept, hill = kept[1:], hill - 1
    edges = _hill_edges(hill, levels, len(kept))
    _join(edges, *_passes(hill, levels))
    boxes = torch.from_numpy(edges).permute(0, 2, 1).float()
    boxes[..., :2] *= -1
    empty = boxes[..., 2] <= 0
    return boxes.masked_fill(empty.unsqueeze(-1), 0.0), kept // maps[0].numel()


def _peaks(heights: Tensor) -> Tensor:
    """For each pixel the peak, as a position in the flat tensor, to which it climbs by its highest neighbors."""
    count, rows, columns = heights.shape
    # Ranks in place of heights: no two are equal, so that nobody climbs in circles. float64 holds them exactly.
    rank = heights.flatten(1).argsort(dim=1, stable=True).argsort(dim=1).view_as(heights)
    _, highest = F.max_pool2d(rank.double(), 3, stride=1, padding=1, return_indices=True)
    start = torch.arange(count).view(-1, 1, 1) * (rows * columns)
    climbed = (highest + start).flatten()
    while not torch.equal(further := climbed[climbed], climbed):
        climbed = further
    return climbed.view_as(heights)


def _hill_edges(hill: Tensor, levels: Tensor, hills: int) -> NDArray[np.int16]:
    """(hills, 4, 255): -x0, -y0, x1, y1 of each hill's pixels above each threshold; so written, they grow by maxima."""
    rows, columns = hill.shape[1:]
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    inside = hill >= 0
    # A pixel of level v is above thresholds 0 to v - 1: it is entered at v - 1, and the accumulation takes it down.
    place = (hill * 4 * LEVELS + levels - 1)[inside]
    none = -max(rows, columns) - 1
    edges = torch.full((hills * 4 * LEVELS,), none, dtype=torch.int32)
    for number, coordinate in enumerate((-x, -y, x + 1, y + 1)):
        values = coordinate.to(torch.int32).expand_as(hill)[inside]
        edges.scatter_reduce_(0, place + number * LEVELS, values, "amax")
    table = edges.numpy().reshape(hills, 4, LEVELS)
    return np.maximum.accumulate(table[:, :, ::-1], axis=2)[:, :, ::-1].astype(np.int16)


def _passes(hill: Tensor, levels: Tensor) -> tuple[list[int], list[int], list[int]]:
    """Neighboring hills, and the level of the highest pass between them, from the highest to the lowest."""
    shifts = ((0, 1), (1, 0), (1, 1), (1, -1))  # of the 8 neighbors the other four are seen from the other side
    pairs, heights = [], []
    for down, right in shifts:
        one, other = _neighbors(hill, down, right)
        height = torch.minimum(*_neighbors(levels, down, right))
        border = (one != other) & (height > 0)
        one, other = one[border], other[border]
        pairs.append(torch.minimum(one, other) << 32 | torch.maximum(one, other))
        heights.append(height[border])
    pair, which = torch.unique(torch.cat(pairs), return_inverse=True)
    highest = torch.zeros(len(pair), dtype=torch.long).scatter_reduce_(0, which, torch.cat(heights), "amax")
    order = highest.argsort(descending=True)
    pair = pair[order]
    return (pair >> 32).tolist(), (pair & 0xFFFFFFFF).tolist(), highest[order].tolist()


def _neighbors(values: Tensor, down: int, right: int) -> tuple[Tensor, Tensor]:
    """Each pixel (N, H, W) that has a neighbor so far down and right, and that neighbor."""
    height, width = values.shape[1:]
    columns = (slice(0, width - right), slice(right, width)) if right >= 0 else (slice(1, width), slice(0, width - 1))
    return values[:, : height - down, columns[0]], values[:, down:, columns[1]]


def _join(edges: NDArray[np.int16], firsts: list[int], seconds: list[int], heights: list[int]) -> None:
    """Below each pass the two hills are one region: the first takes it over, the second has no box of its own there."""
    leader = list(range(len(edges)))

    def lead(hill: int) -> int:
        while leader[hill] != hill:
            leader[hill] = leader[leader[hill]]
            hill = leader[hill]
        return hill

    for first, second, height in zip(firsts, seconds, heights, strict=True):
        one, other = lead(first), lead(second)
        if one != other:
            below = edges[one, :, :height]  # thresholds 0 to height - 1: both sides of the pass are above them
            np.maximum(below, edges[other, :, :height], out=below)
            edges[other, :, :height] = -(2**15)
            leader[other] = one


# --- one pass over the images ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Seen:
    """Images (uint8) with a box to find, their maps (N, H, W) in [0, 1], and whether the classifier is right."""

    images: Tensor
    labels: Tensor
    boxes: Tensor
    maps: Tensor
    right: Tensor


def _check_answer(model: nn.Module, samples: Samples) -> None:
    """One image, before all the others: does the model know these classes?"""
    x, _ = next(iter(samples.batches(1, next(model.parameters()).device)))
    with eval_mode(model), torch.no_grad():
        answer = model(x)
    if answer.shape != (1, len(samples.classes)):
        raise ValueError(
            f"the model gives {answer.shape[-1]} numbers: accepted are {len(samples.classes)}, the classes"
        )


def _look(model: nn.Module, part: ImageSet, method: str, layer: int | str) -> Seen:
    """The images of `part` whose box has an area, as the model sees them."""
    if part.boxes is None:
        raise ValueError("a part of these images has no boxes: accepted are boxes for all of them")
    there = (part.boxes[:, 2:] > part.boxes[:, :2]).all(dim=1)
    images, labels, boxes = part.images[there], part.labels[there], part.boxes[there]
    if len(images) == 0:
        return Seen(images, labels, boxes, images[:, 0].float(), labels.bool())
    x = to_float(images, next(model.parameters()).device)
    maps, logits = class_maps(model, x, labels.unsqueeze(1), method, layer)
    right = topk_correct(logits.cpu(), labels)[0]
    return Seen(images, labels, boxes, resize_maps(maps[:, 0], (x.shape[2], x.shape[3])).cpu(), right)


class _Counts:
    """How many images are found at each threshold."""

    def __init__(self) -> None:
        self.images = self.left_out = 0
        self.found = torch.zeros(len(DELTAS), LEVELS, dtype=torch.long)
        self.found_and_right = torch.zeros(LEVELS, dtype=torch.long)

    def add(self, ious: Tensor, right: Tensor) -> None:
        found = torch.stack([ious >= delta for delta in DELTAS])
        self.images += len(ious)
        self.found += found.sum(dim=1)
        self.found_and_right += (found[1] & right.unsqueeze(1)).sum(dim=0)

    def accuracy(self) -> Tensor:
        """Percent, (3, 255)."""
        return 100 * self.found.double() / self.images

    def values(self) -> dict[str, float]:
        best = self.accuracy().amax(dim=1)
        right = self.found_and_right[self.found[1].argmax()]
        parts = {f"max_box_acc_{round(100 * delta)}": float(acc) for delta, acc in zip(DELTAS, best, strict=True)}
        return {"max_box_acc": float(best.mean()), **parts, "top1_loc": 100 * float(right) / self.images}

    def notes(self) -> tuple[str, ...]:
        best = self.accuracy().argmax(dim=1) / LEVELS
        named = ", ".join(f"{t:.2f} for IoU {delta}" for t, delta in zip(best.tolist(), DELTAS, strict=True))
        notes = [f"maps of the true class, best thresholds chosen on these {self.images} images: {named}"]
        if self.left_out:
            total = self.images + self.left_out
            notes.append(f"left out: {self.left_out} of {total} images, whose boxes the crop cuts away")
        return tuple(notes)


# --- pictures --------------------------------------------------------------------------------------------------------


def draw_curve(accuracy: Tensor) -> Image.Image:
    """Accuracy (3, 255) over the threshold, the best ones marked."""
    figure, axes = new_figure(6.2, 3.8)
    thresholds = torch.arange(LEVELS) / LEVELS
    for curve, delta, color in zip(accuracy, DELTAS, (BLUE, ORANGE, GREEN), strict=True):
        best = int(curve.argmax())
        axes.plot(thresholds, curve, color=color, label=f"IoU >= {delta}: {curve[best]:.1f} % at {best / LEVELS:.2f}")
        axes.plot(thresholds[best], curve[best], "o", color=color, markersize=5)
    axes.set(xlim=(0, 1), ylim=(0, 100), xlabel="threshold on the map", ylabel="boxes found, %")
    axes.set_title(f"MaxBoxAccV2 {accuracy.amax(dim=1).mean():.1f} %", fontsize=11)
    axes.grid(alpha=0.25)
    figure.legend(fontsize=8, ncols=3, loc="outside lower center", frameon=False)  # the curves fill the axes
    return as_image(figure)


def draw_panel(seen: Seen, classes: tuple[str, ...], level: int) -> Image.Image:
    """Images and their heat maps, the true box in green, the best one found at threshold `level` / 255 in red."""
    ious, found = (tensor[:, level] for tensor in best_boxes(seen.maps, seen.boxes))
    images, scale = to_tile_size(seen.images)
    plain, hot = to_images(images), to_images(overlay_maps(images, seen.maps))
    rows: list[list[Tile]] = [[], []]
    for number, label in enumerate(seen.labels.tolist()):
        true, best = (seen.boxes[number] * scale, TRUE_BOX), (found[number] * scale, FOUND_BOX)
        rows[0].append(Tile(draw_boxes(plain[number], [true]), classes[label]))
        rows[1].append(Tile(draw_boxes(hot[number], [true, best]), f"IoU {ious[number]:.2f}"))
    note = f"green: the true box; red: the box found at threshold {level / LEVELS:.2f}, the best for IoU 0.5"
    return tile_grid(rows, ["image", "map of\nits class"], note=note)
