"""Pictures of mixed samples: what a task trains on.

picture = draw_mixed_samples(task, x, loader.mean, loader.std, title="AutoMix on shapes")
picture.save("mixed.png")
"""

from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor

from automix.core.blend import mask_spread
from automix.core.normalization import denormalize
from automix.pictures.grid import image_grid
from automix.tasks.task import Task

MAX_COLUMNS = 8


def draw_mixed_samples(
    task: Task,
    x: Tensor,
    mean: Tensor,
    std: Tensor,
    lams: Sequence[float] = (0.2, 0.5, 0.8),
    title: str = "",
    y: Tensor | None = None,
) -> Image.Image:
    """Draw images, their partners, and the masks and mixed samples for several lam.

    The partner of an image is the one to its left. In a mask, white is the image and black its partner.

    Args:
        task: The task that mixes. It is not changed.
        x: Normalized images, ``(N, C, H, W)``; the first eight are used.
        mean: Mean of each channel that `x` was normalized by.
        std: Standard deviation of each channel that `x` was normalized by.
        lams: Shares of the image, in [0, 1]; two rows for each.
        title: Text above the picture.
        y: Classes of the images, ``(N,)``, for methods that look at the class (their saliency or attention).

    Returns:
        The picture.
    """
    x, y = x[:MAX_COLUMNS], None if y is None else y[:MAX_COLUMNS]
    index = torch.arange(len(x), device=x.device).roll(1)
    rows = {"image": denormalize(x, mean, std), "partner": denormalize(x[index], mean, std)}
    for lam in lams:
        mixed = task.mix(x, y, lam=lam, index=index)
        measured = f"mean {mixed.mask.mean():.2f}\nspread {mask_spread(mixed.mask).mean():.2f}"
        rows |= {f"mask, lam {lam:g}\n{measured}": mixed.mask, f"mixed\nlam {lam:g}": denormalize(mixed.x, mean, std)}
    return image_grid(rows, title, note="mask: white is the image, black its partner")
