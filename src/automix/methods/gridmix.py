"""GridMix (Baek, Bang and Shim, 2021): a chessboard of both images with its fields in random order.

The image is divided into grid x grid cells, and each cell comes whole from one of the two images, at the same place.
The share of x_i is lam ~ Beta(alpha, alpha); which cells are its own is drawn for each sample:

    s = 1 in round(lam * grid^2) cells drawn at random, 0 in the others        lam := mean(s)

Every part of the object has its chance to be seen, and none can be relied upon. For images that show one large object.
The mixing is built from the paper's abstract (grid-based, local); its second half, a loss on patch-level labels, is
left out. What other libraries call GridMix is I. Dobrynin's method: a regular pattern of holes in a random crop.
"""

import torch
from torch import Tensor

from automix.core.blend import at_least_float32, blend
from automix.core.draws import draw_index, draw_lam, draw_uniform
from automix.core.target import Mixed, MixedTarget
from automix.core.transform import MixTransform
from automix.core.validation import check_batch, check_whole


def gridmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    grid: int = 4,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    order: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix images `x` and labels `y`; `lam`, `index` and `order` are drawn from `generator` unless given.

    `order` (N, grid, grid) says which cells come first: x_i keeps those with the smallest numbers.
    """
    check_batch(x, y)
    check_whole("grid", grid, 1)
    if order is not None and order.shape != (len(x), grid, grid):
        raise ValueError(f"order has shape {tuple(order.shape)}: accepted is {(len(x), grid, grid)}")
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, generator=generator)
    order = draw_uniform(x, (len(x), grid, grid), generator) if order is None else order.to(x.device)
    mask = spread(first_cells(order, lam), x.shape[-2], x.shape[-1]).unsqueeze(1).to(at_least_float32(x).dtype)
    return Mixed(blend(x, index, mask), MixedTarget(y, y[index], mask.mean(dim=(1, 2, 3))), mask)


def first_cells(order: Tensor, lam: Tensor) -> Tensor:
    """True in the share `lam` of the cells of each grid in `order` (N, grid, grid), those with the smallest numbers."""
    rank = order.flatten(1).argsort(dim=1, stable=True).argsort(dim=1)
    count = (lam * rank.shape[1]).round()
    return (rank < count.reshape(-1, 1)).view_as(order)


def spread(cells: Tensor, height: int, width: int) -> Tensor:
    """Cells (N, rows, columns) as pixels (N, height, width); cell borders lie where they are most even."""

    def cell_of_pixel(pixels: int, count: int) -> Tensor:
        return torch.arange(pixels, device=cells.device) * count // pixels

    rows, columns = cell_of_pixel(height, cells.shape[1]), cell_of_pixel(width, cells.shape[2])
    return cells[:, rows[:, None], columns[None, :]]


class GridMix(MixTransform):
    """``x, soft = GridMix(alpha=1.0, num_classes=100)(x, y)``"""

    function = gridmix
