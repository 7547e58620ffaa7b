"""Water drops and mud on the lens, with the functions of OpenCV that the original uses."""

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.evaluation.corruptions.blur import convolve
from automix.evaluation.corruptions.noise import normal
from automix.evaluation.corruptions.separable import gaussian_filter

WATER = (175 / 255, 238 / 255, 238 / 255)  # pale turquoise
MUD = (63 / 255, 42 / 255, 20 / 255)
MAX_DISTANCE = 20  # px from an edge
RELIEF = ((-2, -1, 0), (-1, 1, 1), (0, 1, 2))  # light from the lower right
WEAK_EDGE, STRONG_EDGE = 50, 150  # of 255


def spatter(
    x: Tensor,
    generator: torch.Generator,
    mean: float,
    spread: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: int,
) -> Tensor:
    """Add drops where blurred noise exceeds the threshold: water that shines at its edges, or `mud` that covers.

    Distances to an edge are exact, those of OpenCV 2 % off. An image without a drop stays, the original divides by 0.
    """
    liquid = gaussian_filter(mean + spread * normal(x, (len(x), 1, *x.shape[-2:]), generator), sigma)
    if mud:
        cover = gaussian_filter((liquid > threshold).to(x), strength)
        cover = torch.where(cover < 0.8, 0, cover)
        return torch.lerp(x, _color(MUD, x), cover)
    depth = (torch.where(liquid < threshold, 0, liquid) * 255).floor() % 256  # as bytes, which start again after 255
    shine = depth * _relief(depth)
    brightest = shine.amax(dim=(2, 3), keepdim=True).clamp(min=1e-6)
    return x + strength * shine / brightest * _color(WATER, x)


def _relief(depth: Tensor) -> Tensor:
    """Shade drops of this depth (N, 1, H, W), values to 255, by the slope of the distance to an edge."""
    distance = distance_transform(canny_edges(depth))
    levels = equalize_histogram((box_blur(distance) + 1e-3).floor())
    lit = convolve(levels, torch.tensor(RELIEF)).clamp(0, 255)
    return box_blur(lit).round()


def box_blur(images: Tensor) -> Tensor:
    """Average 3 x 3 pixels."""
    return convolve(images, torch.full((3, 3), 1 / 9, dtype=torch.float64))


def canny_edges(depth: Tensor) -> Tensor:
    """Detect edges (Canny) of values 0 to 255, (N, 1, H, W) bool: strong ones, and weak ones connected to them."""
    padded = F.pad(depth, (1, 1, 1, 1), mode="replicate")
    sobel = torch.tensor([[-1.0, 0, 1], [-2, 0, 2], [-1, 0, 1]], device=depth.device)
    across, down = F.conv2d(padded, torch.stack([sobel, sobel.T]).unsqueeze(1)).split(1, dim=1)
    steepness = across.abs() + down.abs()
    weak = _non_maximum_suppression(steepness, across, down) & (steepness > WEAK_EDGE)
    found = weak & (steepness > STRONG_EDGE)
    while True:
        grown = weak & (F.max_pool2d(found.float(), 3, stride=1, padding=1) > 0)
        if torch.equal(grown, found):
            return found
        found = grown


def _non_maximum_suppression(steepness: Tensor, across: Tensor, down: Tensor) -> Tensor:
    """Keep pixels whose gradient is larger than on both sides of it: horizontally, vertically or diagonally."""
    padded = F.pad(steepness, (1, 1, 1, 1))
    height, width = steepness.shape[-2:]

    def beside(dy: int, dx: int) -> Tensor:
        return padded[..., 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    flat = down.abs() < across.abs() * 0.41421356  # tan 22.5
    steep = down.abs() > across.abs() * 2.41421356
    level = (steepness > beside(0, -1)) & (steepness >= beside(0, 1))
    upright = (steepness > beside(-1, 0)) & (steepness >= beside(1, 0))
    falling = (steepness > beside(-1, -1)) & (steepness > beside(1, 1))
    rising = (steepness > beside(-1, 1)) & (steepness > beside(1, -1))
    aslant = torch.where(across * down < 0, rising, falling)
    return torch.where(flat, level, torch.where(steep, upright, aslant))


def distance_transform(marked: Tensor) -> Tensor:
    """Compute the distance in pixels to the nearest `marked` pixel (N, 1, H, W), at most MAX_DISTANCE."""
    squares = torch.where(marked, 0.0, float(MAX_DISTANCE**2))
    for dim in (2, 3):
        reach = min(MAX_DISTANCE, squares.shape[dim] - 1)
        nearest = squares.clone()
        for step in range(1, reach + 1):
            size = squares.shape[dim] - step
            for here, there in ((0, step), (step, 0)):
                place = nearest.narrow(dim, here, size)
                place.copy_(torch.minimum(place, squares.narrow(dim, there, size) + step**2))
        squares = nearest
    return squares.sqrt()


def equalize_histogram(levels: Tensor) -> Tensor:
    """Equalize the histogram of whole values 0 to 255 (N, 1, H, W) as OpenCV does: the smallest one becomes 0."""
    value = levels.long().flatten(1)
    counts = value.new_zeros(len(value), 256).scatter_add_(1, value, torch.ones_like(value))
    smallest = counts.gather(1, value.amin(dim=1, keepdim=True))
    others = value.shape[1] - smallest
    table = ((counts.cumsum(dim=1) - smallest) * 255 / others.clamp(min=1)).round()
    return torch.where(others > 0, table.gather(1, value), value).view(levels.shape).to(levels)


def _color(color: tuple[float, float, float], x: Tensor) -> Tensor:
    return torch.tensor(color, device=x.device, dtype=x.dtype).view(3, 1, 1)
