"""`automix mix RUN|IMAGES`: what the mixed samples of a run, or of a method, look like."""

import sys
from pathlib import Path

import torch
from torch import Tensor, nn

from automix.cli._arguments import new_parser, parse
from automix.core.normalization import normalize
from automix.core.validation import check_range
from automix.methods import check_method, create_task
from automix.pictures.mixed_samples import mixed_samples
from automix.tasks.task import Task

LARGEST = 1024  # px, of each image in the picture

ABOUT = """Draw mixed samples and their masks over lam.

  automix mix runs/x                               the run's method and Mix Block on its own test images
  automix mix runs/x a.jpg b.jpg                   on images of yours
  automix mix a.jpg b.jpg --method cutmix          a method that needs no network
"""


def run(arguments: list[str]) -> None:
    parser = new_parser("mix", "[RUN] [IMAGE...] [flags]", ABOUT)
    parser.add_argument("sources", type=str, nargs="+", metavar="SOURCE", help="a run folder and/or images")
    parser.add_argument("--method", type=str, default="cutmix", help="how to mix, where no run is given")
    parser.add_argument("--lams", type=float, nargs="+", default=[0.2, 0.5, 0.8], help="shares of the first image")
    parser.add_argument("--size", type=int, default=128, help="side in pixels, where no run is given")
    parser.add_argument("--out", type=str, default="mixed.png", help="the picture")
    given = parse(parser, arguments)
    check_range("size", given.size, 8, LARGEST)
    first, *images = [Path(source) for source in given.sources]
    if (first / "config.yaml").is_file():
        task, x, y, mean, std = _from_run(first, images)
    else:
        task, x, mean, std = _from_images([first, *images], given.method, given.size)
        y = None
    picture = mixed_samples(task, x, mean, std, lams=given.lams, y=y)
    picture.save(given.out)
    sys.stdout.write(f"{given.out}: {len(x)} pairs, lam {', '.join(f'{lam:g}' for lam in given.lams)}\n")


def _from_run(folder: Path, images: list[Path]) -> tuple[Task, Tensor, Tensor | None, Tensor, Tensor]:
    from automix.training.load import load_task, preview

    task, card, config = load_task(folder)
    mean, std = torch.tensor(card.mean), torch.tensor(card.std)
    if not images:
        x, y = preview(config)
        return task, x, y, mean, std
    return task, normalize(_read(images, card.image_size), mean, std), None, mean, std


def _from_images(images: list[Path], method: str, size: int) -> tuple[Task, Tensor, Tensor, Tensor]:
    check_method(method)
    try:
        task = create_task(method, nn.Identity())
    except ValueError:
        task = None
    if task is None or getattr(task, "look", None) is not None:
        raise ValueError(f"method {method!r} needs a network: accepted is a run folder before the images")
    return task, _read(images, size), torch.zeros(3), torch.ones(3)


def _read(paths: list[Path], size: int) -> Tensor:
    from automix.deploy.image_files import list_images, read_square

    found = list_images(paths)
    if len(found) < 2:
        raise ValueError(f"{len(found)} image: accepted are 2 or more, or a run folder")
    return torch.stack([read_square(path, size) for path in found[:8]]).float() / 255
