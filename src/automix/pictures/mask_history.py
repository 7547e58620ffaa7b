"""Mixed samples over training time: three pairs, and one column each time the task is looked at."""

from pathlib import Path

import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from automix.core.files import write_atomically
from automix.core.normalization import denormalize
from automix.pictures.grid import GAP, INK, MARGIN, PAPER, SMALL_FONT, paste_framed, to_image
from automix.tasks.task import Task

PAIRS = 3
SIDE = 64  # px: small images are enlarged by a whole factor to about this
HEADING = 20  # px above the columns, for their names
LAM = 0.5


def add_to_history(
    path: Path, task: Task, x: Tensor, y: Tensor, mean: Tensor, std: Tensor, *, column: int, columns: int, name: str
) -> None:
    """Draw the mixed samples of a task at lam 0.5, and their masks, as one column of a picture.

    The position of a column depends only on its number: a resumed run overwrites the columns that it draws again. The
    first column of the picture shows the images of the pairs.

    Args:
        path: The picture. It is created if it does not exist or has another size.
        task: The task, as it is now. It is not changed.
        x: Normalized images, ``(N, 3, H, W)``; the first four are used.
        y: Their classes, ``(N,)``.
        mean: Mean of each channel that `x` was normalized by.
        std: Standard deviation of each channel that `x` was normalized by.
        column: Number of the column, from 0.
        columns: How many columns the picture will have.
        name: Text above the column.
    """
    x, y = x[: PAIRS + 1], y[: PAIRS + 1]
    index = torch.arange(len(x), device=x.device).roll(1)
    mixed = task.mix(x, y, lam=LAM, index=index)
    images, partners, samples = (denormalize(tensor[1:], mean, std) for tensor in (x, x[index], mixed.x))

    scale = max(1, round(SIDE / max(x.shape[-2:])))
    height, width = (side * scale + GAP for side in x.shape[-2:])
    pair_height = 2 * height + GAP
    size = (2 * MARGIN + (columns + 1) * width - GAP, 2 * MARGIN + HEADING + len(images) * pair_height - 2 * GAP)
    picture = _open_or_create(path, size)
    draw = ImageDraw.Draw(picture)
    font = ImageFont.load_default(size=SMALL_FONT)
    for number, heading, tiles in ((0, "pair", (images, partners)), (column + 1, name, (samples, mixed.mask[1:]))):
        left = MARGIN + number * width
        draw.rectangle((left - 1, 0, left + width - 2, picture.height), fill=PAPER)
        draw.text((left, MARGIN), heading, fill=INK, font=font)
        for pair in range(len(images)):
            top = MARGIN + HEADING + pair * pair_height
            for row, tensors in enumerate(tiles):
                paste_framed(picture, to_image(tensors[pair], scale), left, top + row * height)
    write_atomically(path, picture.save)


def _open_or_create(path: Path, size: tuple[int, int]) -> Image.Image:
    if path.exists():
        with Image.open(path) as before:
            if before.size == size:
                return before.convert("RGB")
    return Image.new("RGB", size, PAPER)
