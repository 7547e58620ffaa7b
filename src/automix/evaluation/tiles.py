"""Images, heat maps and boxes for pictures of class activation maps; pictures/grid.py lays them out."""

from collections.abc import Iterable

import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch import Tensor

from automix.evaluation.heatmaps import overlay

SIDE = 144  # px, about


def to_tile_size(images: Tensor, side: int = SIDE) -> tuple[Tensor, float]:
    """Scale images to about `side` px: small ones by a whole factor, so that pixels stay visible.

    Args:
        images: ``(N, 3, S, S)``, uint8 or in [0, 1].
        side: Side of the result in pixels, about.

    Returns:
        Floats in [0, 1] on the CPU, and the factor of the scaling.
    """
    floats = images.detach().cpu().float() / (1 if images.is_floating_point() else 255)
    size = images.shape[-1]
    if size <= side:
        scale = round(side / size)
        return floats.clamp(0, 1).repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3), scale
    small = F.interpolate(floats, size=(side, side), mode="bilinear", antialias=True)
    return small.clamp(0, 1), side / size


def overlay_maps(images: Tensor, maps: Tensor) -> Tensor:
    """Draw heat maps over images of another size.

    Args:
        images: Pixels in [0, 1], ``(N, 3, H, W)``.
        maps: ``(N, h, w)`` in [0, 1].

    Returns:
        Pixels in [0, 1], ``(N, 3, H, W)``.
    """
    large = F.interpolate(maps.detach().cpu().unsqueeze(1), size=images.shape[-2:], mode="bilinear", antialias=True)
    return overlay(images, large.squeeze(1))


def draw_boxes(image: Image.Image, boxes: Iterable[tuple[Tensor, str]]) -> Image.Image:
    """Copy an image and draw `boxes` (x0 y0 x1 y1, x1 and y1 exclusive), each in its color."""
    image = image.copy()
    draw = ImageDraw.Draw(image)
    for box, color in boxes:
        x0, y0, x1, y1 = (round(end) for end in box.tolist())
        if x1 > x0 and y1 > y0:
            draw.rectangle((x0, y0, x1 - 1, y1 - 1), outline=color, width=2)
    return image
