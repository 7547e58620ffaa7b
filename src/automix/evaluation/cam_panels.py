"""What a classifier sees in mixed samples: the paper's Figure 3, and the tiles that it is laid out with.

For each pair of images and each way of mixing them: the mixed sample, and below it the maps (see evaluation/cam.py) of
the two classes that the classifier finds most probable. Where mixing kept both objects, these are the two classes of
the pair, and the maps lie on the two objects.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor, nn

from automix.core.validation import check_range, check_whole
from automix.evaluation.cam import class_maps, overlay, resize_maps
from automix.evaluation.mixers import Mixer
from automix.evaluation.samples import Samples, to_float
from automix.networks.modes import eval_mode
from automix.pictures.grid import FRAME, GAP, INK, MARGIN, PAPER, PENCIL

SIDE = 144  # px, about
CAPTION = 18  # px below an image
YES, NO = "#1d7a34", "#b02525"  # a class that is in the image, and one that is not


def cam_panels(
    model: nn.Module,
    samples: Samples,
    mixers: Mapping[str, Mixer],
    *,
    lam: float = 0.5,
    count: int = 4,
    method: str = "cam",
    layer: int | str = 4,
) -> Image.Image:
    """`count` pairs of images, mixed at `lam` by each of `mixers`, with the maps of the top-2 classes.

    The first two columns are the images themselves. A class is written in green where it is one of those shown.
    """
    check_range("lam", lam, 0, 1)
    check_whole("count", count, 1)
    if len(samples) < 2 or len(samples.classes) < 2:
        raise ValueError(
            f"{len(samples)} images of {len(samples.classes)} classes: accepted are 2 or more of both, to make pairs"
        )
    count = min(count, len(samples) // 2)
    part = next(samples.first(2 * count).parts(2 * count))
    x, y = to_float(part.images, next(model.parameters()).device), part.labels
    partner = torch.arange(len(x), device=x.device).roll(-count)  # the first half is paired with the second
    columns = {"image": x[:count], "partner": x[count : 2 * count]}
    shown = {"image": y[:count, None], "partner": y[count : 2 * count, None]}
    for name, mix in mixers.items():
        columns[name] = _mixed(name, mix, x, y.to(x.device), lam, partner)[:count]
        shown[name] = torch.stack([y[:count], y[count : 2 * count]], dim=1)
    rows: list[list[Tile]] = [[] for _ in range(3 * count)]
    for name, images in columns.items():
        tiles = _column(model, name, images, shown[name], samples.classes, method, layer)
        for pair, tiles_below in enumerate(tiles):
            for row, tile in enumerate(tiles_below, 3 * pair):
                rows[row].append(tile)
    note = f"mixed at lam {lam:g}; below, the maps of the two most probable classes: green are classes that are shown"
    return tile_grid(rows, ["sample", "map of\ntop 1", "map of\ntop 2"] * count, note=note, group=3)


def _mixed(name: str, mix: Mixer, x: Tensor, y: Tensor, lam: float, partner: Tensor) -> Tensor:
    mixed = mix(x, y, lam, partner)
    if not isinstance(mixed, Tensor) or mixed.shape != x.shape:
        given = tuple(mixed.shape) if isinstance(mixed, Tensor) else type(mixed).__name__
        raise ValueError(f"mixer {name!r} gives {given}: accepted are images of shape {tuple(x.shape)}")
    return mixed.detach()


def _column(
    model: nn.Module, name: str, x: Tensor, shown: Tensor, classes: Sequence[str], method: str, layer: int | str
) -> list[list["Tile"]]:
    """For each of the images `x`, which show the classes `shown` (N, 1 or 2): itself and the maps of its top 2."""
    with eval_mode(model), torch.no_grad():
        likely = model(x).softmax(dim=1).topk(2)
    maps, _ = class_maps(model, x, likely.indices, method, layer)
    images, _ = to_tile_size(x)
    names = [name if len(known) > 1 else f"{name}: {classes[known[0]]}" for known in shown.tolist()]
    tiles = [[Tile(*pair)] for pair in zip(to_images(images), names, strict=True)]
    for rank in range(likely.indices.shape[1]):
        hot = to_images(overlay_maps(images, resize_maps(maps[:, rank], (x.shape[2], x.shape[3]))))
        for number, label in enumerate(likely.indices[:, rank].tolist()):
            caption = f"{100 * float(likely.values[number, rank]):.0f} % {classes[label]}"
            tiles[number].append(Tile(hot[number], caption, YES if label in shown[number].tolist() else NO))
    return tiles


# --- tiles -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tile:
    """A picture with one line below it."""

    image: Image.Image
    caption: str = ""
    color: str = INK


def to_tile_size(images: Tensor) -> tuple[Tensor, float]:
    """Images (N, 3, S, S), uint8 or in [0, 1], as floats on the CPU of about `SIDE` px, and the factor that took.

    Small images are enlarged by a whole factor, so that their pixels stay pixels; large ones are shrunk.
    """
    floats = images.detach().cpu().float() / (1 if images.is_floating_point() else 255)
    size = images.shape[-1]
    if size <= SIDE:
        scale = round(SIDE / size)
        return floats.clamp(0, 1).repeat_interleave(scale, dim=2).repeat_interleave(scale, dim=3), scale
    small = F.interpolate(floats, size=(SIDE, SIDE), mode="bilinear", antialias=True)
    return small.clamp(0, 1), SIDE / size


def overlay_maps(images: Tensor, maps: Tensor) -> Tensor:
    """Images (N, 3, H, W) under their maps (N, h, w), which take their size."""
    large = F.interpolate(maps.detach().cpu().unsqueeze(1), size=images.shape[-2:], mode="bilinear", antialias=True)
    return overlay(images, large.squeeze(1))


def to_images(images: Tensor) -> list[Image.Image]:
    pixels = (images * 255).round().byte().permute(0, 2, 3, 1).numpy()
    return [Image.fromarray(np.ascontiguousarray(image)) for image in pixels]


def draw_boxes(image: Image.Image, boxes: Iterable[tuple[Tensor, str]]) -> Image.Image:
    """A copy with frames around `boxes` (x0 y0 x1 y1, x1 and y1 exclusive), each in its color."""
    image = image.copy()
    draw = ImageDraw.Draw(image)
    for box, color in boxes:
        x0, y0, x1, y1 = (round(end) for end in box.tolist())
        if x1 > x0 and y1 > y0:
            draw.rectangle((x0, y0, x1 - 1, y1 - 1), outline=color, width=2)
    return image


def tile_grid(rows: Sequence[Sequence[Tile]], names: Sequence[str], note: str = "", group: int = 1) -> Image.Image:
    """Rows of tiles, each with its name to the left; after `group` of them there is more space. `note` stands below."""
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
            draw.text((x, top + height + 2), _shortened(tile.caption, width, small), fill=tile.color, font=small)
    return picture


def _shortened(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    """`text`, or as much of it as fits."""
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "…") > width:
        text = text[:-1]
    return text.rstrip() + "…"
