"""Blurs: functions of pixels in [0, 1] (N, 3, H, W), a generator and the strength, as all corruptions are."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.draws import draw_uniform
from automix.evaluation.corruptions.separable import gaussian_filter, mirror_index, zoom_center

MIN_WEIGHT = 1e-5  # smaller weights are left out: they change no pixel by half a level of 256


def gaussian_blur(x: Tensor, generator: torch.Generator, sigma: float) -> Tensor:
    """Blur with a Gaussian of `sigma` pixels."""
    return gaussian_filter(x, sigma)


# --- defocus ---------------------------------------------------------------------------------------------------------


def defocus_blur(x: Tensor, generator: torch.Generator, radius: float, softening: float) -> Tensor:
    """Blur with a disk, as a lens out of focus does."""
    return convolve(x, disk_kernel(radius, softening))


def disk_kernel(radius: float, softening: float) -> Tensor:
    """Create a disk whose edge is softened by a Gaussian of so many pixels, truncated at 3 x 3 or 5 x 5.

    As in the original the softening mirrors at the end of the grid, which disks of radius 8 or 10 touch: their sum is
    1.01, not 1.
    """
    reach = max(8, math.floor(radius))
    place = torch.arange(-reach, reach + 1, dtype=torch.float64)
    hard = (place**2 + place.unsqueeze(1) ** 2 <= radius**2).double()
    soft = torch.exp(-0.5 * (torch.arange(-1, 2) if radius <= 8 else torch.arange(-2, 3)).double() ** 2 / softening**2)
    soft = soft.outer(soft)
    kernel = convolve((hard / hard.sum()).view(1, 1, *hard.shape), soft / soft.sum())[0, 0]
    needed = int(kernel.any(dim=0).nonzero().max()) - reach  # columns right of the middle; the others are 0
    return kernel[reach - needed : reach + needed + 1, reach - needed : reach + needed + 1]


def convolve(images: Tensor, kernel: Tensor) -> Tensor:
    """Convolve each channel with a kernel of odd sides; the border is mirrored without repeating the edge (OpenCV)."""
    reach = kernel.shape[0] // 2
    height, width = images.shape[-2:]
    down, across = (mirror_index(torch.arange(-reach, n + reach), n, repeat_edge=False) for n in (height, width))
    padded = images[..., down.to(images.device), :][..., across.to(images.device)]
    out = F.conv2d(padded.reshape(-1, 1, *padded.shape[-2:]), kernel.to(images)[None, None])
    return out.view(images.shape)


# --- glass -----------------------------------------------------------------------------------------------------------


def glass_blur(x: Tensor, generator: torch.Generator, sigma: float, reach: int, rounds: int) -> Tensor:
    """Displace pixels by up to `reach`, between two Gaussian blurs.

    The original means to exchange pixels, but its numpy views make each exchange a copy: a pixel takes the color of
    another, and the other keeps it. The published files were made so, and this does the same.
    """
    height, width = x.shape[-2:]
    pixels = (gaussian_filter(x, sigma) * 255 + 1e-3).floor() / 255
    for _ in range(rounds):
        drawn = draw_uniform(x, (2, len(x), height, width), generator)
        down, across = (drawn * 2 * reach).long() - reach  # from -reach to reach - 1
        source = copy_sources(down, across, reach)
        pixels = pixels.flatten(2).gather(2, source.unsqueeze(1).expand(-1, 3, -1)).view(x.shape)
    return gaussian_filter(pixels, sigma)


def copy_sources(down: Tensor, across: Tensor, reach: int) -> Tensor:
    """Find the source of each pixel, (N, H * W), if pixels copy from (`down`, `across`) beside them in order.

    The order is from the last pixel to the first, of those at least `reach` from the border. A pixel that copies from
    one that was overwritten before gets its new color. All chains are followed at once, each step twice as far.
    """
    count, height, width = down.shape
    row, column = (torch.arange(n, device=down.device) for n in (height, width))
    moves = ((row > reach) & (row <= height - reach)).unsqueeze(1) & ((column > reach) & (column <= width - reach))
    own = (row.unsqueeze(1) * width + column).expand(count, -1, -1)
    source = torch.where(moves, own + down * width + across, own)
    source, overwritten = source.flatten(1), (source > own).flatten(1)
    while overwritten.any():
        onward = source.gather(1, source)
        overwritten, source = overwritten & overwritten.gather(1, source), torch.where(overwritten, onward, source)
    return source


# --- motion and zoom -------------------------------------------------------------------------------------------------


def motion_blur(x: Tensor, generator: torch.Generator, radius: float, sigma: float) -> Tensor:
    """Blur as ImageMagick does, in a random direction between -45 and 45 degrees."""
    angle = draw_uniform(x, (len(x),), generator) * 90 - 45
    return directional_blur(x, angle, radius, sigma)


def directional_blur(x: Tensor, degrees: Tensor, radius: float, sigma: float) -> Tensor:
    """Blur each image along its own angle, (N,), with half a Gaussian to one side (ImageMagick's motion blur).

    The kernel has 2 * radius + 1 pixels on a line, without interpolation. The border is repeated. The result is rounded
    to 256 levels.
    """
    height, width = x.shape[-2:]
    steps = torch.arange(2 * math.ceil(radius) + 1, device=x.device)
    weights = torch.exp(-(steps**2) / (2 * sigma**2))
    weights = weights / weights.sum()
    angle = degrees.double().deg2rad().unsqueeze(1)
    down, across = ((steps * ratio - 0.5).ceil().long() for ratio in (angle.sin(), angle.cos()))  # (N, steps)
    row, column = torch.arange(height, device=x.device), torch.arange(width, device=x.device)
    flat, smeared = x.flatten(2), torch.zeros_like(x)
    for step in (weights > MIN_WEIGHT).nonzero().flatten().tolist():
        rows = (row + down[:, step : step + 1]).clamp(0, height - 1)
        columns = (column + across[:, step : step + 1]).clamp(0, width - 1)
        place = (rows.unsqueeze(2) * width + columns.unsqueeze(1)).flatten(1)
        taken = flat.gather(2, place.unsqueeze(1).expand(-1, x.shape[1], -1)).view(x.shape)
        smeared.add_(taken, alpha=float(weights[step]))
    return (smeared * 255).round() / 255


def zoom_blur(x: Tensor, generator: torch.Generator, count: int, step: float) -> Tensor:
    """Average the image and `count` enlargements of its center, by 1, 1 + step, 1 + 2 step, ..."""
    total = x.clone()
    for number in range(count):
        total += zoom_center(x, 1 + number * step)
    return total / (count + 1)
