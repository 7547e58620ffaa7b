"""Pictures of detections."""

from collections.abc import Sequence

from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from automix.pictures.grid import INK, Tile, tile_grid, to_image
from automix.studies.detection.data import Objects

COLUMNS = 4
CELL = 240  # px: the side of the square that an image is fitted into
MIN_SCORE = 0.5  # boxes below it are not drawn; the best one always is
COLORS = ("#ff5c5c", "#ffb000", "#5ce65c", "#35c8ff", "#ff6ee0", "#c9a0ff", "#ffff66", "#8fa8ff")


def draw_detections(
    images: Sequence[Tensor],
    detections: Sequence[dict[str, Tensor]],
    objects: Sequence[Objects],
    classes: Sequence[str],
) -> Image.Image:
    """Draw images in rows of four, with annotated and detected boxes.

    Args:
        images: ``(3, H, W)`` uint8 each.
        detections: ``boxes``, ``labels`` (from 0) and ``scores`` of each image.
        objects: The annotated objects of each image.
        classes: Class names by label.

    Returns:
        The picture: annotated boxes in white, detections with class and score.
    """
    shown = zip(images, detections, objects, strict=True)
    tiles = [Tile(_draw_boxes(image, found, expected, classes)) for image, found, expected in shown]
    rows = [tiles[start : start + COLUMNS] for start in range(0, len(tiles), COLUMNS)]
    note = f"thin white: the objects; colored: the best detection, and all with a score of {MIN_SCORE:g} or more"
    return tile_grid(rows, title="Detections", note=note)


def _draw_boxes(image: Tensor, found: dict[str, Tensor], objects: Objects, classes: Sequence[str]) -> Image.Image:
    height, width = image.shape[-2:]
    scale = CELL / max(height, width)
    size = (max(1, round(width * scale)), max(1, round(height * scale)))
    smooth = Image.Resampling.NEAREST if scale > 2 else Image.Resampling.BILINEAR
    cell = to_image(image).resize(size, smooth)
    draw = ImageDraw.Draw(cell)
    for box in (objects.boxes * scale).tolist():
        draw.rectangle(box, outline="#ffffff")
    font = ImageFont.load_default(size=12)
    order = found["scores"].argsort(descending=True)
    count = max(1, int((found["scores"] >= MIN_SCORE).sum()))
    for number in order[:count].flip(0).tolist():  # the best on top
        label = int(found["labels"][number])
        color = COLORS[label % len(COLORS)]
        x0, y0, x1, y1 = (found["boxes"][number] * scale).tolist()
        draw.rectangle((x0, y0, x1, y1), outline=color, width=2)
        text = f"{classes[label]} {float(found['scores'][number]):.2f}"
        left = max(0.0, min(x0, size[0] - draw.textlength(text, font) - 4))
        top = y0 - 15 if y0 >= 15 else min(y1, size[1] - 15)
        draw.rectangle((left, top, left + draw.textlength(text, font) + 4, top + 15), fill=color)
        draw.text((left + 2, top), text, fill=INK, font=font)
    return cell
