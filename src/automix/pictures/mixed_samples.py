"""Pictures of mixed samples: what a task trains on, to look at.

picture = mixed_samples(task, x, loader.mean, loader.std, title="AutoMix on shapes")
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

MOST = 8  # columns


def mixed_samples(
    task: Task,
    x: Tensor,
    mean: Tensor,
    std: Tensor,
    lams: Sequence[float] = (0.2, 0.5, 0.8),
    title: str = "",
    y: Tensor | None = None,
) -> Image.Image:
    """The first images of `x`, their partners, and for each of `lams` the masks and the mixed samples.

    `x` is normalized by `mean` and `std`, one number per channel. The partner is the image to the left. White in a mask
    is the image, black the partner. The classes `y` are for methods that ask where a class is seen. The task stays.
    """
    x, y = x[:MOST], None if y is None else y[:MOST]
    index = torch.arange(len(x), device=x.device).roll(1)
    rows = {"image": denormalize(x, mean, std), "partner": denormalize(x[index], mean, std)}
    for lam in lams:
        mixed = task.mix(x, y, lam=lam, index=index)
        measured = f"mean {mixed.mask.mean():.2f}\nspread {mask_spread(mixed.mask).mean():.2f}"
        rows |= {f"mask, lam {lam:g}\n{measured}": mixed.mask, f"mixed\nlam {lam:g}": denormalize(mixed.x, mean, std)}
    return image_grid(rows, title, note="mask: white is the image, black its partner")
