"""Does the paper's Mix Block learn, and do its masks follow lam? Trainings that start from a good classifier.

    AUTOMIX_DATA=... python benchmarks/paper_block.py birds --run raw-0.0002 raw-0.002 trained+short-0.08
    AUTOMIX_DATA=... python benchmarks/paper_block.py birds --table --picture docs/pictures/paper-block-birds.png
    python benchmarks/paper_block.py shapes --steps 300

First a network learns from clean images: EfficientNet-Lite0 with ImageNet weights on the birds (96 px, batches of 16,
two frozen stages), or a ten-layer ResNet on `shapes` (24 px, batches of 50). Then AutoMix goes on from it, with
``preset="paper"``. A variant is FORM-RATE or FORM+FORM-RATE, where RATE is the learning rate of the block:

- raw: the block as published. Only the block learns, against the classifier as it is.
- trained: the whole of Algorithm 1, the student at half its first learning rate.
- joint: Algorithm 1 without the momentum pipeline and the clean loss, one loss for student and block.
- normalized: ``normalize=True``.
- persample: ``per_sample=True``, a lam for every sample instead of one for the batch.
- gamma10: ``gamma=10``, a hundred times the paper's.
- short: the map is divided by 20 and the first weights of its channels multiplied by 20. The first masks are the same,
  but the map is nearly as short for the optimizer as the channel of lam.

There is one head, because the first classifier has one.

Every 50 steps: the spread of the masks at lam 0.5, their means at three lam, how often the classifier's first two
answers are the two classes of a mixed sample, and its loss there, beside Mixup's samples of the same pairs.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix import AutoMix, create_model, mixup
from automix.core.accuracy import pair_correct
from automix.core.blend import mask_spread
from automix.core.draws import step_generator
from automix.data import Data
from automix.evaluation.plots import new_figure
from automix.methods.automix.mix_block import MixBlock
from automix.networks.freeze import freeze_stages
from automix.runs.config import TrainConfig
from automix.training.build import build_data
from automix.training.distributed import World

LAMS = (0.3, 0.5, 0.7)
OUT = Path("runs/paper-block")
NARROW = {"layers": [1, 1, 1, 1], "channels": [16, 32, 64, 128]}
REGIMES: dict[str, dict[str, Any]] = {
    "birds": {
        "config": {"data": "birds", "recipe": "finetune", "train_size": 96, "test_size": 96, "batch_size": 16},
        "model": {"name": "tf_efficientnet_lite0", "pretrained": True, "image_size": 96},
        "frozen": 2, "lr": 0.02, "first": 600, "steps": 600, "pairs": 96,
    },
    "shapes": {
        "config": {
            "data": "shapes", "recipe": "quick", "train_size": 24, "test_size": 24, "batch_size": 50, "per_class": 25,
        },
        "model": {"name": "resnet18", "image_size": 24, **NARROW},
        "frozen": 0, "lr": 0.1, "first": 600, "steps": 1500, "pairs": 240,
    },
}  # fmt: skip
VARIANTS = {
    "birds": ("raw-0.2", "raw-0.0002", "raw-0.002", "short-0.08", "trained+short-0.08", "joint+short-0.08"),
    "shapes": ("raw-0.1", "raw-0.01", "trained-0.01", "joint-0.01"),
}
FORMS: dict[str, dict[str, Any]] = {
    "raw": {},
    "trained": {},
    "joint": {"momentum": None, "aux_loss": "none"},
    "normalized": {"normalize": True},
    "persample": {"per_sample": True},
    "gamma10": {"gamma": 10.0},
    "short": {},
}
"""Settings that a form changes."""
SHORTER = 20.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("regime", choices=REGIMES)
    parser.add_argument("--run", nargs="*", metavar="FORM-LR", help="variants, such as raw-0.002")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--table", action="store_true", help="print what was measured before instead of running")
    parser.add_argument("--picture", type=Path, help="draw the masks of what was measured before")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.table:
        print(table(finished(arguments.regime, arguments.run)))
    if arguments.picture:
        draw(arguments.regime, finished(arguments.regime, arguments.run), arguments.picture)
    if not (arguments.table or arguments.picture):
        for variant in arguments.run or VARIANTS[arguments.regime]:
            run(arguments.regime, variant, arguments.steps, arguments.every)


def run(name: str, variant: str, steps: int | None, every: int) -> None:
    """Train one variant, print and keep what is measured."""
    regime = REGIMES[name]
    steps = steps or regime["steps"]
    named, _, rate = variant.rpartition("-")
    forms = named.split("+")
    config = TrainConfig.from_flat({"workers": 0, **regime["config"]})
    data = build_data(config, World())
    loader = data.loader
    torch.manual_seed(0)
    network = first_classifier(name, data)
    options = {key: value for form in forms for key, value in FORMS[form].items()}
    student_lr = regime["lr"] / 2
    options["block_lr"] = float(rate) / student_lr
    task = AutoMix(network, preset="paper", mixed_head=False, total_steps=steps, **options)
    if "short" in forms:
        shorten_map(task.mix_block)
    task.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    trained = "trained" in forms or "joint" in forms
    groups = [group for group in task.param_groups(lr=student_lr) if trained or group["name"] == "mix_block"]
    optimizer = torch.optim.SGD(groups, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    x_test, y_test = loader.preview(regime["pairs"])
    batches = loader.batches(0, steps)
    for step in range(steps + 1):
        if step % every == 0:
            record = {"step": step, **measure(task, x_test, y_test)}
            keep(name, variant, record, task, x_test, y_test)
            print(variant, {key: round(value, 3) for key, value in record.items()}, flush=True)
        if step == steps:
            break
        x, y = next(batches)
        loss = task(x, y).loss if trained else block_loss(task, x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if trained:
            task.update()
        else:
            task.step, task.progress = step + 1, (step + 1) / steps


@torch.no_grad()
def shorten_map(block: MixBlock) -> None:
    """Divide the maps that a new block gets by `SHORTER`, and let it start with the same masks."""
    for weight in (block.w_p.weight, block.value_weight):
        weight[:, :-1] *= SHORTER  # the last channel is lam
    block.register_forward_pre_hook(lambda _, maps: (maps[0] / SHORTER, maps[1] / SHORTER, *maps[2:]))


def block_loss(task: AutoMix, x: Tensor, y: Tensor) -> Tensor:
    """The block's part of Eq. 8 alone."""
    generator = step_generator(task.seed, task.step)
    with torch.no_grad():
        z = task.tap(task.classifier, x)
    return torch.stack(list(task.generation_losses(x, y, z, task.draw(x, generator), generator).values())).sum()


def first_classifier(name: str, data: Data) -> nn.Module:
    """Train the network on clean images, or read it from an earlier call."""
    regime, file = REGIMES[name], OUT / f"{name}.pt"
    options = dict(regime["model"])
    network = create_model(options.pop("name"), num_classes=len(data.classes), **options)
    freeze_stages(network, regime["frozen"])
    if file.exists():
        network.load_state_dict(torch.load(file, weights_only=True))
        return network
    steps = regime["first"]
    network.to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(trained, regime["lr"], momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    batches = data.loader.batches(0, steps)
    for _ in range(steps):
        x, y = next(batches)
        loss = F.cross_entropy(network(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    OUT.mkdir(parents=True, exist_ok=True)
    torch.save(network.state_dict(), file)
    return network


@torch.no_grad()
def measure(task: AutoMix, x: Tensor, y: Tensor) -> dict[str, float]:
    """Masks and the classifier's answers on pairs of test images, beside Mixup's samples at lam 0.5."""
    index = torch.arange(len(x)).roll(1)
    mixed = {lam: task.mix(x, y, lam=lam, index=index) for lam in LAMS}
    numbers = {f"mean_at_{lam}": float(sample.mask.mean()) for lam, sample in mixed.items()}
    numbers["spread"] = float(mask_spread(mixed[0.5].mask).mean())
    task.classifier.eval()
    for name, sample in (("mixed", mixed[0.5]), ("mixup", mixup(x, y, lam=0.5, index=index))):
        logits = task.classifier(sample.x)
        numbers[f"top2_{name}"] = 100 * float(pair_correct(logits, y, y[index])[1].float().mean())
        numbers[f"loss_{name}"] = float(sample.target.loss(logits))
    numbers["top1_clean"] = 100 * float((task.classifier(x).argmax(dim=1) == y).float().mean())
    task.train()
    return numbers


def keep(name: str, variant: str, record: dict[str, float], task: AutoMix, x: Tensor, y: Tensor) -> None:
    """Append the numbers to a file, and keep the masks of some pairs."""
    folder = OUT / f"{name}-{variant}"
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "numbers.json"
    earlier = json.loads(file.read_text()) if record["step"] and file.exists() else []
    file.write_text(json.dumps([*earlier, record], indent=0))
    x, y = x[:6], y[:6]
    mixed = task.mix(x, y, lam=0.5, index=torch.arange(len(x)).roll(1))
    torch.save({"x": x, "mixed": mixed.x, "mask": mixed.mask}, folder / f"{record['step']:.0f}.pt")


def finished(name: str, variants: list[str] | None) -> dict[str, list[dict[str, float]]]:
    """The kept numbers by variant, of all variants if none is named."""
    names = variants or sorted(file.parent.name.partition("-")[2] for file in OUT.glob(f"{name}-*/numbers.json"))
    return {variant: json.loads((OUT / f"{name}-{variant}" / "numbers.json").read_text()) for variant in names}


def table(variants: dict[str, list[dict[str, float]]]) -> str:
    """Some of the numbers of each variant, from the first to the last."""
    lines = ["| block | step | spread | mean at lam 0.3, 0.5, 0.7 | top-2 % | loss | Mixup: top-2 %, loss |"]
    lines.append("| --- | ---: | ---: | --- | ---: | ---: | --- |")
    for variant, records in variants.items():
        last = len(records) - 1
        for record in (records[place] for place in sorted({0, (last + 1) // 4, (last + 1) // 2, last})):
            means = ", ".join(f"{record[f'mean_at_{lam}']:.2f}" for lam in LAMS)
            lines.append(
                f"| {variant} | {record['step']:.0f} | {record['spread']:.3f} | {means} | {record['top2_mixed']:.1f} | "
                f"{record['loss_mixed']:.2f} | {record['top2_mixup']:.1f}, {record['loss_mixup']:.2f} |"
            )
    return "\n".join(lines)


def draw(name: str, variants: dict[str, list[dict[str, float]]], path: Path, columns: int = 6, pairs: int = 2) -> None:
    """Draw the masks of each variant over time, beside the mixed samples where the images are drawn by a program."""
    columns = min(columns, *(len(records) for records in variants.values()))
    shown = ("mask",) if name == "birds" else ("mixed", "mask")  # the photographs are not ours to publish
    rows = pairs * len(variants)
    figure, _ = new_figure((0.25 + 0.95 * len(shown)) * columns + 0.6, 1.12 * rows)
    figure.clear()
    axes = figure.subplots(rows, columns, squeeze=False)
    for number, (variant, records) in enumerate(variants.items()):
        for column in range(columns):
            step = records[round(column * (len(records) - 1) / (columns - 1))]["step"]
            kept = torch.load(OUT / f"{name}-{variant}" / f"{step:.0f}.pt", weights_only=True)
            for pair in range(pairs):
                axis = axes[number * pairs + pair, column]
                axis.imshow(torch.cat([pixels(kept[which][pair]) for which in shown], dim=1).numpy())
                axis.axis("off")
            axes[number * pairs, column].set_title(f"{variant}\nstep {step:.0f}", fontsize=7)
    figure.savefig(path, dpi=80)


def pixels(image: Tensor) -> Tensor:
    """A normalized image, or a mask, as (H, W, 3) in [0, 1], with a white line at its left."""
    if len(image) == 3:
        image = (image - image.min()) / (image.max() - image.min())
    line = torch.ones(3, image.shape[-2], max(image.shape[-1] // 24, 1))
    return torch.cat([line, image.expand(3, -1, -1)], dim=2).permute(1, 2, 0)


if __name__ == "__main__":
    main()
