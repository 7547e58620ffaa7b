"""Methods and forms of AutoMix side by side, each cell a run folder: the tables of docs/results/mix-block.md.

    python benchmarks/regimes.py a mixup 0                 one cell: regime, form, seed
    python benchmarks/regimes.py --list a 3 mixup cutmix   the lines of a grid of 3 seeds, to be fed to xargs
    python benchmarks/regimes.py --table                   the table of what is finished, medians of the last ten epochs

A cell that is finished is not run again, one that was interrupted goes on. Two at a time, on two cores:

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
from automix.studies.replica import BLIND, CIFAR_CUT, LONG, MORE_IMAGES, SHAPES
from automix.studies.settings import Values, merge_values
from automix.training import train

RUNS = Path("runs/regimes")

REGIMES: dict[str, Values] = {
    "a": CIFAR_CUT,  # 20 classes x 100 images, 5,022 steps of 32: the replica's
    "b": MORE_IMAGES,  # 20 x 500, 5,928 steps: every image 19 times
    "d": {**CIFAR_CUT, "per_class": 50, "epochs": 162},  # 20 x 50, 5,022 steps: every image twice as often
    "a-short": {**CIFAR_CUT, "epochs": 80, "batch_size": 100},  # 1,600 steps
    "a-long": LONG,  # 5,000 steps
    "shapes": SHAPES,  # 2,400 steps: the replica's
    "quickstart": {  # 1,080 steps: that of examples/quickstart.py
        **SHAPES,
        "model_options": {"layers": [1, 1, 1, 1], "channels": [8, 16, 32, 64]},
        "epochs": 180,
        "lr": 0.2,
        "eval_every": 60,
    },
    "shapes-short": {**SHAPES, "epochs": 200, "eval_every": 20},  # 1,200 steps
}

# Forms with the Mix Block as it was before it went by the labels (BLIND), and baselines
EXACT: dict[str, Any] = {"aux_loss": "clean", "block_share": 1.0, "mix_until": 1.0}
EARLIER: dict[str, tuple[str, dict[str, Any]]] = {
    "vanilla": ("vanilla", {}),
    "mixup": ("mixup", {"alpha": 1.0}),
    "mixup-alpha-2": ("mixup", {"alpha": 2.0}),
    "cutmix": ("cutmix", {"alpha": 1.0}),
    "cutmix-alpha-0.2": ("cutmix", {"alpha": 0.2}),  # the paper's on CIFAR
    "cutmix-until-0.7": ("cutmix", {"alpha": 0.2, "mix_until": 0.7}),
    "mixup-ce": ("mixup", {"alpha": 1.0, "one_hot_loss": True}),  # a second loss beside it, as AutoMix has
    "cutmix-ce": ("cutmix", {"alpha": 1.0, "one_hot_loss": True}),
    "double-mixup": ("mixup", {"alpha": 1.0}),  # twice the batch in as many steps
    "mixup-lr-0.2": ("mixup", {"alpha": 1.0}),
    "vanilla-lr-0.2": ("vanilla", {}),
    "cutmix-lr-0.2": ("cutmix", {"alpha": 1.0}),
    "automix": ("automix", {}),
    "fast": ("automix", {"preset": "fast"}),
    "exact": ("automix", {"aux_loss": "clean", "block_share": 1.0, "mix_until": 1.0}),
    "paper": ("automix", {"preset": "paper"}),
    "flat": (
        "automix",
        {"lam_margin": 0.5, "block_share": 0.03},
    ),  # AutoMix with Mixup's samples in place of the block's
    "mixed-end": ("automix", {"mix_until": 1.0}),
    "until-0.5": ("automix", {"mix_until": 0.5}),
    "until-0.85": ("automix", {"mix_until": 0.85}),
    "mixup-until-0.7": ("mixup", {"alpha": 1.0, "mix_until": 0.7}),
    "whole-batch": ("automix", {"block_share": 1.0}),
    "second-none": ("automix", {"aux_loss": "none"}),
    "second-mixup": ("automix", {"aux_loss": "mixup"}),
    "second-clean": ("automix", {"aux_loss": "clean"}),
    "none-alpha-1": ("automix", {"aux_loss": "none", "alpha": 1.0}),
    "alpha-1": ("automix", {"alpha": 1.0}),
    "alpha-0.5": ("automix", {"alpha": 0.5}),
    "per-sample": ("automix", {"per_sample": True}),
    "bilinear": ("automix", {"upsampling": "bilinear"}),
    "layer-2": ("automix", {"layer": 2}),
    "block-lr-0.1": ("automix", {"block_lr": 0.1}),
    "block-lr-0.1-bilinear": ("automix", {"block_lr": 0.1, "upsampling": "bilinear"}),
    "block-lr-0.03": ("automix", {"block_lr": 0.03}),
    "block-lr-0.3": ("automix", {"block_lr": 0.3}),
    "block-lr-3": ("automix", {"block_lr": 3.0}),
    "no-local": ("automix", {"local": False}),
    "drifting-mean": ("automix", {"exact_mean": False}),
    "exact-bilinear": (
        "automix",
        {**EXACT, "upsampling": "bilinear"},
    ),
    "exact-second-mixup": ("automix", {"block_share": 1.0, "mix_until": 1.0, "aux_loss": "mixup"}),
    "exact-second-none": ("automix", {"block_share": 1.0, "mix_until": 1.0, "aux_loss": "none"}),
    "exact-second-mixup-no-local": (
        "automix",
        {**EXACT, "aux_loss": "mixup", "local": False},
    ),
    "averaged": ("automix", {"block_lr": 2.0}),
    "fast-quarter": ("automix", {"preset": "fast", "block_share": 0.25}),
    "fast-flat": ("automix", {"preset": "fast", "lam_margin": 0.5}),  # Mixup's samples in place of the block's
    "mixup-lr-0.05": ("mixup", {"alpha": 1.0}),
    "automix-lr-0.05": ("automix", {}),
    "vanilla-lr-0.05": ("vanilla", {}),
    "exact-averaged": ("automix", {"block_share": 1.0, "mix_until": 1.0, "block_lr": 2.0, "aux_loss": "mixup"}),
}

# Forms of the present one
PRESENT: dict[str, tuple[str, dict[str, Any]]] = {
    "labels": ("automix", {}),
    "labels-fast": ("automix", {"preset": "fast"}),
    "labels-flat": ("automix", {"lam_margin": 0.5}),  # Mixup's samples in place of the block's
    "smooth": ("automix", {"class_vectors": False}),  # all of it but the labels
    "labels-second-mixup": ("automix", {"aux_loss": "mixup"}),
    "labels-second-mixup-alpha-1": ("automix", {"aux_loss": "mixup", "alpha": 1.0}),
}
FORMS = {form: (method, {**BLIND, **options} if method == "automix" and options.get("preset") != "paper" else options)
         for form, (method, options) in EARLIER.items()} | PRESENT  # fmt: skip

_HALF = {"lr": 0.05, "weight_decay": 1e-3}  # the student's two losses averaged instead of added
SETTINGS: dict[str, dict[str, Any]] = {  # where a form is one of the recipe
    "averaged": _HALF,
    "exact-averaged": _HALF,
    "mixup-lr-0.05": {"lr": 0.05},
    "automix-lr-0.05": {"lr": 0.05},
    "vanilla-lr-0.05": {"lr": 0.05},
    "mixup-lr-0.2": {"lr": 0.2},
    "vanilla-lr-0.2": {"lr": 0.2},
    "cutmix-lr-0.2": {"lr": 0.2},
}


def configure(regime: str, form: str, seed: int) -> TrainConfig:
    method, options = FORMS[form]
    values = merge_values(REGIMES[regime], {"method": method, "method_options": options, "ema": True})
    if form.startswith("double-"):
        values |= {name: 2 * all_settings(values)[name] for name in ("epochs", "batch_size")}
    values |= SETTINGS.get(form, {})
    return TrainConfig.from_flat({**values, "seed": seed, "out": str(RUNS / regime / f"{form}-{seed}")})


def table() -> None:
    for regime in REGIMES:
        scores: dict[str, list[float]] = {}
        for path in sorted((RUNS / regime).glob("*/summary.json")):
            form = path.parent.name.rpartition("-")[0]
            scores.setdefault(form, []).append(json.loads(path.read_text())["median_top1_of_last_epochs"])
        for form, values in sorted(scores.items(), key=lambda item: -statistics.mean(item[1])):
            spread = f" +- {statistics.stdev(values):.2f}" if len(values) > 1 else ""
            print(f"| {regime} | {form} | {statistics.mean(values):.2f}{spread} | {len(values)} |")


def main(arguments: list[str]) -> None:
    if arguments == ["--table"]:
        return table()
    if arguments[0] == "--list":
        regime, seeds, *forms = arguments[1:]
        for seed in range(int(seeds)):
            print(*(f"{regime} {form} {seed}" for form in forms), sep="\n")
        return None
    config = configure(arguments[0], arguments[1], int(arguments[2]))
    if not (config.folder / "summary.json").exists():
        train(config, resume=True)
    return None


if __name__ == "__main__":
    main(sys.argv[1:])
