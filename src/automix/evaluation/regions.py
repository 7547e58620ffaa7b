"""Boxes of the connected regions of a map above a threshold, for all 255 thresholds at once.

A map in [0, 1] is rounded down to 8 bits. At threshold t the pixels above t form connected regions (corners connect),
each with a smallest box; boxes are x0 y0 x1 y1 with x1 and y1 exclusive.
"""

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

LEVELS = 255  # thresholds: pixels of values 0 to 255 are above threshold 0, 1, ... or 254
CHUNK_PIXELS = 2**18  # processed together, to bound the memory


def best_ious(maps: Tensor, boxes: Tensor) -> Tensor:
    """Find how well the best region of each map fits the true box, at every threshold.

    Args:
        maps: ``(N, H, W)`` in [0, 1].
        boxes: The true boxes, ``(N, 4)``.

    Returns:
        Intersections over union, ``(N, 255)``.
    """
    return best_boxes(maps, boxes)[0]


def best_boxes(maps: Tensor, boxes: Tensor) -> tuple[Tensor, Tensor]:
    """Find the best region of each map and its box, at every threshold.

    Args:
        maps: ``(N, H, W)`` in [0, 1].
        boxes: The true boxes, ``(N, 4)``.

    Returns:
        `best_ious` ``(N, 255)`` and the boxes that reach them ``(N, 255, 4)``; both are 0 where there is no region.
    """
    count = max(1, CHUNK_PIXELS // maps[0].numel())
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
    """Compute the intersection over union of boxes (..., 4); 0 for boxes without area."""
    low, high = torch.maximum(first[..., :2], second[..., :2]), torch.minimum(first[..., 2:], second[..., 2:])
    shared = (high - low).clamp(min=0).prod(dim=-1)
    areas = [(box[..., 2:] - box[..., :2]).clamp(min=0).prod(dim=-1) for box in (first, second)]
    union = areas[0] + areas[1] - shared
    return torch.where(union > 0, shared / union.clamp(min=1e-12), 0.0)


def region_boxes(maps: Tensor) -> tuple[Tensor, Tensor]:
    """Find the boxes of all regions at all 255 thresholds.

    Every pixel climbs to its highest neighbor until it stands on a peak; pixels above a threshold that reach the same
    peak are connected. Then hills are joined, from the highest pass between two of them down, which takes few steps on
    smooth maps. A row of the result follows one hill from the top down: its box is 0 0 0 0 at thresholds where the
    hill has no pixel or belongs to another hill's region.

    Args:
        maps: ``(N, H, W)`` in [0, 1].

    Returns:
        Boxes of R hills ``(R, 255, 4)``, and the map that each hill belongs to ``(R,)``.
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
    # Ranks instead of heights: no two are equal, so no path is a circle. float64 holds them exactly.
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
    shifts = ((0, 1), (1, 0), (1, 1), (1, -1))  # the other four of the 8 neighbors are these from the other side
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
    """Below each pass two hills are one region: it becomes the first hill's, and the second has no box there."""
    parent = list(range(len(edges)))

    def find(hill: int) -> int:
        while parent[hill] != hill:
            parent[hill] = parent[parent[hill]]
            hill = parent[hill]
        return hill

    for first, second, height in zip(firsts, seconds, heights, strict=True):
        one, other = find(first), find(second)
        if one != other:
            below = edges[one, :, :height]  # thresholds 0 to height - 1: both sides of the pass are above them
            np.maximum(below, edges[other, :, :height], out=below)
            edges[other, :, :height] = -(2**15)
            parent[other] = one
