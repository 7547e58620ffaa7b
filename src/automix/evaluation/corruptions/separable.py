"""Separable filters and resizing as matrices that act on rows and on columns of pixels.

A matrix (out, in) can contain any border rule, and a batch of images is one product.
"""

import math

import torch
from torch import Tensor


def apply_separable(images: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Apply `rows` (H', H) and `columns` (W', W) to images (..., H, W)."""
    return rows.to(images) @ (images @ columns.to(images).T)


def gaussian_filter(images: Tensor, sigma: float, *, mirror: bool = False, truncate: float = 4.0) -> Tensor:
    """Blur as scipy's gaussian_filter and skimage.filters.gaussian do; the border is repeated, or mirrored."""
    rows, columns = (gaussian_matrix(size, sigma, mirror, truncate) for size in images.shape[-2:])
    return apply_separable(images, rows, columns)


def gaussian_matrix(size: int, sigma: float, mirror: bool = False, truncate: float = 4.0) -> Tensor:
    """Create the matrix (size, size) of a Gaussian blur."""
    radius = int(truncate * sigma + 0.5)
    if radius == 0:
        return torch.eye(size)
    reach = torch.arange(-radius, radius + 1)
    weights = torch.exp(-0.5 * (reach / sigma) ** 2)
    places = torch.arange(size).unsqueeze(1) + reach
    places = mirror_index(places, size, repeat_edge=True) if mirror else places.clamp(0, size - 1)
    return torch.zeros(size, size).scatter_add_(1, places, (weights / weights.sum()).expand(size, -1))


def zoom_center(images: Tensor, factor: float) -> Tensor:
    """Enlarge the center of the images by `factor` and keep their size, as scipy's zoom does with order 1.

    The original assumes square images; here each side has its own center.
    """
    rows, columns = (zoom_matrix(size, factor) for size in images.shape[-2:])
    return apply_separable(images, rows, columns)


def zoom_matrix(size: int, factor: float) -> Tensor:
    """Create the matrix (size, size) of `zoom_center`."""
    middle = math.ceil(size / factor)
    enlarged = round(middle * factor)  # a little more than `size`: the rest is trimmed off
    trimmed = torch.arange(size) + (enlarged - size) // 2
    places = (size - middle) // 2 + trimmed * ((middle - 1) / max(enlarged - 1, 1))  # ends come to lie on ends
    left = places.floor().long().clamp(max=size - 2)
    share = (places - left).unsqueeze(1)
    at = torch.zeros(size, size)
    at.scatter_add_(1, left.unsqueeze(1), 1 - share).scatter_add_(1, left.unsqueeze(1) + 1, share)
    return at


def box_matrix(size: int, new_size: int) -> Tensor:
    """Create the matrix (new_size, size) of Pillow's BOX filter: means of the pixels whose centers lie in a new one."""
    scale = size / new_size
    center = (torch.arange(new_size, dtype=torch.float64) + 0.5) * scale
    # Centers often lie exactly on the edge of a new pixel, where rounding must decide as it does in Pillow.
    place, half, center = torch.arange(size), max(scale, 1) / 2, center.unsqueeze(1)
    distance = (place - center + 0.5) * (1 / max(scale, 1))
    within = (place >= (center - half + 0.5).floor()) & (place < (center + half + 0.5).floor())
    inside = (within & (distance > -0.5) & (distance <= 0.5)).float()
    return inside / inside.sum(dim=1, keepdim=True)


def mirror_index(places: Tensor, size: int, *, repeat_edge: bool) -> Tensor:
    """Map positions beyond the border to positions inside: c b a | a b c (`repeat_edge`), or c b | a b c."""
    if repeat_edge:
        places = places % (2 * size)
        return torch.minimum(places, 2 * size - 1 - places)
    places = places % (2 * size - 2)
    return torch.minimum(places, 2 * size - 2 - places)
