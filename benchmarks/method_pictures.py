"""The pictures of docs/methods: the same eight images mixed by each method.

    python benchmarks/method_pictures.py [METHOD...]

Methods that use the network get one that was trained plainly on `shapes` for half a minute. StyleMix has no picture:
its encoder and decoder come from files that are not part of the project.
"""

import argparse
import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

import automix
from automix.core.normalization import denormalize
from automix.pictures.grid import image_grid
from automix.pictures.mixed_samples import draw_mixed_samples
from automix.runs.config import TrainConfig
from automix.runs.recipes import find_recipe
from automix.training import prepare
from automix.training.distributed import World
from automix.training.loop import training_step
from automix.training.signals import StopRequest

FOLDER = Path(__file__).parents[1] / "docs" / "pictures" / "methods"
WITHOUT = ("automix", "stylemix", "vanilla")  # AutoMix's own picture is a trained run's


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("methods", nargs="*", help="all that have a picture if not given")
    names = parser.parse_args().methods
    config = TrainConfig(
        data="shapes",
        method="vanilla",
        out="runs/pictures",
        per_class=100,
        model_options={"layers": [1, 1, 1, 1], "channels": [16, 32, 64, 128]},
        settings=replace(find_recipe("quick"), epochs=8, train_size=32, test_size=32, batch_size=50),
    )
    run = prepare(config, World(), resume=False, overwrite=True)
    batches = run.data.loader.batches(0, run.total_steps)
    run.task.train()
    for _ in range(run.total_steps):
        training_step(run, batches, StopRequest())
    classifier = run.task.deploy()
    token = automix.create_model("deit_tiny_patch16_224", num_classes=12, image_size=32, depth=2)
    x, y = run.data.loader.preview(8)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or [name for name in automix.methods() if name not in WITHOUT]:
        torch.manual_seed(0)
        task = automix.create_task(name, copy.deepcopy(token if name == "transmix" else classifier))
        mean, std = run.data.loader.mean, run.data.loader.std
        if name == "recursivemix":
            picture = draw_steps(x, y, mean, std)
        else:
            picture = draw_mixed_samples(task, x, mean, std, title=name, y=y)
        picture.quantize(256).save(FOLDER / f"{name}.png", optimize=True)  # a third of the size
        print(f"{name}.png")


def draw_steps(x: Tensor, y: Tensor, mean: Tensor, std: Tensor, steps: int = 3) -> Image.Image:
    """RecursiveMix step by step: the mixed images of one step are pasted into the images of the next."""
    rows: dict[str, Any] = {}
    previous = None
    for step in range(steps):
        images, labels = x.roll(step, 0), y.roll(step, 0)
        options = {
            "lam": 0.6,
            "index": torch.arange(len(x)).roll(3),
            "corner": torch.tensor([7, 5]),
            "num_classes": 12,
        }
        previous = automix.recursivemix(images, labels, previous=previous, **options)
        rows |= {
            f"images {step + 1}": denormalize(images, mean, std),
            f"mixed {step + 1}": denormalize(previous.x, mean, std),
        }
    return image_grid(
        rows,
        "recursivemix",
        note="lam 0.6; the first batch has its own images pasted, the others that of the batch before",
    )


if __name__ == "__main__":
    main()
