"""Fractals as a set of pictures to mix with (PixMix): drawn here, so that nothing has to be downloaded.

Each picture is the attractor of an iterated function system, a few random contractions p -> A p + b, found by the chaos
game: points that jump by one of the maps at random end up on it. The maps are drawn by their singular values, whose
weighted sum decides whether the attractor is dust, a blot or something to look at (Anderson and Farrell, 2022). A
point's tone drifts towards that of the map it jumps by; how strongly a pixel is inked is the logarithm of its visits.
Behind each attractor stands, fainter, that of another picture, so that there is something to see everywhere.
"""

import functools
import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

SEED = 0
PICTURES = 32
LARGEST = 128  # px: a side beyond this is enlarged
MAPS = 4  # at most, for one picture
VISITS = 8  # for each pixel of a picture, on average
JUMPS = 48  # of each point, that are drawn
SETTLING = 16  # jumps before these, after which a point is on the attractor


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # a graph has the pictures as they are
def fractals(height: int, width: int, channels: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Pictures in [0, 1], (PICTURES, channels, height, width), always the same ones. Do not write into them."""
    return draw_fractals(height, width, channels, device, dtype)


@functools.lru_cache(maxsize=4)
def draw_fractals(height: int, width: int, channels: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Draw the pictures; kept for the next call."""
    with torch.no_grad(), torch.device("cpu"):
        generator = torch.Generator().manual_seed(SEED)
        systems = _draw_systems(generator)
        visits, tone = _play(systems, min(height, LARGEST), min(width, LARGEST), generator)
        brightness = visits.log1p()
        brightness = brightness / brightness.flatten(1).quantile(0.98, dim=1).clamp(min=1).view(-1, 1, 1, 1)
        paper, ink_from, ink_to = torch.rand(3, PICTURES, channels, 1, 1, generator=generator)
        pictures = torch.lerp(ink_from, ink_to, tone)
        behind = torch.lerp(
            paper / 2, pictures.roll(1, dims=0).flip(3), brightness.roll(1, dims=0).flip(3).clamp(max=0.6)
        )
        pictures = torch.lerp(behind, pictures, brightness.clamp(max=1))
        if pictures.shape[-2:] != (height, width):
            pictures = F.interpolate(pictures, (height, width), mode="bilinear", align_corners=False)
    return pictures.to(device, dtype)


@dataclass(frozen=True)
class _Systems:
    """Each picture's maps p -> A p + b, how often each is jumped by, and its tone, between the picture's two colors.

    `linear` is (PICTURES, MAPS, 2, 2), `shift` (PICTURES, MAPS, 2), `share` and `tone` are (PICTURES, MAPS).
    """

    linear: Tensor
    shift: Tensor
    share: Tensor
    tone: Tensor


def _draw_systems(generator: torch.Generator) -> _Systems:
    def uniform(*shape: int) -> Tensor:
        return torch.rand(PICTURES, *shape, generator=generator)

    count = 2 + (uniform(1) * (MAPS - 1)).long()
    used = torch.arange(MAPS) < count
    singular = (0.2 + 0.8 * uniform(MAPS, 2)).sort(dim=2, descending=True).values
    # The sum of larger + 2 * smaller singular value in a narrow range: that is what makes a good picture.
    weight = ((singular[..., 0] + 2 * singular[..., 1]) * used).sum(dim=1, keepdim=True)
    wanted = (5 + count + uniform(1)) / 2
    singular = (singular * (wanted / weight).unsqueeze(2)).clamp(max=0.95)
    flip = torch.where(uniform(MAPS, 2) < 0.5, -1.0, 1.0)
    before, after = (_rotation(2 * math.pi * uniform(MAPS)) for _ in range(2))
    linear = after @ torch.diag_embed(singular * flip) @ before
    area = singular.prod(dim=2) + 0.02  # a map that shrinks strongly still gets its turn
    return _Systems(linear, 2 * uniform(MAPS, 2) - 1, area * used, uniform(MAPS))


def _rotation(angle: Tensor) -> Tensor:
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([torch.stack([cos, -sin], dim=-1), torch.stack([sin, cos], dim=-1)], dim=-2)


def _play(systems: _Systems, height: int, width: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """The chaos game: each pixel's number of visits and the mean tone of its visitors, (PICTURES, 1, h, w) each."""
    points, cells = math.ceil(VISITS * height * width / JUMPS), PICTURES * height * width
    picture = torch.arange(PICTURES).view(-1, 1)
    table = torch.cat([systems.linear.flatten(2), systems.shift, systems.tone.unsqueeze(2)], dim=2).flatten(0, 1)
    x, y, tone = torch.zeros(3, PICTURES, points)
    visits, tones = torch.zeros(2, cells)
    left, top, right, bottom = torch.zeros(4)
    for jump in range(SETTLING + JUMPS):
        chosen = torch.multinomial(systems.share, points, replacement=True, generator=generator)
        a, b, c, d, e, f, its_tone = table[MAPS * picture + chosen].unbind(dim=2)
        x, y, tone = a * x + b * y + e, c * x + d * y + f, (tone + its_tone) / 2
        if jump == SETTLING - 1:
            (left, right), (top, bottom) = _frame(x), _frame(y)
        if jump >= SETTLING:
            column, row = (x - left) / (right - left) * width, (y - top) / (bottom - top) * height
            inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
            cell = ((picture * height + row.long()) * width + column.long())[inside]
            visits += cell.bincount(minlength=cells)
            tones += cell.bincount(tone[inside], minlength=cells)
    shape = (PICTURES, 1, height, width)
    return visits.view(shape), (tones / visits.clamp(min=1)).view(shape)


def _frame(place: Tensor) -> Tensor:
    """From where to where nearly all points of a picture lie, (2, PICTURES, 1)."""
    low, high = place.quantile(torch.tensor([0.02, 0.98]), dim=1, keepdim=True)
    return torch.stack([low, high.maximum(low + 1e-3)])
