"""Weather: functions of pixels in [0, 1] (N, 3, H, W), a generator and the strength, as all corruptions are."""

from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.draws import draw_uniform, step_generator
from automix.evaluation.corruptions.blur import directional_blur
from automix.evaluation.corruptions.noise import normal
from automix.evaluation.corruptions.separable import zoom_center

GRAY = (0.299, 0.587, 0.114)  # shares of red, green and blue
FROST_SIDE, FROSTS = 512, 5  # px of each drawn sheet of ice, and how many
DIRECTIONS = 8  # of its needles
ICE = (0.72, 0.86, 1.0)  # the color where it is thin; thick ice is white


def snow(
    x: Tensor,
    generator: torch.Generator,
    mean: float,
    spread: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    kept: float,
) -> Tensor:
    """Add flakes to a paler image: enlarged noise whose peaks are blurred in a steep direction, added twice."""
    flakes = zoom_center(mean + spread * normal(x, (len(x), 1, *x.shape[-2:]), generator), zoom)
    flakes = (torch.where(flakes < threshold, 0, flakes).clamp(0, 1) * 255).floor() / 255
    angle = -135 + 90 * draw_uniform(x, (len(x),), generator)
    flakes = directional_blur(flakes, angle, radius, sigma)
    gray = (x * torch.tensor(GRAY, device=x.device).view(3, 1, 1)).sum(dim=1, keepdim=True)
    pale = torch.maximum(x, gray * 1.5 + 0.5)
    return kept * x + (1 - kept) * pale + flakes + flakes.flip(-1, -2)


def fog(x: Tensor, generator: torch.Generator, strength: float, decay: float) -> Tensor:
    """Add a plasma fractal, and darken the sum so that the brightest value stays the same."""
    height, width = x.shape[-2:]
    side = 1 << (max(height, width) - 1).bit_length()
    clouds = plasma_fractal(x, side, decay, generator)[:, :, :height, :width]
    brightest = x.amax(dim=(1, 2, 3), keepdim=True)
    return (x + strength * clouds) * brightest / (brightest + strength)


def plasma_fractal(x: Tensor, side: int, decay: float, generator: torch.Generator) -> Tensor:
    """Draw a plasma fractal (diamond-square on a torus), (N, 1, side, side) from 0 to 1; `side` is a power of two.

    The uniform noise added to the mean of four neighbors has the amplitude wobble squared, as in the original.
    """
    heights = x.new_zeros(len(x), side, side)
    wobble, step = 100.0, side

    def near(four: Tensor) -> Tensor:
        return four / 4 + wobble**2 * (2 * draw_uniform(x, tuple(four.shape), generator) - 1)

    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step].clone()
        two = corners + corners.roll(-1, 1)
        centers = near(two + two.roll(-1, 2))
        heights[:, half::step, half::step] = centers
        heights[:, ::step, half::step] = near(centers + centers.roll(1, 1) + corners + corners.roll(-1, 2))
        heights[:, half::step, ::step] = near(centers + centers.roll(1, 2) + corners + corners.roll(-1, 1))
        step, wobble = half, wobble / decay
    heights = heights - heights.amin(dim=(1, 2), keepdim=True)
    return (heights / heights.amax(dim=(1, 2), keepdim=True)).unsqueeze(1)


# --- frost -----------------------------------------------------------------------------------------------------------


def frost(x: Tensor, generator: torch.Generator, image: float, ice: float, scale: float) -> Tensor:
    """Add `image` times the image and `ice` times a random crop of a frost texture at `scale`.

    The original cuts from five photographs of frosted glass. These are drawn (see `frost_textures`): the weights are
    the published ones, the texture is not.
    """
    sheets = frost_textures(scale).to(x)
    side = sheets.shape[-1]
    drawn = draw_uniform(x, (3, len(x)), generator)
    which, top, left = (drawn * torch.tensor([FROSTS, side, side]).to(x).unsqueeze(1)).long()
    rows = (top.unsqueeze(1) + torch.arange(x.shape[-2], device=x.device)) % side  # a sheet goes on where it began
    columns = (left.unsqueeze(1) + torch.arange(x.shape[-1], device=x.device)) % side
    cut = sheets[which[:, None, None], :, rows.unsqueeze(2), columns.unsqueeze(1)].permute(0, 3, 1, 2)
    return image * x + ice * cut


@lru_cache(maxsize=4)
def frost_textures(scale: float) -> Tensor:
    """Draw the frost textures (FROSTS, 3, S, S) in [0, 1], always the same ones; `scale` 1 is FROST_SIDE pixels."""
    if scale == 1:
        return _draw_ice(step_generator(0, 0, stream="frost"))
    return F.interpolate(frost_textures(1), size=round(FROST_SIDE * scale), mode="area")


def _draw_ice(generator: torch.Generator) -> Tensor:
    """Draw bundles of needles, each in one of a few directions.

    A needle is white noise through a filter that passes what varies across its direction and not along it. Which
    direction rules, and how thick the ice is, changes slowly from place to place.
    """
    angle = torch.arange(DIRECTIONS) * (torch.pi / DIRECTIONS) + 0.13  # none along the rows of pixels
    x, y = torch.fft.rfftfreq(FROST_SIDE).view(1, 1, -1), torch.fft.fftfreq(FROST_SIDE).view(1, -1, 1)
    along = x * angle.cos().view(-1, 1, 1) + y * angle.sin().view(-1, 1, 1)
    frequency = (x**2 + y**2).sqrt()
    fine = (1 - torch.exp(-((frequency / 0.01) ** 2))) * torch.exp(-((frequency / 0.3) ** 4))
    needle = torch.exp(-((along / 0.006) ** 2)) * fine / frequency.clamp(min=1 / FROST_SIDE)
    slow = torch.exp(-((frequency / 0.007) ** 2))
    color = torch.tensor(ICE).view(3, 1, 1)
    sheets = []
    for _ in range(FROSTS):
        needles, rule = (_filtered(kind.expand(DIRECTIONS, -1, -1), generator) for kind in (needle, slow))
        crystals = (needles.abs() * F.softmax(4 * rule, dim=0)).sum(dim=0)
        thickness = 0.35 + 1.4 * torch.sigmoid(3 * _filtered(slow, generator)[0])
        brightness = 1 - torch.exp(-thickness * crystals / crystals.mean())
        sheets.append(brightness * torch.lerp(color, torch.ones(()), brightness))
    return torch.stack(sheets)


def _filtered(passed: Tensor, generator: torch.Generator) -> Tensor:
    """Filter white noise by the frequency response `passed` (K, S, S / 2 + 1), to mean 0 and variance 1."""
    white = torch.randn(len(passed), FROST_SIDE, FROST_SIDE, generator=generator)
    left = torch.fft.irfft2(torch.fft.rfft2(white) * passed, s=white.shape[-2:])
    left = left - left.mean(dim=(1, 2), keepdim=True)
    return left / left.square().mean(dim=(1, 2), keepdim=True).sqrt()
