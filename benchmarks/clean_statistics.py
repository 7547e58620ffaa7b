"""The effect of mixing on BatchNorm statistics, which are those of mixed images while test images are clean.

    AUTOMIX_DATA=... python benchmarks/clean_statistics.py runs/bench/cifar100-resnet18-mixup-*

Prints the teacher's accuracy of each run, and its accuracy with the statistics of two epochs of clean training images.
"""

import argparse
from pathlib import Path

import torch
from torch.optim.swa_utils import update_bn

from automix.core.errors import AutomixError
from automix.training.build import build_data
from automix.training.distributed import World
from automix.training.hardware import autocast, choose_precision
from automix.training.load import load_task
from automix.training.loop import measure_accuracy

CPU = torch.device("cpu")


def compare(folder: Path) -> tuple[str, float, float]:
    """Return the method and the teacher's accuracies in percent, before and after."""
    task, _, config = load_task(folder)
    if task.teacher is None:
        raise AutomixError(f"{folder}: the run has no teacher; pass a run of automix, or one with --ema")
    precision = choose_precision(config.precision, config.settings.mixed_precision, CPU)
    loader = build_data(config, World()).loader

    def accuracy() -> float:
        measured = measure_accuracy(task, loader.test_batches(), CPU, precision, World())
        assert measured is not None  # nothing asks it to stop
        return measured["teacher_top1"]

    before = accuracy()
    with autocast(precision, CPU):
        update_bn(loader.batches(0, 2 * loader.plan.steps_per_epoch), task.teacher)
    return config.method, before, accuracy()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, help="run folders")
    for folder in parser.parse_args().runs:
        method, mixed, clean = compare(folder)
        print(f"{folder}: {method} {mixed:.2f}, clean statistics {clean:.2f}", flush=True)
