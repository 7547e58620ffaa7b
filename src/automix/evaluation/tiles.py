"""Captioned images in rows, for pictures of class activation maps."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from automix.evaluation.heatmaps import overlay
from automix.pictures.grid import FRAME, GAP, INK, MARGIN, PAPER, PENCIL

SIDE = 144  # px, about
CAPTION = 18  # px below an image


@dataclass(frozen=True)
class Tile:
    """A picture with one line of text below it."""

    image: Image.Image
    caption: str = ""
    color: str = INK


def to_tile_size(images: Tensor) -> tuple[Tensor, float]:
    """Scale images to about `SIDE` px: small ones by a whole factor, so that pixels stay visible.

    Args:
        images: ``(N, 3, S, S)``, uint8 or in [0, 1].

    Returns:
        Floats in [0, 1] on the CPU, and the factor of the scaling.
    """
    floats = images.detach().cpu().float() / (1 if images.is_floating_point() else 255)
    size = images.shape[-1]
    if size <= SIDE:
        scale = round(SIDE / size)
        return floats.clamp(0, 1).repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3), scale
    small = F.interpolate(floats, size=(SIDE, SIDE), mode="bilinear", antialias=True)
    return small.clamp(0, 1), SIDE / size


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


def to_images(images: Tensor) -> list[Image.Image]:
    """Convert pixels in [0, 1], (N, 3, H, W), to PIL images."""
    pixels = (images * 255).round().byte().permute(0, 2, 3, 1).numpy()
    return [Image.fromarray(np.ascontiguousarray(image)) for image in pixels]


def draw_boxes(image: Image.Image, boxes: Iterable[tuple[Tensor, str]]) -> Image.Image:
    """Copy an image and draw `boxes` (x0 y0 x1 y1, x1 and y1 exclusive), each in its color."""
    image = image.copy()
    draw = ImageDraw.Draw(image)
    for box, color in boxes:
        x0, y0, x1, y1 = (round(end) for end in box.tolist())
        if x1 > x0 and y1 > y0:
            draw.rectangle((x0, y0, x1 - 1, y1 - 1), outline=color, width=2)
    return image


def tile_grid(rows: Sequence[Sequence[Tile]], names: Sequence[str], note: str = "", group: int = 1) -> Image.Image:
    """Lay out rows of tiles.

    Args:
        rows: Tiles of one size; rows of one length.
        names: A name to the left of each row.
        note: A line below everything.
        group: There is more space after every `group` rows.

    Returns:
        The picture.
    """
    width, height = rows[0][0].image.size
    words, small = ImageFont.load_default(size=14), ImageFont.load_default(size=12)
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    left = 2 * MARGIN + int(max(ruler.multiline_textbbox((0, 0), name, font=words)[2] for name in names))
    right = left + len(rows[0]) * (width + GAP) - GAP
    right = max(right, left + int(ruler.textlength(note, small)))
    tops = [MARGIN + row * (height + CAPTION + GAP) + row // group * MARGIN for row in range(len(rows))]
    bottom = tops[-1] + height + CAPTION + GAP
    picture = Image.new("RGB", (right + MARGIN, bottom + (13 + MARGIN if note else 0)), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((left, bottom), note, fill=PENCIL, font=small)
    for row, name, top in zip(rows, names, tops, strict=True):
        draw.multiline_text((MARGIN, top + height / 2), name, fill=INK, font=words, anchor="lm")
        for column, tile in enumerate(row):
            x = left + column * (width + GAP)
            picture.paste(tile.image, (x, top))
            draw.rectangle((x - 1, top - 1, x + width, top + height), outline=FRAME)
            draw.text((x, top + height + 2), _cut(tile.caption, width, small), fill=tile.color, font=small)
    return picture


def _cut(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """Cut `text` to a width in pixels."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"
