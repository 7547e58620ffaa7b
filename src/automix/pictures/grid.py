"""Pictures of mixed samples: what a task trains on, to look at.

picture = mixed_samples(task, x, loader.mean, loader.std, title="AutoMix on shapes")
picture.save("mixed.png")
"""

import math

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

SIDE = 96  # px: small images are enlarged by a whole factor to about this
GAP = 6  # px between images
MARGIN = 14  # px around everything
INK, PENCIL, FRAME, PAPER = "#202020", "#606060", "#b8b8b8", "#ffffff"


def image_grid(rows: dict[str, Tensor], title: str = "", note: str = "") -> Image.Image:
    """Rows of images in [0, 1], (N, 3 or 1, H, W), below each other, each with its name to the left.

    `title` stands above them, `note` below.
    """
    shapes = {tuple(images.shape[-2:]) for images in rows.values()}
    if len(shapes) != 1:
        raise ValueError(f"rows of {sorted(shapes)} px: accepted are one or more rows of images of one size")
    height, width = shapes.pop()
    scale = max(1, round(SIDE / max(height, width)))
    height, width = height * scale, width * scale
    columns = max(len(images) for images in rows.values())
    heading, words, small = (ImageFont.load_default(size=size) for size in (18, 15, 13))

    ruler = ImageDraw.Draw(Image.new("RGB", (1, 1)))
    left = 2 * MARGIN + GAP + int(max(ruler.multiline_textbbox((0, 0), name, font=words)[2] for name in rows))
    top = MARGIN + (18 + MARGIN if title else 0)
    right = left + columns * (width + GAP) - GAP
    right = max(
        right, MARGIN + math.ceil(ruler.textlength(title, heading)), left + math.ceil(ruler.textlength(note, small))
    )
    bottom = top + len(rows) * (height + GAP)
    picture = Image.new("RGB", (right + MARGIN, bottom - GAP + MARGIN + (13 + GAP if note else 0)), PAPER)
    draw = ImageDraw.Draw(picture)
    draw.text((MARGIN, MARGIN), title, fill=INK, font=heading)
    draw.text((left, bottom), note, fill=PENCIL, font=small)
    for row, (name, images) in enumerate(rows.items()):
        y = top + row * (height + GAP)
        draw.multiline_text((MARGIN, y + height / 2), name, fill=INK, font=words, anchor="lm")
        for column, image in enumerate(images):
            x = left + column * (width + GAP)
            picture.paste(enlarge(image, scale), (x, y))
            draw.rectangle((x - 1, y - 1, x + width, y + height), outline=FRAME)  # around it: white masks need an edge
    return picture


def enlarge(image: Tensor, scale: int) -> Image.Image:
    """An image (3 or 1, H, W) with `scale` x `scale` pixels for each of its own."""
    shown = (image.detach().cpu().float().clamp(0, 1) * 255).round().byte().expand(3, -1, -1)
    shown = shown.repeat_interleave(scale, dim=1).repeat_interleave(scale, dim=2)
    return Image.fromarray(shown.permute(1, 2, 0).contiguous().numpy())
