"""Images as pixels: normalized batches as values in [0, 1] and back, and the nine operations of AugMix and PixMix.

A batch that trains a network is normalized, (pixel - mean) / std, and does not say by what; these operations mean
pixels. With `mean` and `std` the way back is exact. Without them each channel's smallest and largest value in the batch
stand for 0 and 1: a batch of ordinary images holds something black and something white, so this is close, and it is
always a scale on which the images fill [0, 1]. Too small a batch of flat images is stretched by it.

The operations are those of Hendrycks et al. (autocontrast, equalize, posterize, rotate, solarize, shear and translate
along x and y), with Pillow's meaning on 8-bit images. They leave out what the corruption benchmarks contain (contrast,
color, brightness, sharpness). Each runs once per batch, on all images that drew it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.blend import as_map, at_least_float32
from automix.core.draws import draw_uniform
from automix.core.errors import AutomixError
from automix.core.validation import check_range

AUTOCONTRAST, EQUALIZE, POSTERIZE, SOLARIZE, ROTATE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y = range(9)
COUNT = 9
NOTHING = -1


# --- normalized values and pixels ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PixelRange:
    """Per channel, (C, 1, 1): the value of a black pixel, and how far a white one lies above it."""

    black: Tensor
    width: Tensor

    def to_pixels(self, x: Tensor) -> Tensor:
        """Values in [0, 1], in float32 at least."""
        return ((x.to(self.black.dtype) - self.black) / self.width).clamp(0, 1)

    def from_pixels(self, pixels: Tensor, like: Tensor) -> Tensor:
        """The way back, in type and memory format of `like`."""
        return torch.empty_like(like).copy_(pixels * self.width + self.black)


def pixel_range(x: Tensor, mean: Sequence[float] | None = None, std: Sequence[float] | None = None) -> PixelRange:
    """From the `mean` and `std` that normalized `x`, one number per channel; without them from the batch itself."""
    if (mean is None) != (std is None):
        raise AutomixError("mean and std must be given together")
    if std is not None and min(std) <= 0:
        raise AutomixError(f"std must be > 0, got {tuple(std)}")
    exact = at_least_float32(x)
    if mean is None or std is None:
        black, white = exact.amin(dim=(0, 2, 3)), exact.amax(dim=(0, 2, 3))
        width = torch.where(white > black, white - black, 1)  # a channel of one value is black
    elif len(mean) == len(std) == x.shape[1]:
        width = 1 / torch.tensor(std, dtype=exact.dtype)
        black = (-torch.tensor(mean, dtype=exact.dtype) * width).to(x.device)
        width = width.to(x.device)
    else:
        raise AutomixError(
            f"mean and std must have {x.shape[1]} numbers, one per channel, got {len(mean)} and {len(std)}"
        )
    return PixelRange(black.view(-1, 1, 1), width.view(-1, 1, 1))


# --- what to do to each image ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Operations:
    """For each image one of the nine operations, or NOTHING, and how strongly: tensors of one shape, on the CPU.

    `level` runs to 10 as in the papers; its sign is the direction of those that have one. That both are on the CPU lets
    the images be sorted by operation without waiting for a device.
    """

    kind: Tensor
    level: Tensor

    def __getitem__(self, place: int | slice | tuple[int | slice, ...]) -> "Operations":
        return Operations(self.kind[place], self.level[place])

    def flatten(self) -> "Operations":
        return Operations(self.kind.flatten(), self.level.flatten())

    def where(self, chosen: Tensor) -> "Operations":
        """NOTHING but where `chosen`."""
        return Operations(self.kind.where(chosen, NOTHING), self.level)


def draw_operations(shape: tuple[int, ...], severity: float, generator: torch.Generator | None) -> Operations:
    """Operations at random, with levels from 0.1 to `severity` and either sign."""
    check_range("severity", severity, 0.1, 10)
    kind, level, sign = draw_uniform(torch.empty(0), (3, *shape), generator)
    level = 0.1 + (severity - 0.1) * level
    return Operations((kind * COUNT).long(), torch.where(sign < 0.5, -level, level))


def augment(pixels: Tensor, operations: Operations) -> Tensor:
    """Each image in [0, 1] changed by its own operation, (N,) of them."""
    out = pixels.clone()
    if torch.compiler.is_compiling():  # shapes of a graph do not depend on values: change all images, and take some
        kind, level = operations.kind.to(pixels.device), operations.level.to(pixels)
        for kinds, change in CHANGES.items():
            which = torch.isin(kind, torch.tensor(kinds, device=pixels.device))
            out = torch.where(as_map(which), change(pixels, kind, level), out)
        return out
    for kinds, change in CHANGES.items():
        which = torch.isin(operations.kind, torch.tensor(kinds)).nonzero().squeeze(1)
        if len(which):
            kind, level = (drawn[which].to(pixels.device) for drawn in (operations.kind, operations.level))
            which = which.to(pixels.device)
            out[which] = change(pixels[which], kind, level.to(pixels.dtype))
    return out


# --- colors: on the 256 levels of an 8-bit image --------------------------------------------------------------------


def autocontrast(pixels: Tensor) -> Tensor:
    """Each channel stretched to [0, 1]; a channel of one value stays."""
    low, high = pixels.amin(dim=(2, 3), keepdim=True), pixels.amax(dim=(2, 3), keepdim=True)
    flat = high == low
    return torch.where(flat, pixels, (pixels - low) / torch.where(flat, 1, high - low))


def equalize(pixels: Tensor) -> Tensor:
    """Each channel's histogram made level, as Pillow does: in whole numbers, without the count of the last value."""
    value = (pixels * 255).round().long().flatten(2)
    histogram = value.new_zeros(*value.shape[:2], 256).scatter_add_(2, value, torch.ones_like(value))
    last = histogram.gather(2, value.amax(dim=2, keepdim=True))
    step = (value.shape[2] - last) // 255
    below = histogram.cumsum(dim=2) - histogram
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    level = torch.where(step > 0, table.gather(2, value), value)  # too few values to spread: as they are
    return (level.to(pixels.dtype) / 255).reshape(pixels.shape)


def posterize(pixels: Tensor, bits: Tensor) -> Tensor:
    """The first `bits` (N,) of the eight; the others become 0."""
    value, step = (pixels * 255).round(), as_map(2 ** (8 - bits))
    return (value / step).floor() * step / 255


def solarize(pixels: Tensor, threshold: Tensor) -> Tensor:
    """Values from `threshold` (N,) on, of 256, inverted."""
    return torch.where((pixels * 255).round() >= as_map(threshold), 1 - pixels, pixels)


# --- places: one affine map per image --------------------------------------------------------------------------------


def _move(pixels: Tensor, kind: Tensor, level: Tensor) -> Tensor:
    """Rotate, shear or translate, each image as it drew."""
    height, width = pixels.shape[-2:]

    def only(wanted: int, amount: Tensor) -> Tensor:
        return torch.where(kind == wanted, amount, 0)

    angle = only(ROTATE, (level * 30 / 10).trunc().deg2rad())
    shear_x, shear_y = (only(wanted, level * 0.3 / 10) for wanted in (SHEAR_X, SHEAR_Y))
    shift_x = only(TRANSLATE_X, (level * (width / 3) / 10).trunc())
    shift_y = only(TRANSLATE_Y, (level * (height / 3) / 10).trunc())
    # Rotation is about the center, shear about the corner, as in the original.
    cos, sin, x0, y0 = angle.cos(), angle.sin(), width / 2, height / 2
    across = (cos, shear_x - sin, shift_x + x0 - cos * x0 + sin * y0)
    down = (shear_y + sin, cos, shift_y + y0 - sin * x0 - cos * y0)
    return warp(pixels, torch.stack([*across, *down], dim=1))


def warp(pixels: Tensor, coefficients: Tensor) -> Tensor:
    """Pillow's affine transform with (a, b, c, d, e, f) per image, (N, 6); bilinear, black beyond the border.

    What comes to (x, y) was at (a x + b y + c, d x + e y + f), in pixels from the corner.
    """
    height, width = pixels.shape[-2:]
    a, b, c, d, e, f = coefficients.unbind(dim=1)
    b, d = b * height / width, d * width / height  # in the coordinates of affine_grid both sides run from -1 to 1
    rows = [a, b, a + b + 2 * c / width - 1, d, e, d + e + 2 * f / height - 1]
    grid = F.affine_grid(torch.stack(rows, dim=1).view(-1, 2, 3), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


Change = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From images, their kinds and their levels (N,) to changed images."""

CHANGES: dict[tuple[int, ...], Change] = {
    (AUTOCONTRAST,): lambda pixels, kind, level: autocontrast(pixels),
    (EQUALIZE,): lambda pixels, kind, level: equalize(pixels),
    (POSTERIZE,): lambda pixels, kind, level: posterize(pixels, bits=4 - (level.abs() * 4 / 10).floor()),
    (SOLARIZE,): lambda pixels, kind, level: solarize(pixels, threshold=256 - (level.abs() * 256 / 10).floor()),
    (ROTATE, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y): _move,
}
