"""RoIAlign (He et al., Mask R-CNN, 2017) by `grid_sample`, for installations that lack torchvision's native operator.

Each region is cut into bins, each bin is sampled bilinearly at a regular grid of points, and the samples of a bin are
averaged. All points of a region form one regular grid, so that the regions of an image are sampled by one call.

torchvision's own Python version does the same and needs a compiler, or without one memory for every sample's four
neighbors in every channel. `torchvision.py` beside this file puts this one in its place where the native operator is
missing, hence the signature. Both take the border's value beyond the border; the native operator gives 0 further out
than one pixel, where no box that was clipped to its image has points.
"""

import torch
import torch.nn.functional as F
from torch import Tensor


def roi_align(
    input: Tensor,
    rois: Tensor,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Sample regions of maps into a grid of bins.

    Args:
        input: Maps, ``(N, C, H, W)``.
        rois: Regions, ``(K, 5)``: the number of the image, then x0 y0 x1 y1.
        spatial_scale: Factor from the coordinates of the regions to those of the maps.
        pooled_height: Bins of a region from top to bottom.
        pooled_width: Bins of a region from left to right.
        sampling_ratio: Points of a bin in each direction; if not positive, about one for each pixel of the map, so
            that regions differ.
        aligned: Place the center of a pixel at half a pixel, as the boxes do.

    Returns:
        The mean of each bin, ``(K, C, pooled_height, pooled_width)``.
    """
    # grid_sample needs one type for both, and half precision is too coarse for coordinates
    maps = input if input.dtype == torch.float64 else input.float()
    boxes = rois[:, 1:].to(maps) * spatial_scale - (0.5 if aligned else 0.0)
    corners, sides = boxes[:, :2], boxes[:, 2:] - boxes[:, :2]
    if not aligned:
        sides = sides.clamp(min=1)
    bins = torch.tensor([pooled_width, pooled_height], device=maps.device)
    points = torch.full_like(sides, sampling_ratio) if sampling_ratio > 0 else (sides / bins).ceil().clamp(min=0)

    # regions of one image with equally many points go together
    alike, group_of = torch.cat([rois[:, :1].long(), points.long()], dim=1).unique(dim=0, return_inverse=True)
    pooled = [maps.new_zeros(0, maps.shape[1], pooled_height, pooled_width)]
    for group, (image, across, down) in enumerate(alike.tolist()):
        chosen = group_of == group
        if across == 0 or down == 0:  # a region without extent
            pooled.append(maps.new_zeros(int(chosen.sum()), *pooled[0].shape[1:]))
            continue
        grid = _grid(corners[chosen], sides[chosen], (pooled_width * across, pooled_height * down), maps.shape[-2:])
        sampled = F.grid_sample(maps[image : image + 1], grid, padding_mode="border", align_corners=False)
        means = F.avg_pool2d(sampled, (down, across)).squeeze(0)
        pooled.append(means.unflatten(1, (-1, pooled_height)).transpose(0, 1))
    return torch.cat(pooled)[group_of.argsort(stable=True).argsort()].to(input.dtype)


def _grid(corners: Tensor, sides: Tensor, points: tuple[int, int], shape: torch.Size) -> Tensor:
    """The points of each region, regions below each other, as grid_sample counts: the map spans -1 to 1."""
    height, width = shape
    steps = [(torch.arange(count).to(sides) + 0.5) / count for count in points]
    x = (2 * (corners[:, :1] + sides[:, :1] * steps[0]) + 1) / width - 1
    y = (2 * (corners[:, 1:] + sides[:, 1:] * steps[1]) + 1) / height - 1
    grid = torch.stack([x.unsqueeze(1).expand(-1, points[1], -1), y.unsqueeze(2).expand(-1, -1, points[0])], dim=-1)
    return grid.flatten(0, 1).unsqueeze(0)
