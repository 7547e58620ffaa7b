"""Random crops and flips of a whole batch at once, as tensor operations."""

import torch
import torch.nn.functional as F
from torch import Tensor

ATTEMPTS = 10  # to draw a box that fits, as torchvision


def crop_and_flip(x: Tensor, top: Tensor, left: Tensor, flip: Tensor, size: tuple[int, int]) -> Tensor:
    """Crop each image at its own corner and mirror some of them, in one indexing operation.

    Args:
        x: Images, ``(N, C, H, W)``.
        top: First row of each crop, ``(N,)``.
        left: First column of each crop, ``(N,)``.
        flip: Whether to mirror each crop, ``(N,)`` bool.
        size: Height and width of the crops.

    Returns:
        The crops, ``(N, C, *size)``, with the dtype of `x`.
    """
    height, width = size
    rows = top.view(-1, 1) + torch.arange(height)
    across = torch.arange(width)
    columns = left.view(-1, 1) + torch.where(flip.view(-1, 1), across.flip(0), across)
    samples, channels = torch.arange(len(x)).view(-1, 1, 1, 1), torch.arange(x.shape[1]).view(1, -1, 1, 1)
    return x[samples, channels, rows[:, None, :, None], columns[:, None, None, :]]


def draw_boxes(
    count: int,
    size: tuple[int, int],
    generator: torch.Generator,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> Tensor:
    """Draw the boxes of RandomResizedCrop.

    The first of ten attempts that fits is taken. If none fits, the box is the largest centered one whose ratio is in
    range.

    Args:
        count: Number of boxes.
        size: Height and width of the images.
        generator: Source of randomness.
        scale: Range of the area, as a share of the image; uniform.
        ratio: Range of the aspect ratio, width / height; log-uniform.

    Returns:
        Boxes ``(count, 4)`` int64: top, left, height, width.
    """
    height, width = size
    drawn = torch.rand(2, ATTEMPTS, count, generator=generator, dtype=torch.float64)
    area = height * width * (scale[0] + (scale[1] - scale[0]) * drawn[0])
    low, high = torch.tensor(ratio, dtype=torch.float64).log()
    aspect = (low + (high - low) * drawn[1]).exp()
    w, h = (area * aspect).sqrt().round().long(), (area / aspect).sqrt().round().long()
    fits = (w > 0) & (w <= width) & (h > 0) & (h <= height)
    first = fits.int().argmax(dim=0, keepdim=True)
    w, h, any_fits = w.gather(0, first)[0], h.gather(0, first)[0], fits.any(dim=0)
    place = torch.rand(2, count, generator=generator, dtype=torch.float64)
    top, left = (place[0] * (height - h + 1)).long(), (place[1] * (width - w + 1)).long()
    clipped = min(max(width / height, ratio[0]), ratio[1])
    w0, h0 = min(width, round(height * clipped)), min(height, round(width / clipped))
    centered = torch.tensor([(height - h0) // 2, (width - w0) // 2, h0, w0])
    return torch.where(any_fits.view(-1, 1), torch.stack([top, left, h, w], dim=1), centered)


def resized_crops(x: Tensor, boxes: Tensor, flip: Tensor, size: tuple[int, int]) -> Tensor:
    """Crop a box out of each image and enlarge it, bilinear, as torchvision's resized_crop without antialiasing.

    Meant for enlarging: to shrink images without aliasing would need a filter.

    Args:
        x: Images, ``(N, C, H, W)``.
        boxes: One box per image, ``(N, 4)``: top, left, height, width.
        flip: Whether to mirror each crop, ``(N,)`` bool.
        size: Height and width of the result.

    Returns:
        The crops, ``(N, C, *size)`` float32.
    """
    top, left, height, width = boxes.float().unbind(dim=1)
    rows = _centers(top, height, size[0])
    columns = _centers(left, width, size[1])
    columns = torch.where(flip.view(-1, 1), columns.flip(1), columns)
    # grid_sample's coordinates run from -1 to 1 between the outer edges of the image.
    rows, columns = (2 * rows + 1) / x.shape[2] - 1, (2 * columns + 1) / x.shape[3] - 1
    shape = (len(x), *size)
    grid = torch.stack([columns.unsqueeze(1).expand(shape), rows.unsqueeze(2).expand(shape)], dim=3)
    return F.grid_sample(x.float(), grid, mode="bilinear", padding_mode="border", align_corners=False)


def _centers(start: Tensor, length: Tensor, count: int) -> Tensor:
    """The centers, (N, count), of `count` pixels that cover [start, start + length), in pixels of the image.

    They are clamped to the centers of the outer pixels, so that pixels beside the box do not contribute.
    """
    start, length = start.view(-1, 1), length.view(-1, 1)
    inside = (torch.arange(count) + 0.5) * length / count - 0.5
    return start + torch.minimum(inside.clamp(min=0), length - 1)
