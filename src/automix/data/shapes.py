"""The dataset `shapes`: textured shapes on cluttered backgrounds, drawn from a seed, with boxes and masks.

Every image shows one bright object of one of 12 classes on a dark background. Only the outline depends on the class:
position, size, rotation, colors and textures are drawn independently of it, fragments of other outlines lie behind and
in front of the object, and noise covers everything. Pentagons, hexagons, octagons and discs are hard to tell apart at
32 px. The object is brighter than the background so that a small network learns within the steps of a quickstart.

An outline is a radius for every angle, so a thousand objects are drawn with one table look-up per pixel.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.draws import step_generator

ANGLES = 720  # entries of the outline table
CHUNK = 1000  # images drawn at once, to bound the memory
FRAGMENTS = 6  # of other outlines in the background, and half as many in front


def _polygon(theta: Tensor, corners: int) -> Tensor:
    wedge = 2 * math.pi / corners
    return math.cos(wedge / 2) / torch.cos(theta % wedge - wedge / 2)


def _square(cosine: Tensor, sine: Tensor) -> Tensor:
    return 1 / torch.maximum(cosine.abs(), sine.abs())


def _star(theta: Tensor, points: int, inner: float) -> Tensor:
    """Straight lines between an outer and an inner radius, in polar form."""
    half = math.pi / points
    angle = (theta % (2 * half) - half).abs()  # 0 at the notch, `half` at the tip
    tip_x, tip_y = math.cos(half), math.sin(half)
    return inner * tip_y / (tip_y * torch.cos(angle) - (tip_x - inner) * torch.sin(angle))


def _outlines() -> dict[str, Tensor]:
    theta = torch.arange(ANGLES, dtype=torch.float64) * (2 * math.pi / ANGLES)
    cosine, sine = torch.cos(theta), torch.sin(theta)
    return {
        "disc": torch.ones_like(theta),
        "ellipse": 0.45 / ((0.45 * cosine) ** 2 + sine**2).sqrt(),
        "triangle": _polygon(theta, 3),
        "square": _square(cosine, sine) / math.sqrt(2),
        "pentagon": _polygon(theta, 5),
        "hexagon": _polygon(theta, 6),
        "octagon": _polygon(theta, 8),
        "star": _star(theta, 5, 0.45),
        "cross": torch.minimum(0.35 / torch.minimum(cosine.abs(), sine.abs()).clamp(min=1e-3), _square(cosine, sine)),
        "flower": 0.72 + 0.28 * torch.cos(5 * theta),
        "gear": 0.85 + 0.15 * torch.sign(torch.cos(8 * theta)),
        "drop": 0.35 + 0.65 * ((1 + cosine) / 2) ** 4,
    }


_OUTLINES = _outlines()
_RADII = torch.stack(list(_OUTLINES.values())).float()  # (classes, ANGLES)
CLASSES = tuple(_OUTLINES)


@dataclass(frozen=True)
class Shapes:
    """Drawn images with exact boxes and masks of the visible part of the object.

    Attributes:
        images: Pixels, ``(N, 3, S, S)`` uint8.
        labels: Class indices, ``(N,)`` int64.
        boxes: The smallest boxes around the masks, ``(N, 4)`` int64: x0, y0, x1, y1, x1 and y1 exclusive.
        masks: The visible pixels of the object, ``(N, S, S)`` bool.
    """

    images: Tensor
    labels: Tensor
    boxes: Tensor
    masks: Tensor


def draw_shapes(count: int, size: int = 32, seed: int = 0) -> Shapes:
    """Draw images of shapes; image i has class i modulo 12, so that the classes are equally frequent.

    Args:
        count: Number of images.
        size: Side of the images in pixels.
        seed: Seed of all draws.

    Returns:
        The images with labels, boxes and masks.
    """
    parts = []
    for start in range(0, count, CHUNK):
        labels = torch.arange(start, min(start + CHUNK, count)) % len(CLASSES)
        parts.append(_draw(labels, size, step_generator(seed, start, stream="shapes")))
    fields = (torch.cat([getattr(part, name) for part in parts]) for name in ("images", "labels", "boxes", "masks"))
    return Shapes(*fields)


def _draw(labels: Tensor, size: int, generator: torch.Generator) -> Shapes:
    count = len(labels)

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, 1, 1, generator=generator)

    def texture(low: float, high: float) -> Tensor:
        return low + (high - low) * _texture(count, size, generator).clamp(0, 1)

    def any_class() -> Tensor:
        return torch.randint(len(CLASSES), (count,), generator=generator)

    def coverage(classes: Tensor, scale: Tensor, reach: Tensor | float) -> Tensor:
        return _coverage(classes, size, scale, uniform(-1, 1) * reach, uniform(-1, 1) * reach, uniform(0, 2 * math.pi))

    def color(high: float) -> Tensor:
        return high * torch.rand(count, 3, 1, 1, generator=generator)

    image = texture(0.0, 0.5)
    for _ in range(FRAGMENTS):
        image = torch.lerp(image, color(0.5), coverage(any_class(), uniform(0.1, 0.3), 1.0).unsqueeze(1))
    scale = uniform(0.55, 0.85)
    shown = coverage(labels, scale, 1 - scale)
    image = torch.lerp(image, texture(0.5, 1.0), shown.unsqueeze(1))
    for _ in range(FRAGMENTS // 2):
        in_front = coverage(any_class(), uniform(0.08, 0.18), 1.0)
        image = torch.lerp(image, color(1.0), in_front.unsqueeze(1))
        shown = shown * (1 - in_front)
    image = image + 0.06 * torch.randn(image.shape, generator=generator)
    masks = shown > 0.5
    return Shapes((image.clamp(0, 1) * 255).round().byte(), labels, _boxes(masks), masks)


def _coverage(classes: Tensor, size: int, scale: Tensor, x0: Tensor, y0: Tensor, rotation: Tensor) -> Tensor:
    """How much of each pixel the outline covers, (N, S, S) in [0, 1]; the image spans -1 to 1 in both directions."""
    place = (torch.arange(size) + 0.5) * (2 / size) - 1
    dx, dy = place.view(1, 1, -1) - x0, place.view(1, -1, 1) - y0
    turn = (torch.atan2(dy, dx) - rotation) / (2 * math.pi)
    entry = (turn * ANGLES).round().long() % ANGLES
    radius = _RADII[classes].gather(1, entry.flatten(1)).view_as(entry) * scale
    return ((radius - (dx**2 + dy**2).sqrt()) * (size / 2) + 0.5).clamp(0, 1)


def _texture(count: int, size: int, generator: torch.Generator) -> Tensor:
    """Stripes or checks between two colors, and a slow drift of both: (N, 3, S, S)."""

    def rand(*shape: int) -> Tensor:
        return torch.rand(count, *shape, generator=generator)

    place = torch.linspace(-1, 1, size)
    angle, frequency, phase = rand(1, 1) * math.pi, 3 + 12 * rand(1, 1), rand(2, 1, 1) * 2 * math.pi
    x, y = place.view(1, 1, -1), place.view(1, -1, 1)
    along, across = x * torch.cos(angle) + y * torch.sin(angle), y * torch.cos(angle) - x * torch.sin(angle)
    stripes, rungs = torch.sin(along * frequency + phase[:, 0]), torch.sin(across * frequency + phase[:, 1])
    pattern = torch.where(rand(1, 1) < 0.5, stripes, stripes * rungs).mul(0.5).add(0.5).unsqueeze(1)
    drift = F.interpolate(rand(3, 3, 3) - 0.5, size=(size, size), mode="bilinear", align_corners=True)
    return torch.lerp(rand(3, 1, 1), rand(3, 1, 1), pattern) + 0.4 * drift


def _boxes(masks: Tensor) -> Tensor:
    """The smallest box around each mask, x1 and y1 exclusive."""

    def ends(line: Tensor) -> tuple[Tensor, Tensor]:
        first = line.int().argmax(dim=1)
        last = line.shape[1] - line.flip(1).int().argmax(dim=1)
        return first, last

    (x0, x1), (y0, y1) = ends(masks.any(dim=1)), ends(masks.any(dim=2))
    return torch.stack([x0, y0, x1, y1], dim=1)
