"""Mix Blocks of the zoo: write one from a run, and try it on pets, which it never saw (docs/results/zoo.md).

    python benchmarks/zoo.py make RUN src/automix/methods/automix/zoo/NAME.safetensors
    python benchmarks/zoo.py masks docs/pictures/zoo-pets.png [--run RUN]
    python benchmarks/zoo.py cost [--rounds 20]

`masks` measures and draws the masks before the first step, those of the zoo's block beside those of a new one; with
--run, a run on pets, also how often its classifier recognizes both images. `cost` times training steps in turns.
Accuracies are those of `automix bench finetune --methods automix automix-zoo`.
"""

import argparse
import copy
import statistics
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import automix
from automix import AutoMix, TrainConfig
from automix.core.blend import mask_spread
from automix.core.normalization import denormalize
from automix.evaluation.profiling import noise, ratios, time_interleaved, training_step
from automix.methods import create_task
from automix.methods.automix.block_file import BlockCard, save_mix_block, without_classes
from automix.methods.automix.diagnostics import diagnose
from automix.networks.freeze import freeze_stages
from automix.pictures.grid import Tile, tile_grid, to_image
from automix.studies.finetune import SETTING, ZOO
from automix.training.load import load_task, preview

BACKBONE, SIZE, BATCH = "tf_efficientnet_lite0", 96, 16
FROZEN: dict[str, Any] = {"mix_block": ZOO, "block_lr": 0.0}
FINETUNE: dict[str, Any] = {"preset": "finetune"}
COSTS: dict[str, tuple[str, dict[str, Any]]] = {
    "Mixup": ("mixup", {}),
    "Mixup, teacher": ("mixup", {"ema": True}),
    "AutoMix, learning anew": ("automix", FINETUNE),
    "AutoMix, frozen block of the zoo": ("automix", {**FINETUNE, **FROZEN}),
    "the same, the whole batch mixed": ("automix", {**FINETUNE, **FROZEN, "mix_share": 1.0}),
}
COUNT = 256  # test images that masks are measured on
SHOWN = range(1, 6)  # of them, each mixed with the one before it


def make(run: Path, out: Path, about: str) -> None:
    """Write the block of a run without its class vectors, and a card measured on the run's test images."""
    task, facts, config = load_task(run)
    assert isinstance(task, AutoMix)
    x, y = preview(config, COUNT)
    with_classes = diagnose(task, x, y)
    task.mix_block = without_classes(task.mix_block)
    found = diagnose(task, x, y)
    for name in ("mask_spread_at_0.5", "top1_on_mixed", "top2_on_mixed"):
        print(f"{name}: {found[name]:.3f}, with class vectors {with_classes[name]:.3f}")
    card = BlockCard(
        backbone=config.model,
        weights="ImageNet",
        layer=config.effective_options.get("layer", 3),
        data=about,
        image_size=facts.train_size,
        mean=tuple(facts.mean),
        std=tuple(facts.std),
        steps=task.step,
        spread=round(found["mask_spread_at_0.5"], 3),
        top2=round(found["top2_on_mixed"], 1),
        top2_mixup=round(found["top2_on_mixup"], 1),
        top2_cutmix=round(found["top2_on_cutmix"], 1),
    )
    save_mix_block(out, task.mix_block, card)
    print(card)


def masks(picture: Path, run: Path | None) -> None:
    """Measure the masks on pets before the first step, and draw some of them."""
    x, y = preview(TrainConfig.from_flat({"data": "pets", **SETTING}), COUNT)
    index = torch.arange(len(x)).roll(1)
    torch.manual_seed(0)
    model = automix.create_model(BACKBONE, num_classes=37, image_size=SIZE, pretrained=True)
    tasks = {"new": AutoMix(model, **FINETUNE), "zoo": AutoMix(model, **FINETUNE, **FROZEN)}
    mixed = {name: task.mix(x, y, lam=0.5, index=index) for name, task in tasks.items()}
    for name, sample in mixed.items():
        print(f"before the first step, {name}: spread at lam 0.5 {mask_spread(sample.mask).mean():.3f}")
    if run is not None:
        trained, _, _ = load_task(run)
        assert isinstance(trained, AutoMix)
        blocks = {"its own block": trained.mix_block, "its own, without classes": without_classes(trained.mix_block)}
        for name, block in (blocks | {name: task.mix_block for name, task in tasks.items()}).items():
            trained.mix_block = block
            found = diagnose(trained, x, y)
            print(f"{run.name}, {name}: " + ", ".join(f"{key} {found[key]:.2f}" for key in found if "on_" in key))
    rows = []
    for place in SHOWN:
        pictures = {"image": x[place], "partner": x[index[place]]}
        row = [Tile(to_image(_pixels(pixels)), title) for title, pixels in pictures.items()]
        for name, sample in mixed.items():
            row.append(Tile(to_image(sample.mask[place]), f"mask, {name}"))
            row.append(Tile(to_image(_pixels(sample.x[place])), f"mixed, {name}"))
        rows.append(row)
    tile_grid(rows).save(picture)


def _pixels(image: Tensor) -> Tensor:
    return denormalize(image, SETTING["mean"], SETTING["std"])


def cost(rounds: int) -> None:
    """Time steps in turns, with the first two stages frozen as in the recipe."""
    torch.manual_seed(0)
    model = automix.create_model(BACKBONE, num_classes=37, image_size=SIZE, pretrained=True)
    freeze_stages(model, 2)
    steps = {}
    for name, (method, options) in COSTS.items():
        task = create_task(method, copy.deepcopy(model), low_memory=True, **options)
        steps[name] = training_step(task.to(memory_format=torch.channels_last).train())  # type: ignore[call-overload]
    seconds = time_interleaved(steps, *noise(model, 37, SIZE, BATCH, 0), rounds=rounds)
    print("| step | time, Mixup's is 1 | quartiles |\n| --- | --- | --- |")
    for name, taken in seconds.items():
        low, median, high = statistics.quantiles(ratios(taken, seconds["Mixup"]), n=4)
        print(f"| {name} | {median:.2f} | {low:.2f} to {high:.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    making = commands.add_parser("make")
    making.add_argument("run", type=Path)
    making.add_argument("out", type=Path)
    making.add_argument("--about", required=True, help="the training images, in words")
    drawing = commands.add_parser("masks")
    drawing.add_argument("picture", type=Path)
    drawing.add_argument("--run", type=Path)
    commands.add_parser("cost").add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    if given.command == "make":
        make(given.run, given.out, given.about)
    elif given.command == "masks":
        masks(given.picture, given.run)
    else:
        cost(given.rounds)


if __name__ == "__main__":
    main()
