"""`automix mix RUN|IMAGES`: what the mixed samples of a run, or of a method, look like."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from automix.cli._flags import Integer, Several
from automix.core.errors import AutomixError

if TYPE_CHECKING:
    from torch import Tensor

    from automix.tasks.task import Task

LARGEST = 1024  # px, of each image in the picture


def mix(
    *sources: Path,
    method: str = "cutmix",
    lams: Annotated[tuple[float, ...], Several] = (0.2, 0.5, 0.8),
    size: Integer = 128,
    out: Path | None = None,
) -> None:
    """Draw mixed samples and their masks over lam.

    For example:
      automix mix runs/x                        the run's test images
      automix mix runs/x a.jpg b.jpg            images of your own
      automix mix a.jpg b.jpg --method cutmix   a method that needs no network

    Args:
        sources: A run folder, images, or a run folder and images.
        method: The method to mix with, if no run is given.
        lams: Shares of the first image.
        size: Side of the images in pixels, if no run is given.
        out: The picture to write; RUN/pictures/mixed.png if not given, runs/mixed.png without a run.
    """
    from PIL import Image

    from automix.core.validation import check_range
    from automix.pictures.mixed_samples import draw_mixed_samples
    from automix.runs.folder import RunFolder

    if not sources:
        raise AutomixError("SOURCE is missing; automix mix [RUN] [IMAGE...]")
    check_range("size", size, 8, LARGEST)
    if out is not None and Image.registered_extensions().get(out.suffix.lower()) not in Image.SAVE:
        raise AutomixError(f"out must end in .png, .jpg or another format of images, got {str(out)!r}")
    first, *images = sources
    run = RunFolder(first)
    path = out or (run.pictures if run.is_run else Path("runs")) / "mixed.png"
    if run.is_run:
        task, x, y, mean, std = _from_run(first, images)
    else:
        task, x, mean, std = _from_images([first, *images], method, size)
        y = None
    picture = draw_mixed_samples(task, x, mean, std, lams=list(lams), y=y)
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)
    sys.stdout.write(f"{path}: {len(x)} pairs, lam {', '.join(f'{lam:g}' for lam in lams)}\n")


def _from_run(folder: Path, images: list[Path]) -> "tuple[Task, Tensor, Tensor | None, Tensor, Tensor]":
    """The task of a run, a batch, its labels if known, and mean and std of the pixels."""
    import torch

    from automix.core.normalization import normalize
    from automix.training.load import load_task, preview

    task, card, config = load_task(folder)
    mean, std = torch.tensor(card.mean), torch.tensor(card.std)
    if not images:
        x, y = preview(config)
        return task, x, y, mean, std
    return task, normalize(_read(images, card.image_size), mean, std), None, mean, std


def _from_images(images: list[Path], method: str, size: int) -> "tuple[Task, Tensor, Tensor, Tensor]":
    """The task of a method that needs no network, a batch, and mean and std of the pixels."""
    import torch

    from automix.methods import check_method, create_task

    check_method(method)
    try:
        task = create_task(method, torch.nn.Identity())
    except ValueError:
        task = None
    if task is None or getattr(task, "look", None) is not None:
        raise AutomixError(f"method {method!r} needs a network; pass a run folder before the images")
    return task, _read(images, size), torch.zeros(3), torch.ones(3)


def _read(paths: list[Path], size: int) -> "Tensor":
    """Read up to 8 images as squares in [0, 1]."""
    import torch

    from automix.deploy.image_files import list_images, read_square

    images = list_images(paths)
    if len(images) < 2:
        raise AutomixError(f"mix needs 2 images or more, or a run folder; got {len(images)} image")
    return torch.stack([read_square(path, size) for path in images[:8]]).float() / 255
