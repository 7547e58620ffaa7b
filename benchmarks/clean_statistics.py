"""How much does mixing spoil BatchNorm's statistics? They are those of mixed images, and test images are clean.

    AUTOMIX_DATA=... python benchmarks/clean_statistics.py runs/bench/cifar100-resnet18-mixup-*

For each run the teacher's accuracy, and that with statistics of two epochs of clean training images instead.
"""

import sys
from pathlib import Path

import torch
from torch.optim.swa_utils import update_bn

from automix.training.accuracy import measure_accuracy
from automix.training.build import build_data
from automix.training.distributed import World
from automix.training.hardware import autocast, choose_precision
from automix.training.load import load_task

CPU = torch.device("cpu")


def compare(folder: Path) -> tuple[str, float, float]:
    """The method, and the teacher's accuracies in percent."""
    task, _, config = load_task(folder)
    if task.teacher is None:
        raise ValueError(f"{folder}: it has no teacher; accepted are runs of automix, or with --ema")
    precision = choose_precision(config.precision, config.settings.mixed_precision, CPU)
    loader = build_data(config, World()).loader

    def accuracy() -> float:
        return measure_accuracy(task, loader.test_batches(), CPU, precision, World())["teacher_top1"]

    before = accuracy()
    with autocast(precision, CPU):
        update_bn(loader.batches(0, 2 * loader.plan.steps_per_epoch), task.teacher)
    return config.method, before, accuracy()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        method, mixed, clean = compare(Path(name))
        print(f"{name}: {method} {mixed:.2f}, clean statistics {clean:.2f}", flush=True)
