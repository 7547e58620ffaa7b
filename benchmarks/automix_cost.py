"""The cost of a training step of AutoMix relative to Mixup: time, memory, passes (docs/results/automix-cost.md).

    python benchmarks/automix_cost.py [--network resnet18] [--rounds 10] [--out docs/results]
    python benchmarks/automix_cost.py --profile         the time of a step of Algorithm 1 by operation
    python benchmarks/automix_cost.py --grow            ratios over batch size and image size

All variants take turns in one process, and each time is divided by Mixup's of the same round, so that a busy moment of
the machine affects both. F counts forward passes: a backward pass is 2 F, one to the pixels alone 1 F, and the pass to
layer l is its share of the multiply-adds.
"""

import argparse
import json
import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

import automix
from automix.evaluation.profiling import (
    count_macs,
    new_task,
    noise,
    peak_memory,
    ratios,
    time_interleaved,
    training_step,
    two_steps,
)
from automix.evaluation.progress import progress_bar
from automix.methods.automix.settings import AutoMixSettings
from automix.networks.feature_tap import find_tap
from automix.studies.replica import ALGORITHM1, NO_CLASS_VECTORS

CLASSES = 100
NETWORKS: dict[str, dict[str, Any]] = {
    "resnet18": {"name": "resnet18", "image_size": 32, "batch": 100},
    "resnet50": {"name": "resnet50", "image_size": 64, "batch": 16},
    "deit_small": {"name": "deit_small_patch16_224", "image_size": 32, "batch": 32},
    "efficientnet_lite0": {"name": "tf_efficientnet_lite0", "image_size": 128, "batch": 16},
    "narrow": {
        "name": "resnet18",
        "image_size": 32,
        "batch": 100,
        "layers": (1, 1, 1, 1),
        "channels": (16, 32, 64, 128),
    },
}
HALF = {"aux_loss": "none", "mix_share": 0.5, "rest": "mixup-ramp"}  # half of the batch by the Mix Block, in one pass
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "mixup": ("mixup", {}),
    "vanilla": ("vanilla", {}),
    "mixup, teacher": ("mixup", {"ema": True}),
    "algorithm 1": ("automix", ALGORITHM1),
    "algorithm 1, no aux loss": ("automix", {**ALGORITHM1, "aux_loss": "none"}),
    "paper": ("automix", {"preset": "paper"}),
    "tuned": ("automix", {}),
    "tuned, no class vectors": ("automix", NO_CLASS_VECTORS),
    "fast": ("automix", {"preset": "fast"}),
    "half": ("automix", HALF),
    "half, eighth learned": ("automix", {**HALF, "block_share": 0.125}),
    "half, frozen block": ("automix", {**HALF, "block_lr": 0.0}),
    "finetune": ("automix", {"preset": "finetune"}),
    **{
        f"{name}, low memory": ("automix", {**options, "low_memory": True})
        for name, options in (("algorithm 1", ALGORITHM1), ("tuned", {}), ("fast", {"preset": "fast"}), ("half", HALF))
    },
}
REFERENCE = "mixup"
PLAIN = "vanilla"


def build(network: str, image_size: int | None = None) -> tuple[nn.Module, int, int]:
    """Build the network; return it, its image size and its batch size."""
    options = dict(NETWORKS[network])
    name, size, batch = options.pop("name"), image_size or options.pop("image_size"), options.pop("batch")
    options.pop("image_size", None)
    torch.manual_seed(0)
    return automix.create_model(name, num_classes=CLASSES, image_size=size, **options), size, batch


def passes(model: nn.Module, size: int, method: str, options: dict[str, Any]) -> float:
    """Count the forward passes F of a step: 3 for each pass of the student, and those that AutoMix adds."""
    if method != "automix":
        return 3.0
    task = automix.create_task(method, model, **options)
    assert isinstance(task, automix.AutoMix)
    share, features = float(task.settings.block_share), _share_to_layer(model, size)
    if task.settings.aux_loss == "joined":  # the Mix Block mixes a share of the batch only
        return 3 * (1 + share) + features * share + 2 * share
    student = 3.0 if task.settings.aux_loss == "none" else 6.0
    return student + features * max(share, task.settings.mix_share) + 2 * share * (task.settings.block_lr > 0)


def _share_to_layer(model: nn.Module, size: int) -> float:
    image = torch.zeros(1, 3, size, size)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        find_tap(model, 3)(model.eval(), image)
    return counter.get_total_flops() / 2 / count_macs(model, CLASSES, size)


def measure(network: str, rounds: int, names: list[str], size: int | None = None, batch: int | None = None) -> Any:
    """Measure F, the quartiles of time and the peak memory as multiples of Mixup's, by variant."""
    model, size, default_batch = build(network, size)
    batch = batch or default_batch
    steps = {name: training_step(new_task(VARIANTS[name][0], model, seed=0, **VARIANTS[name][1])) for name in names}
    images = partial(noise, model, CLASSES, size, batch, 0)
    seconds = time_interleaved(steps, *images(), rounds=rounds, track=progress_bar)
    del steps
    device = torch.device("cpu")
    memory = {
        name: peak_memory(partial(two_steps, partial(new_task, method, model, seed=0, **options), images), device)
        for name, (method, options) in VARIANTS.items()
        if name in names
    }
    return {
        name: {
            "F": round(passes(model, size, *VARIANTS[name]), 2),
            "time": [round(r, 2) for r in statistics.quantiles(ratios(seconds[name], seconds[REFERENCE]), n=4)],
            "run": round(whole_run(name, seconds), 2),
            "memory": round((memory[name] or 0) / (memory[REFERENCE] or 1), 2),
        }
        for name in names
    }


def whole_run(name: str, seconds: dict[str, list[float]]) -> float:
    """The time of a whole training as a multiple of plain training's: AutoMix mixes until `mix_until`."""
    method, options = VARIANTS[name]
    mixes = 1.0
    if method == "automix":
        settings = {key: value for key, value in options.items() if key not in ("preset", "low_memory")}
        mixes = AutoMixSettings.from_preset(options.get("preset", "tuned"), **settings).mix_until
    return mixes * statistics.median(ratios(seconds[name], seconds[PLAIN])) + 1 - mixes


def show(network: str, rows: Any) -> None:
    print(f"\n{network} (multiples of Mixup)\n")
    print("| variant | F | by counting | time | quartiles | whole run, plain is 1 | peak memory |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, row in rows.items():
        low, median, high = row["time"]
        counted = row["F"] / rows[REFERENCE]["F"]
        times = f"{median:.2f} | {low:.2f} to {high:.2f} | {row['run']:.2f}"
        print(f"| {name} | {row['F']:.2f} | {counted:.2f} | {times} | {row['memory']:.2f} |")


def plot(tables: dict[str, Any], path: Path) -> None:
    from automix.evaluation.plots import BLUE, ORANGE, as_image, new_figure

    figure, axes = new_figure(
        9.5, 1.2 + 0.32 * len(VARIANTS), ncols=len(tables), sharex=True, sharey=True, squeeze=False
    )
    for axis, (network, rows) in zip(axes[0], tables.items(), strict=True):
        places = range(len(rows))
        axis.barh([p - 0.2 for p in places], [row["time"][1] for row in rows.values()], 0.38, color=BLUE, label="time")
        axis.barh(
            [p + 0.2 for p in places], [row["memory"] for row in rows.values()], 0.38, color=ORANGE, label="memory"
        )
        axis.set_yticks(list(places), list(rows))
        axis.axvline(1, color="#888888", linestyle="--", linewidth=1)
        axis.set_title(network, fontsize=10)
        axis.set_xlabel("multiple of Mixup")
    axes[0][0].invert_yaxis()
    axes[0][0].legend(loc="lower right", fontsize=8)
    as_image(figure).save(path)


def profile(network: str) -> None:
    """Print the operations of a step of Algorithm 1 by their own time."""
    model, size, batch = build(network)
    step = training_step(new_task("automix", model, seed=0, **ALGORITHM1))
    x, y = noise(model, CLASSES, size, batch, 0)
    step(x, y)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiled:
        step(x, y)
    print(profiled.key_averages().table(sort_by="self_cpu_time_total", row_limit=20, max_name_column_width=50))


def grow(rounds: int, out: Path | None) -> None:
    """Measure Algorithm 1, tuned and fast over batch and image size, on the narrow network."""
    names = [REFERENCE, PLAIN, "algorithm 1", "tuned", "fast"]
    cells = [("batch", n, 32, n) for n in (10, 25, 50, 100, 200)] + [("px", s, s, 50) for s in (16, 24, 32, 48, 64)]
    rows = [(kind, at, measure("narrow", rounds, names, size, batch)) for kind, at, size, batch in cells]
    for kind, at, row in rows:
        numbers = "  ".join(
            f"{name} {row[name]['time'][1]:.2f}x time {row[name]['memory']:.2f}x memory" for name in names[2:]
        )
        print(f"{kind} {at}: {numbers}")
    if out is not None:
        _plot_growth(rows, names, out / "automix-cost-growth.png")


def _plot_growth(rows: Any, names: list[str], path: Path) -> None:
    from automix.evaluation.plots import BLUE, GREEN, ORANGE, as_image, new_figure

    figure, axes = new_figure(9, 3.6, ncols=2, sharey=True)
    for axis, kind, label in zip(axes, ("batch", "px"), ("images in a batch (32 px)", "px (batch of 50)"), strict=True):
        at = [a for k, a, _ in rows if k == kind]
        for name, color in zip(names[2:], (ORANGE, BLUE, GREEN), strict=True):
            cells = [row[name] for k, _, row in rows if k == kind]
            axis.plot(at, [cell["time"][1] for cell in cells], "o-", color=color, label=f"{name}, time")
            axis.plot(at, [cell["memory"] for cell in cells], "s--", color=color, label=f"{name}, memory")
        axis.set_xlabel(label)
        axis.axhline(1, color="#888888", linewidth=1)
    axes[0].set_ylabel("multiple of Mixup")
    axes[0].set_ylim(0, None)
    axes[0].legend(fontsize=8, ncols=3, loc="lower center")
    as_image(figure).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=list(NETWORKS), nargs="+", default=["resnet18", "resnet50", "deit_small"])
    parser.add_argument(
        "--variants",
        choices=[name for name in VARIANTS if name not in (REFERENCE, PLAIN)],
        nargs="+",
        help="all if not given",
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--grow", action="store_true")
    parser.add_argument("--out", type=Path, help="write automix-cost.json and the plots into this folder")
    given = parser.parse_args()
    if given.profile:
        return profile(given.network[0])
    if given.grow:
        return grow(given.rounds, given.out)
    tables = {}
    names = [REFERENCE, PLAIN, *given.variants] if given.variants else list(VARIANTS)
    for network in given.network:
        tables[network] = measure(network, given.rounds, names)
        show(network, tables[network])
    if given.out is not None:
        (given.out / "automix-cost.json").write_text(json.dumps(tables, indent=2) + "\n")
        plot(tables, given.out / "automix-cost.png")
    return None


if __name__ == "__main__":
    main()
