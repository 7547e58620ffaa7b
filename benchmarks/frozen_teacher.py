"""Variants of the Mix Block alone: each learns for a few steps against the frozen classifier of a finished run.

    python benchmarks/frozen_teacher.py RUN [--steps 200] [--images 8] [--constant]

Prints the classifier's loss on mixed samples, and how often it recognizes one (top-1) or both (top-2) of two test
images in them at lam 0.5. For comparison: Mixup's and CutMix's samples of the same pairs, and those of masks that are
optimized for each pair. Without a student, every difference comes from the block.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix import AutoMix, Mixed, MixedTarget, cutmix, mixup
from automix.core.accuracy import pair_correct
from automix.core.blend import blend, mask_spread
from automix.core.draws import step_generator
from automix.methods.automix.diagnostics import diagnose
from automix.methods.automix.exact_mean import bias_for_mean
from automix.studies.replica import NO_CLASS_VECTORS
from automix.training.build import build_data
from automix.training.distributed import World
from automix.training.load import load_task

NO_VECTORS = {"class_vectors": False}
NOT_SMOOTH = {"smooth": False, "upsampling": "nearest"}
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {"preset": "paper"},
    "normalized": {"preset": "paper", "normalize": True, "block_lr": 0.3},
    "normalized, exact mean": {**NO_VECTORS, **NOT_SMOOTH, "local": False},
    "normalized, exact mean, local": {**NO_VECTORS, **NOT_SMOOTH},
    "the same, block_lr 1": NO_CLASS_VECTORS,
    "normalized, exact mean, local, smooth and bilinear": NO_VECTORS,
    "normalized, exact mean, local, class vectors": NOT_SMOOTH,
    "tuned": {},
    "tuned, layer 2": {"layer": 2},
    "tuned, block_lr 0.1": {"block_lr": 0.1},
    "tuned, block_lr 1": {"block_lr": 1.0},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--images", type=int, help="images of a batch that the block learns from; all if not given")
    parser.add_argument("--constant", action="store_true", help="keep the learning rate constant")
    arguments = parser.parse_args()
    trained, _, config = load_task(arguments.run)
    loader = build_data(config, World()).loader
    x, y = loader.preview(400)
    index = torch.arange(len(x)).roll(1)
    print("| samples | loss at lam 0.5 | top-1 % | top-2 % | spread at 0.5 | mean at 0.2, 0.8 |\n" + "| --- " * 6 + "|")

    def loss(task: AutoMix, mixed: Mixed) -> float:
        with torch.no_grad():
            return float(mixed.target.loss(task.classifier(mixed.x)))

    for name, options in VARIANTS.items():
        torch.manual_seed(0)
        task = AutoMix(trained.deploy(), **options)
        task.train()
        learn(task, loader.batches(0, arguments.steps), arguments.steps, arguments.images, arguments.constant)
        numbers = diagnose(task, x, y)
        if name == "paper":
            others = {
                "Mixup": mixup(x, y, lam=0.5, index=index),
                "CutMix": cutmix(x, y, lam=0.5, index=index, generator=step_generator(0, 0)),
                "a mask optimized for each pair": optimize(task.classifier, x, y, index),
            }
            for other, mixed in others.items():
                with torch.no_grad():
                    hits = pair_correct(task.classifier(mixed.x), mixed.target.y_a, mixed.target.y_b)
                    found = [100 * correct.float().mean() for correct in hits]
                spread = "" if other == "CutMix" else f"{mask_spread(mixed.mask).mean():.2f}"
                print(f"| {other} | {loss(task, mixed):.3f} | {found[0]:.1f} | {found[1]:.1f} | {spread} | |")
        values = (numbers[key] for key in ("top1_on_mixed", "top2_on_mixed"))
        means = ", ".join(f"{numbers[f'mask_mean_at_{lam}']:.2f}" for lam in (0.2, 0.8))
        print(
            f"| {name} | {loss(task, task.mix(x, y, lam=0.5, index=index)):.3f} | "
            + " | ".join(f"{one:.1f}" for one in values)
            + f" | {numbers['mask_spread_at_0.5']:.2f} | {means} |",
            flush=True,
        )


def optimize(classifier: nn.Module, x: Tensor, y: Tensor, index: Tensor, cells: int = 8, steps: int = 40) -> Mixed:
    """Optimize masks of `cells` x `cells` at lam 0.5 for the classifier's loss on these pairs."""
    logit = torch.zeros(len(x), cells**2, requires_grad=True)
    optimizer = torch.optim.Adam([logit], lr=0.3)
    lam = torch.full((len(x),), 0.5)

    def mixed() -> Mixed:
        mask = torch.sigmoid(logit + bias_for_mean(logit, lam)).reshape(-1, 1, cells, cells)
        mask = F.interpolate(mask, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return Mixed(blend(x, index, mask), MixedTarget(y, y[index], lam), mask)

    for _ in range(steps):
        made = mixed()
        optimizer.zero_grad()
        (len(x) * made.target.loss(classifier(made.x))).backward()
        optimizer.step()
    with torch.no_grad():
        return mixed()


def learn(task: AutoMix, batches: Any, steps: int, images: int | None, constant: bool) -> None:
    """Train the Mix Block alone by SGD with 0.1 times its block_lr, with a cosine to 0 unless `constant`."""
    (group,) = (group for group in task.param_groups(lr=0.1) if group["name"] == "mix_block")
    optimizer = torch.optim.SGD([group], momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        x, y = (part[:images] for part in next(batches))
        generator = step_generator(task.seed, task.step)
        with torch.no_grad():
            z = task.tap(task.classifier, x)
        losses = task.generation_losses(x, y, z, task.draw(x, generator), generator)
        optimizer.zero_grad()
        torch.stack(list(losses.values())).sum().backward()
        optimizer.step()
        if not constant:
            schedule.step()
        task.step += 1


if __name__ == "__main__":
    main()
