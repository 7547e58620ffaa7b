"""Methods and variants of AutoMix side by side, each cell a run folder: the tables of docs/lab/2026-11-mix-block.md.

    python benchmarks/regimes.py a mixup 0                 one cell: regime, variant, seed
    python benchmarks/regimes.py --list a 3 mixup cutmix   the lines of a grid of 3 seeds, for xargs
    python benchmarks/regimes.py --table                   the table of finished runs, medians of the last ten epochs

A finished cell is not repeated, an interrupted one is resumed. Two at a time, on two cores:

    export OMP_NUM_THREADS=1 AUTOMIX_DATA=...
    python benchmarks/regimes.py --list a 3 vanilla mixup | xargs -P 2 -L 1 python benchmarks/regimes.py
"""

import json
import statistics
import sys
from pathlib import Path
from typing import Any

from automix.runs.config import TrainConfig
from automix.studies.plan import all_settings
from automix.studies.replica import ALGORITHM1, CIFAR_CUT, LONG, MORE_IMAGES, NO_CLASS_VECTORS, SHAPES
from automix.studies.settings import Values, merge_values
from automix.training import train

RUNS = Path("runs/regimes")

REGIMES: dict[str, Values] = {
    "a": CIFAR_CUT,  # 20 classes x 100 images, 5,022 steps of 32: the replica's
    # in the time of 81 epochs of AutoMix with two passes: 134 of its form with one pass, 161 of plain training
    "a-134": {**CIFAR_CUT, "epochs": 134},
    "a-161": {**CIFAR_CUT, "epochs": 161},
    "b": MORE_IMAGES,  # 20 x 500, 5,928 steps: every image 19 times
    "d": {**CIFAR_CUT, "per_class": 50, "epochs": 162},  # 20 x 50, 5,022 steps: every image twice as often
    "a-short": {**CIFAR_CUT, "epochs": 80, "batch_size": 100},  # 1,600 steps
    "a-long": LONG,  # 5,000 steps
    "shapes": SHAPES,  # 2,400 steps: the replica's
    "shapes-664": {**SHAPES, "epochs": 664},  # equal time again: one pass, and plain training
    "shapes-796": {**SHAPES, "epochs": 796},
    "quickstart": {  # 1,080 steps: that of `automix quickstart`
        **SHAPES,
        "model_options": {"layers": [1, 1, 1, 1], "channels": [8, 16, 32, 64]},
        "epochs": 180,
        "lr": 0.2,
        "eval_every": 60,
    },
    "shapes-short": {**SHAPES, "epochs": 200, "eval_every": 20},  # 1,200 steps
}

BASELINES: dict[str, tuple[str, dict[str, Any]]] = {
    "vanilla": ("vanilla", {}),
    "mixup": ("mixup", {"alpha": 1.0}),
    "mixup-alpha-2": ("mixup", {"alpha": 2.0}),
    "mixup-until-0.7": ("mixup", {"alpha": 1.0, "mix_until": 0.7}),
    "mixup-ce": ("mixup", {"alpha": 1.0, "one_hot_loss": True}),  # with an auxiliary loss, as AutoMix has
    "mixup-lr-0.05": ("mixup", {"alpha": 1.0}),
    "mixup-lr-0.2": ("mixup", {"alpha": 1.0}),
    "double-mixup": ("mixup", {"alpha": 1.0}),  # twice the batch in as many steps
    "cutmix": ("cutmix", {"alpha": 1.0}),
    "cutmix-alpha-0.2": ("cutmix", {"alpha": 0.2}),  # the paper's on CIFAR
    "cutmix-until-0.7": ("cutmix", {"alpha": 0.2, "mix_until": 0.7}),
    "cutmix-ce": ("cutmix", {"alpha": 1.0, "one_hot_loss": True}),
    "cutmix-lr-0.2": ("cutmix", {"alpha": 1.0}),
    "vanilla-lr-0.05": ("vanilla", {}),
    "vanilla-lr-0.2": ("vanilla", {}),
}

HALF = {"aux_loss": "none", "mix_share": 0.5, "rest": "mixup-ramp"}
TUNED: dict[str, dict[str, Any]] = {
    "tuned": {},
    "tuned-fast": {"preset": "fast"},
    "half": HALF,
    "half-sum": {**HALF, "block_lr": 0.15},  # the losses of the two halves added, as those of "tuned" are
    "tuned-flat": {"lam_margin": 0.5},  # Mixup's samples in place of the block's
    "tuned-aux-mixup": {"aux_loss": "mixup"},
    "tuned-aux-mixup-alpha-1": {"aux_loss": "mixup", "alpha": 1.0},
    "smooth": {"class_vectors": False},
    "paper": {"preset": "paper"},
}

# All of these have NO_CLASS_VECTORS, too
NO_VECTORS: dict[str, dict[str, Any]] = {
    "no-vectors": {},
    "fast": {"preset": "fast"},
    "fast-quarter": {"preset": "fast", "block_share": 0.25},
    "fast-flat": {"preset": "fast", "lam_margin": 0.5},
    "flat": {"lam_margin": 0.5, "block_share": 0.03},
    "mixed-end": {"mix_until": 1.0},
    "until-0.5": {"mix_until": 0.5},
    "until-0.85": {"mix_until": 0.85},
    "whole-batch": {"block_share": 1.0},
    "aux-none": {"aux_loss": "none"},
    "aux-mixup": {"aux_loss": "mixup"},
    "aux-clean": {"aux_loss": "clean"},
    "aux-none-alpha-1": {"aux_loss": "none", "alpha": 1.0},
    "alpha-1": {"alpha": 1.0},
    "alpha-0.5": {"alpha": 0.5},
    "per-sample": {"per_sample": True},
    "bilinear": {"upsampling": "bilinear"},
    "layer-2": {"layer": 2},
    "block-lr-0.03": {"block_lr": 0.03},
    "block-lr-0.1": {"block_lr": 0.1},
    "block-lr-0.1-bilinear": {"block_lr": 0.1, "upsampling": "bilinear"},
    "block-lr-0.3": {"block_lr": 0.3},
    "block-lr-3": {"block_lr": 3.0},
    "no-local": {"local": False},
    "no-exact-mean": {"exact_mean": False},
    "averaged": {"block_lr": 2.0},
    "no-vectors-lr-0.05": {},
    "algorithm1": ALGORITHM1,
    "algorithm1-bilinear": {**ALGORITHM1, "upsampling": "bilinear"},
    "algorithm1-aux-mixup": {**ALGORITHM1, "aux_loss": "mixup"},
    "algorithm1-aux-none": {**ALGORITHM1, "aux_loss": "none"},
    "algorithm1-aux-mixup-no-local": {**ALGORITHM1, "aux_loss": "mixup", "local": False},
    "algorithm1-averaged": {**ALGORITHM1, "aux_loss": "mixup", "block_lr": 2.0},
}
VARIANTS = BASELINES
VARIANTS |= {name: ("automix", options) for name, options in TUNED.items()}
VARIANTS |= {name: ("automix", {**NO_CLASS_VECTORS, **options}) for name, options in NO_VECTORS.items()}

_AVERAGED = {"lr": 0.05, "weight_decay": 1e-3}  # the student's two losses averaged instead of added
SETTINGS: dict[str, dict[str, Any]] = {  # of variants that change the recipe
    "averaged": _AVERAGED,
    "algorithm1-averaged": _AVERAGED,
    "half-sum": {"lr": 0.2, "weight_decay": 2.5e-4},
    **{name: {"lr": 0.05} for name in VARIANTS if name.endswith("lr-0.05")},
    **{name: {"lr": 0.2} for name in VARIANTS if name.endswith("lr-0.2")},
}


def configure(regime: str, variant: str, seed: int) -> TrainConfig:
    method, options = VARIANTS[variant]
    own = {"method": method, "method_options": {name: v for name, v in options.items() if name != "preset"}}
    preset = {"preset": options["preset"]} if "preset" in options else {}
    values = merge_values(REGIMES[regime], {**own, **preset, "ema": True})
    if variant.startswith("double-"):
        values |= {name: 2 * all_settings(values)[name] for name in ("epochs", "batch_size")}
    values |= SETTINGS.get(variant, {})
    return TrainConfig.from_flat({**values, "seed": seed, "out": str(RUNS / regime / f"{variant}-{seed}")})


def table() -> None:
    for regime in REGIMES:
        scores: dict[str, list[float]] = {}
        for path in sorted((RUNS / regime).glob("*/summary.json")):
            variant = path.parent.name.rpartition("-")[0]
            scores.setdefault(variant, []).append(json.loads(path.read_text())["median_top1_of_last_epochs"])
        for variant, values in sorted(scores.items(), key=lambda item: -statistics.mean(item[1])):
            spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            print(f"| {regime} | {variant} | {statistics.mean(values):.2f}{spread} | {len(values)} |")


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] in ("-h", "--help"):
        sys.exit(__doc__)
    if arguments == ["--table"]:
        return table()
    if arguments[0] == "--list":
        regime, seeds, *variants = arguments[1:]
        for seed in range(int(seeds)):
            print(*(f"{regime} {variant} {seed}" for variant in variants), sep="\n")
        return None
    config = configure(arguments[0], arguments[1], int(arguments[2]))
    if not (config.folder / "summary.json").exists():
        train(config, resume=True)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
