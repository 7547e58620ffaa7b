"""Mixed samples over training time: three pairs, and a column for every look at what the task makes of them."""

from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from automix.core.files import write_atomically
from automix.core.normalization import denormalize
from automix.pictures.grid import FRAME, GAP, INK, MARGIN, PAPER, enlarge
from automix.tasks.task import Task

PAIRS = 3
HEAD = 20  # px above the columns, for their names
LAM = 0.5


def add_to_history(
    path: Path, task: Task, x: Tensor, y: Tensor, mean: Tensor, std: Tensor, *, column: int, columns: int, name: str
) -> None:
    """Draw what `task` makes of images `x` of classes `y` as `column` out of `columns` into the picture at `path`.

    The place of a column depends on nothing but its number, so that a resumed run draws over what it draws again.
    """
    x, y = x[: PAIRS + 1], y[: PAIRS + 1]
    index = torch.arange(len(x), device=x.device).roll(1)
    mixed = task.mix(x, y, lam=LAM, index=index)
    images, partners, blends = (denormalize(tensor[1:], mean, std) for tensor in (x, x[index], mixed.x))
    masks = mixed.mask[1:]

    scale = max(1, round(64 / max(x.shape[-2:])))
    height, width = (side * scale + GAP for side in x.shape[-2:])
    strip = _open(
        path, (2 * MARGIN + (columns + 1) * width - GAP, 2 * MARGIN + HEAD + len(images) * (2 * height + GAP) - 2 * GAP)
    )
    draw = ImageDraw.Draw(strip)
    font = ImageFont.load_default(size=13)
    for number, title, tiles in ((0, "pair", (images, partners)), (column + 1, name, (blends, masks))):
        left = MARGIN + number * width
        draw.rectangle((left - 1, 0, left + width - 2, strip.height), fill=PAPER)
        draw.text((left, MARGIN), title, fill=INK, font=font)
        for pair in range(len(images)):
            for row, images_of_row in enumerate(tiles):
                top = MARGIN + HEAD + pair * (2 * height + GAP) + row * height
                strip.paste(enlarge(images_of_row[pair], scale), (left, top))
                draw.rectangle((left - 1, top - 1, left + width - GAP, top + height - GAP), outline=FRAME)
    write_atomically(path, strip.save)


def _open(path: Path, size: tuple[int, int]) -> Image.Image:
    if path.exists():
        with Image.open(path) as before:
            if before.size == size:
                return before.convert("RGB")
    return Image.new("RGB", size, PAPER)
