"""PixMix (Hendrycks et al., CVPR 2022): images mixed with structured pictures, fractals above all; labels stay clean.

An image, augmented in every other case, goes through 0 to `k` rounds. In each it is mixed with an augmented copy of
itself or with the picture it drew from a mixing set, by adding or by multiplying, and clipped to [0, 1]:

    add         ((2 x - 1) a + (2 p - 1) b + 1) / 2
    multiply    (2 x)^a (2 p)^b / 2
    a ~ Beta(beta, 1), b ~ Beta(1, beta)    or    a = 1 + Beta(1, beta), b = -Beta(1, beta)

There is no second image and no second label: every image keeps its own. For robustness (corruptions, calibration,
anomalies) at little cost in accuracy. The authors' mixing set is a download; ours is drawn (fractals.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from automix.core.blend import as_map, full_mask
from automix.core.draws import draw_uniform
from automix.core.target import Mixed, MixedTarget
from automix.core.transform import MixTransform
from automix.core.validation import as_lam, check_batch, check_index, check_whole
from automix.methods._shared.fractals import fractals
from automix.methods._shared.pixels import Operations, augment, draw_operations, pixel_range


@dataclass(frozen=True)
class PixMixDraws:
    """All that chance decides for N images in k rounds; tensors on the CPU.

    `rounds` (N,) is how many each image takes. `start` (N,) and `copy` (N, k) are the operations on the image at the
    beginning and on its copy in each round; a copy with NOTHING stands for the picture. `multiply` (N, k) says which
    mixing, `a` and `b` (N, k) how much of both. `picture`, `top` and `left` (N,) are which picture and where it is cut.
    """

    rounds: Tensor
    start: Operations
    copy: Operations
    multiply: Tensor
    a: Tensor
    b: Tensor
    picture: Tensor
    top: Tensor
    left: Tensor


def pixmix(
    x: Tensor,
    y: Tensor,
    beta: float = 3.0,
    *,
    k: int = 4,
    severity: float = 3.0,
    pictures: Tensor | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    draws: PixMixDraws | None = None,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix images `x` with pictures; `draws` come from `generator` unless given. Labels and mask stay those of `x`.

    `pictures` (P, C, h, w) in [0, 1], at least as large as the images, replace the fractals. `mean` and `std` are what
    `x` was normalized by; without them pixels are told from the range of the batch (pixels.py). Nobody is paired: `lam`
    = 1 gives an image back as it is, any other lam and `index` change nothing.
    """
    check_batch(x, y)
    if not 0 < beta < math.inf:
        raise ValueError(f"beta={beta}: accepted is a number > 0")
    check_whole("k", k, 0)
    scale = pixel_range(x, mean, std)
    pixels = scale.to_pixels(x)
    mixing_set = _mixing_set(pixels) if pictures is None else _own_pictures(pictures, pixels)
    if draws is None:
        draws = _draw(pixels, mixing_set, beta, k, severity, generator)
    mixed = scale.from_pixels(_mix(pixels, mixing_set, draws), like=x)
    if index is not None:
        check_index(index, len(x))
    if lam is not None:
        mixed = torch.where(as_map(as_lam(lam, len(x)).to(x.device) == 1), x, mixed)
    return Mixed(mixed, MixedTarget.clean(y), full_mask(x.new_ones(1, 1, 1, 1), x))


def _draw(
    pixels: Tensor, pictures: Tensor, beta: float, k: int, severity: float, generator: torch.Generator | None
) -> PixMixDraws:
    count = len(pixels)

    def uniform(*shape: int) -> Tensor:
        return draw_uniform(torch.empty(0), shape, generator)

    def whole(below: int) -> Tensor:
        return (uniform(count) * below).long()

    def beta_one() -> Tensor:
        """Beta(beta, 1), by the inverse of its distribution function; one minus it is Beta(1, beta)."""
        return uniform(count, k) ** (1 / beta)

    rounds = whole(k + 1)
    start = draw_operations((count,), severity, generator).where(uniform(count) < 0.5)
    copy = draw_operations((count, k), severity, generator).where(uniform(count, k) < 0.5)
    multiply, average = uniform(count, k) < 0.5, uniform(count, k) < 0.5
    first, second = beta_one(), 1 - beta_one()
    a, b = torch.where(average, first, 2 - first), torch.where(average, second, -second)
    (height, width), (high, wide) = pixels.shape[-2:], pictures.shape[-2:]
    picture, top, left = whole(len(pictures)), whole(high - height + 1), whole(wide - width + 1)
    return PixMixDraws(rounds, start, copy, multiply, a, b, picture, top, left)


def _mix(pixels: Tensor, pictures: Tensor, draws: PixMixDraws) -> Tensor:
    picture = _cut(pictures, draws, pixels.shape)
    mixed = augment(pixels, draws.start)
    for number in range(draws.a.shape[1]):
        takes_part = draws.rounds > number
        copy = draws.copy[:, number].where(takes_part)
        from_picture = as_map(copy.kind < 0).to(pixels.device)
        other = torch.where(from_picture, picture, augment(pixels, copy))
        for mixing, chosen in ((add, ~draws.multiply[:, number]), (multiply, draws.multiply[:, number])):
            which = (chosen & takes_part).nonzero().squeeze(1)
            a, b = (as_map(share[which, number]).to(pixels) for share in (draws.a, draws.b))
            which = which.to(pixels.device)
            mixed[which] = mixing(mixed[which], other[which], a, b).clamp(0, 1)
    return mixed


def add(x: Tensor, picture: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The sum, gray being 0."""
    return (a * (2 * x - 1) + b * (2 * picture - 1) + 1) / 2


def multiply(x: Tensor, picture: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The product of powers, gray being 1; black in the picture is kept from an infinite negative power."""
    return (2 * x) ** a * (2 * picture).clamp(min=1e-37) ** b / 2


def _mixing_set(pixels: Tensor) -> Tensor:
    """Fractals one eighth larger than the images, for a random crop as in the original (36 px for 32)."""
    channels, height, width = pixels.shape[1:]
    return fractals(height + -(-height // 8), width + -(-width // 8), channels, pixels.device, pixels.dtype)


def _own_pictures(pictures: Tensor, pixels: Tensor) -> Tensor:
    channels, height, width = pixels.shape[1:]
    fits = pictures.ndim == 4 and pictures.is_floating_point() and len(pictures) and pictures.shape[1] == channels
    if not (fits and pictures.shape[2] >= height and pictures.shape[3] >= width):
        raise ValueError(
            f"pictures have shape {tuple(pictures.shape)} and type {pictures.dtype}: accepted are (P, {channels}, h, w)"
            f" of a floating type in [0, 1], {height} x {width} px or larger"
        )
    return pictures.to(pixels)


def _cut(pictures: Tensor, draws: PixMixDraws, shape: torch.Size) -> Tensor:
    """Each image's own picture, cut to its size at its own place, in one look-up."""
    _, channels, height, width = shape
    picture, top, left = (drawn.to(pictures.device) for drawn in (draws.picture, draws.top, draws.left))
    rows = top.view(-1, 1) + torch.arange(height, device=pictures.device)
    columns = left.view(-1, 1) + torch.arange(width, device=pictures.device)
    channel = torch.arange(channels, device=pictures.device).view(1, -1, 1, 1)
    return pictures[picture.view(-1, 1, 1, 1), channel, rows[:, None, :, None], columns[:, None, None, :]]


class PixMix(MixTransform):
    """``x, soft = PixMix(beta=3.0, num_classes=100)(x, y)``"""

    function = pixmix

    def __init__(self, beta: float = 3.0, num_classes: int | None = None, **options: Any) -> None:
        super().__init__(num_classes=num_classes, beta=beta, **options)
