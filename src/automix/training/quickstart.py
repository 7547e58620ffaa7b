"""The quickstart: plain training and AutoMix side by side, on photographs if there are any, else on drawn shapes.

Each run on photographs is what this command does, with --method vanilla or automix and --seed 0, 1, ...:

    automix train birds --train-size 96 --test-size 96 --epochs 20

and each run on shapes

    automix train shapes --train-size 24 --test-size 24 --per-class 25 --batch-size 50 --epochs 180 --ema \\
        --lr 0.2 --eval-every 60 --model-options.layers [1,1,1,1] --model-options.channels [8,16,32,64]

where the learning rate suits plain training: it reaches 87.8 % with 0.1, 90.7 % with 0.2 and 91.4 % with 0.4 (three
runs each).
"""

import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automix.data.datasets import data_root
from automix.networks import available_offline
from automix.runs.config import TrainConfig
from automix.training import train
from automix.training.defaults import DEFAULT_MODEL, complete_settings
from automix.training.display import choose_display

METHODS = ("vanilla", "automix")
PHOTOGRAPHS = {"birds": "birds", "oxford-iiit-pet": "pets"}  # folder and name of the dataset
PHOTOS: dict[str, Any] = {"train_size": 96, "test_size": 96, "epochs": 20}
SHAPES: dict[str, Any] = {
    "data": "shapes",
    "recipe": "quick",
    "ema": True,
    "train_size": 24,
    "test_size": 24,
    "per_class": 25,
    "batch_size": 50,
    "lr": 0.2,
    "epochs": 180,
    "model_options": {"layers": [1, 1, 1, 1], "channels": [8, 16, 32, 64]},
}
EVALUATIONS = 3


@dataclass(frozen=True)
class Quickstart:
    """What the quickstart trains.

    Attributes:
        settings: Settings of `TrainConfig` and of its recipe, by name.
        seeds: Runs of each method.
    """

    settings: dict[str, Any]
    seeds: int


@dataclass(frozen=True)
class MethodResult:
    """The runs of one method.

    Attributes:
        accuracies: Top-1 accuracy in % of the momentum teacher, by seed.
        seconds: Time of all runs.
    """

    accuracies: list[float]
    seconds: float


def choose_quickstart() -> Quickstart:
    """Choose photographs if there are any, and weights to start from; else drawn images.

    Returns:
        What to train.
    """
    name = next((name for folder, name in PHOTOGRAPHS.items() if (data_root() / folder).is_dir()), None)
    if name is None or DEFAULT_MODEL not in available_offline():
        return Quickstart(SHAPES, seeds=2)
    return Quickstart({"data": name, **PHOTOS}, seeds=1)


def compare_methods(settings: dict[str, Any], seeds: int, out: Path) -> dict[str, MethodResult]:
    """Train with each method.

    Args:
        settings: Settings that the runs share.
        seeds: Runs of each method.
        out: Folder of the runs; runs in it are replaced.

    Returns:
        The results by method.
    """
    accuracies: dict[str, list[float]] = {method: [] for method in METHODS}
    seconds = dict.fromkeys(METHODS, 0.0)
    for seed in range(seeds):
        for method in METHODS:
            config = _configure(settings, method, seed, _run_folder(out, method, seed))
            summary = train(config, overwrite=True, display=choose_display())
            accuracies[method].append(summary["teacher_top1"])  # both have a momentum teacher
            seconds[method] += summary["seconds"]
    return {method: MethodResult(accuracies[method], seconds[method]) for method in METHODS}


def describe_comparison(settings: dict[str, Any], results: dict[str, MethodResult], out: Path) -> str:
    """Say what came out, and what to do next.

    Args:
        settings: Settings that the runs share.
        results: Those of `compare_methods`.
        out: Folder of the runs.

    Returns:
        Some lines for people.
    """
    seeds = len(results[METHODS[0]].accuracies)
    runs = "1 run each" if seeds == 1 else f"{seeds} runs each"
    lines = [f"Test accuracy on {settings['data']} after {settings['epochs']} epochs, {runs}, and minutes:"]
    for method, result in results.items():
        spread = f" +- {statistics.stdev(result.accuracies):.2f}" if seeds > 1 else ""
        lines.append(f"  {method:8} {statistics.mean(result.accuracies):.2f}{spread} %   {result.seconds / 60:.1f}")
    run = _run_folder(out, METHODS[-1], 0)
    lines.append(f"Mixed samples and masks: {run / 'pictures'}")
    lines.append(f"Try the classifier on your own images: automix predict {run} IMAGE...")
    return "\n".join(lines)


def _run_folder(out: Path, method: str, seed: int) -> Path:
    return out / f"{method}-{seed}"


def _configure(settings: dict[str, Any], method: str, seed: int, folder: Path) -> TrainConfig:
    values = complete_settings({**settings, "method": method, "seed": seed, "out": str(folder)})
    return TrainConfig.from_flat({**values, "eval_every": max(1, settings["epochs"] // EVALUATIONS)})
