"""Rows of images with names, captions, a title and a note: the one grid of the package."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from automix.core.errors import AutomixError

IMAGE_SIDE = 96  # px: `image_grid` enlarges small images by a whole factor to about this
GAP = 6  # px between images
MARGIN = 14  # px around everything
CAPTION = 18  # px below an image, where there are captions
TITLE_FONT, NAME_FONT, SMALL_FONT = 18, 15, 13  # px
INK, PENCIL, FRAME, PAPER = "#202020", "#606060", "#b8b8b8", "#ffffff"


@dataclass(frozen=True)
class Tile:
    """An image with one line of text below it.

    Attributes:
        image: The image.
        caption: The text; it is cut off where it is wider than the image.
        color: Color of the text.
    """

    image: Image.Image
    caption: str = ""
    color: str = INK


def tile_grid(
    rows: Sequence[Sequence[Tile]],
    names: Sequence[str] = (),
    *,
    title: str = "",
    note: str = "",
    group: int = 0,
    column_group: int = 0,
) -> Image.Image:
    """Lay out rows of tiles.

    Args:
        rows: The tiles of each row. Smaller images are centered in cells of the size of the largest.
        names: One name for each row, written to its left; none for a grid without names.
        title: Text above the grid.
        note: Text below the grid.
        group: After every `group` rows there is more space; 0 for equal distances.
        column_group: The same for columns.

    Returns:
        The picture.
    """
    tiles = [tile for row in rows for tile in row]
    if not tiles:
        raise AutomixError("rows must contain at least one image, got none")
    width, height = (max(tile.image.size[axis] for tile in tiles) for axis in (0, 1))
    line = height + (CAPTION if any(tile.caption for tile in tiles) else 0) + GAP
    title_font, name_font, small_font = (
        ImageFont.load_default(size=size) for size in (TITLE_FONT, NAME_FONT, SMALL_FONT)
    )
    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    name_width = max((ruler.multiline_textbbox((0, 0), name, font=name_font)[2] for name in names), default=0)
    left = MARGIN + (math.ceil(name_width) + MARGIN if name_width else 0)
    top = MARGIN + (TITLE_FONT + MARGIN if title else 0)
    tops = [top + number * line + (number // group * MARGIN if group else 0) for number in range(len(rows))]
    bottom = tops[-1] + line
    lefts = [
        left + number * (width + GAP) + (number // column_group * MARGIN if column_group else 0)
        for number in range(max(len(row) for row in rows))
    ]
    right = max(
        lefts[-1] + width,
        MARGIN + math.ceil(ruler.textlength(title, title_font)),
        left + math.ceil(ruler.textlength(note, small_font)),
    )
    picture = Image.new("RGB", (right + MARGIN, bottom - GAP + MARGIN + (SMALL_FONT + GAP if note else 0)), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((MARGIN, MARGIN), title, fill=INK, font=title_font)
    draw.text((left, bottom), note, fill=PENCIL, font=small_font)
    for y, name in zip(tops, names, strict=False):
        draw.multiline_text((MARGIN, y + height / 2), name, fill=INK, font=name_font, anchor="lm")
    for y, row in zip(tops, rows, strict=True):
        for x, tile in zip(lefts, row, strict=False):
            indent = [(side - own) // 2 for side, own in zip((width, height), tile.image.size, strict=True)]
            paste_framed(picture, tile.image, x + indent[0], y + indent[1])
            draw.text((x, y + height + 2), _shorten(tile.caption, width, small_font), fill=tile.color, font=small_font)
    return picture


def image_grid(rows: Mapping[str, Tensor], title: str = "", note: str = "") -> Image.Image:
    """Lay out rows of images of one size.

    Small images are enlarged by a whole factor to about 96 px, so that their pixels stay visible.

    Args:
        rows: Name and images of each row, ``(N, 3 or 1, H, W)``. Values outside [0, 1] are clipped.
        title: Text above the grid.
        note: Text below the grid.

    Returns:
        The picture.
    """
    shapes = {tuple(images.shape[-2:]) for images in rows.values()}
    if len(shapes) != 1:
        raise AutomixError(f"rows must be one or more rows of images of one size, got {sorted(shapes)}")
    scale = max(1, round(IMAGE_SIDE / max(shapes.pop())))
    tiles = [[Tile(to_image(image, scale)) for image in images] for images in rows.values()]
    return tile_grid(tiles, list(rows), title=title, note=note)


def stack_pictures(pictures: Sequence[tuple[str, Image.Image]]) -> Image.Image:
    """Stack pictures from top to bottom, each centered below its title.

    Args:
        pictures: Title and picture; no line is left for an empty title.

    Returns:
        One picture, as wide as the widest.
    """
    if not pictures:
        raise AutomixError("pictures must contain at least one picture, got none")
    font = ImageFont.load_default(size=TITLE_FONT)
    heights = [picture.height + (TITLE_FONT + 2 * MARGIN if title else 0) for title, picture in pictures]
    width = max(max(picture.width, math.ceil(font.getlength(title)) + 2 * MARGIN) for title, picture in pictures)
    stack = Image.new("RGB", (width, sum(heights)), PAPER)
    draw = ImageDraw.Draw(stack)
    top = 0
    for height, (title, picture) in zip(heights, pictures, strict=True):
        draw.text((MARGIN, top + MARGIN), title, fill=INK, font=font)
        stack.paste(picture, ((width - picture.width) // 2, top + height - picture.height))
        top += height
    return stack


def to_image(pixels: Tensor, scale: int = 1) -> Image.Image:
    """Convert a tensor to a PIL image.

    Args:
        pixels: ``(3 or 1, H, W)``, uint8 or floats in [0, 1]; floats outside are clipped.
        scale: Draw every pixel as `scale` x `scale` pixels.

    Returns:
        The image, RGB.
    """
    pixels = pixels.detach().cpu()
    if pixels.is_floating_point():
        pixels = (pixels.float().clamp(0, 1) * 255).round().byte()
    large = pixels.expand(3, -1, -1).repeat_interleave(scale, dim=1).repeat_interleave(scale, dim=2)
    return Image.fromarray(large.permute(1, 2, 0).contiguous().numpy())


def paste_framed(picture: Image.Image, image: Image.Image, x: int, y: int) -> None:
    """Paste an image with a line around it, without which a white mask would have no edge."""
    picture.paste(image, (x, y))
    ImageDraw.Draw(picture).rectangle((x - 1, y - 1, x + image.width, y + image.height), outline=FRAME)


def _shorten(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """Cut off text that is wider than `width`, and add an ellipsis."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"
