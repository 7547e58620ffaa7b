"""PixMix (Hendrycks et al., 2022): images are mixed with fractals; labels stay as they are.

An image, augmented in every other case, goes through 0 to `k` rounds. In each it is mixed with an augmented copy of
itself or with the picture it drew from a mixing set, by adding or by multiplying, and clipped to [0, 1]:

    add         ((2 x - 1) a + (2 p - 1) b + 1) / 2
    multiply    (2 x)^a (2 p)^b / 2
    a ~ Beta(beta, 1), b ~ Beta(1, beta)    or    a = 1 + Beta(1, beta), b = -Beta(1, beta)

There is no second image and no second label. For robustness (corruptions, calibration, anomalies) at little cost in
accuracy. The authors' mixing set is a download; ours is generated (_shared/fractals.py). `pictures` takes a folder.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from automix.core.blend import as_map, full_mask
from automix.core.draws import draw_uniform
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import as_lam, check_batch, check_index
from automix.core.transform import MixTransform
from automix.core.validation import check_alpha, check_whole
from automix.methods._shared.fractals import fractals
from automix.methods._shared.pictures import folder_pictures
from automix.methods._shared.pixels import Operations, augment, draw_operations, pixel_range

__all__ = ["PixMix", "PixMixDraws", "pixmix"]


@dataclass(frozen=True)
class PixMixDraws:
    """All random numbers of PixMix for N images and k rounds; tensors on the CPU."""

    rounds: Tensor
    """Number of rounds of each image, ``(N,)``."""
    start: Operations
    """Operations on the images before the first round, ``(N,)``."""
    copy: Operations
    """Operations on the copy in each round, ``(N, k)``; with NOTHING the picture takes its place."""
    multiply: Tensor
    """Whether a round multiplies instead of adding, ``(N, k)``."""
    a: Tensor
    """Weight of the image in each round, ``(N, k)``."""
    b: Tensor
    """Weight of the copy or picture in each round, ``(N, k)``."""
    picture: Tensor
    """Number of each image's picture, ``(N,)``."""
    top: Tensor
    """First row of the crop of the picture, ``(N,)``."""
    left: Tensor
    """First column of the crop of the picture, ``(N,)``."""


def pixmix(
    x: Tensor,
    y: Tensor,
    beta: float = 3.0,
    *,
    k: int = 4,
    severity: float = 3.0,
    pictures: Tensor | str | Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    draws: PixMixDraws | None = None,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix each image with fractals and augmented copies of itself (Hendrycks et al., 2022).

    Labels and mask stay those of `x`; images are not paired.

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        beta: Parameter of the Beta distributions of both weights, > 0; a larger one changes the image less.
        k: Largest number of rounds, >= 0.
        severity: Strength of the operations, in [0.1, 10].
        pictures: Pictures ``(P, C, h, w)`` in [0, 1], at least as large as the images, or a folder of image files;
            generated fractals if not given.
        mean: Mean that normalized `x`, one number per channel; without `mean` and `std` the range of the batch stands
            for black and white.
        std: Standard deviation that normalized `x`, one number per channel, > 0.
        lam: 1 gives the image back as it is; other values have no effect.
        index: Has no effect; accepted as by every method.
        draws: All random numbers; drawn if not given.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their labels and a mask of ones.
    """
    check_batch(x, y)
    check_alpha(beta, "beta")
    check_whole("k", k, 0)
    scale = pixel_range(x, mean, std)
    pixels = scale.to_pixels(x)
    mixing_set = _mixing_set(pixels, pictures)
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
            if torch.compiler.is_compiling():  # shapes of a graph do not depend on values
                a, b, which = (
                    as_map(drawn).to(pixels.device)
                    for drawn in (draws.a[:, number], draws.b[:, number], chosen & takes_part)
                )
                mixed = torch.where(which, mixing(mixed, other, a.to(pixels), b.to(pixels)).clamp(0, 1), mixed)
                continue
            which = (chosen & takes_part).nonzero().squeeze(1)
            a, b = (as_map(share[which, number]).to(pixels) for share in (draws.a, draws.b))
            which = which.to(pixels.device)
            mixed[which] = mixing(mixed[which], other[which], a, b).clamp(0, 1)
    return mixed


def add(x: Tensor, picture: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Add two pictures, with gray as 0."""
    return (a * (2 * x - 1) + b * (2 * picture - 1) + 1) / 2


def multiply(x: Tensor, picture: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Multiply powers of two pictures, with gray as 1; black is kept from an infinite negative power."""
    return (2 * x) ** a * (2 * picture).clamp(min=1e-37) ** b / 2


def _mixing_set(pixels: Tensor, pictures: Tensor | str | Path | None) -> Tensor:
    """Given pictures, or those of a folder or fractals one eighth larger than the images.

    Of the larger ones a crop is drawn, as in the original (36 px for 32).
    """
    if isinstance(pictures, Tensor):
        return _own_pictures(pictures, pixels)
    channels, height, width = pixels.shape[1:]
    size = (height + -(-height // 8), width + -(-width // 8))
    if pictures is None:
        return fractals(*size, channels, pixels.device, pixels.dtype)
    if not Path(pictures).is_dir():
        raise AutomixError(f"pictures must be a tensor or a folder of image files, got {str(pictures)!r}")
    return folder_pictures(str(pictures), *size, channels).to(pixels.device)


def _own_pictures(pictures: Tensor, pixels: Tensor) -> Tensor:
    channels, height, width = pixels.shape[1:]
    fits = pictures.ndim == 4 and pictures.is_floating_point() and len(pictures) and pictures.shape[1] == channels
    if not (fits and pictures.shape[2] >= height and pictures.shape[3] >= width):
        raise AutomixError(
            f"pictures must have shape (P, {channels}, h, w) with h >= {height} and w >= {width} and a floating type, "
            f"got {tuple(pictures.shape)} and {pictures.dtype}"
        )
    return pictures.to(pixels)


def _cut(pictures: Tensor, draws: PixMixDraws, shape: torch.Size) -> Tensor:
    """Cut each image's picture to its size at its own place, in one lookup."""
    _, channels, height, width = shape
    picture, top, left = (drawn.to(pictures.device) for drawn in (draws.picture, draws.top, draws.left))
    rows = top.view(-1, 1) + torch.arange(height, device=pictures.device)
    columns = left.view(-1, 1) + torch.arange(width, device=pictures.device)
    channel = torch.arange(channels, device=pictures.device).view(1, -1, 1, 1)
    crops = pictures[picture.view(-1, 1, 1, 1), channel, rows[:, None, :, None], columns[:, None, None, :]]
    return crops / 255 if crops.dtype == torch.uint8 else crops


class PixMix(MixTransform):
    """Mix each image with fractals and augmented copies of itself (Hendrycks et al., 2022).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        beta: Parameter of the Beta distributions of both weights, > 0; a larger one changes the image less.
        **options: `k`, `severity`, `pictures`, `mean` and `std` of `pixmix`, and `num_classes`, `label_smoothing`,
            `prob` and `generator`, as of every `MixTransform`.
    """

    function = pixmix
    takes_video = False

    def __init__(self, *, beta: float = 3.0, **options: Any) -> None:
        super().__init__(beta=beta, **options)
