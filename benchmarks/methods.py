"""The cost of a training step of each method, as a multiple of a plain step with the same network and batch.

    python benchmarks/methods.py [--rounds 20] [--out docs/results]

All methods take turns in one process, and each time is divided by the plain step's of the same round, so that a busy
moment of the machine affects both. timm's and torchvision's Mixup and CutMix are in the table too. The network is
narrow (a ten-layer ResNet of 16 to 128 channels, 32 px, batch 100), so that mixing weighs more than on larger ones.
TransMix needs a class token and is compared with a plain step of a small ViT. Forms that are not the default have a
row of their own. StyleMix is measured if asked for by its name, with untrained networks, which cost the same:

    python benchmarks/methods.py --methods stylemix --batch 4 --rounds 3
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import automix
from automix.evaluation.profiling import Step, ratios, time_interleaved, training_step

CLASSES, SIZE, BATCH = 20, 32, 100

Quartiles = tuple[float, float, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument(
        "--methods", nargs="*", help="only these, with --out beside the rows measured before; all if not given"
    )
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--out", type=Path, help="write methods-cost.json and methods-cost.png into this folder")
    arguments = parser.parse_args()
    names = arguments.methods or [*(name for name in automix.methods() if name not in NEEDS_FILES), *FORMS]
    rows = measure(names, arguments.rounds, arguments.batch)
    print("| method | times a plain step | quartiles |\n| --- | --- | --- |")
    for name, (low, median, high) in rows.items():
        print(f"| {name} | {median:.2f} | {low:.2f} to {high:.2f} |")
    if arguments.out is not None:
        path = arguments.out / "methods-cost.json"
        if arguments.methods and path.exists():  # rows that were not measured now stay; others are of this process
            rows = by_median(json.loads(path.read_text()) | {name: rows[name] for name in arguments.methods})
        path.write_text(json.dumps(rows, indent=2) + "\n")
        plot(rows, arguments.out / "methods-cost.png")


NEEDS_FILES = ("stylemix",)  # weights that are not part of the project
NEEDS_CLASS_TOKEN = ("transmix", "transmix, progressive label")
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "puzzlemix, 2 levels": ("puzzlemix", {"levels": 2}),
    "supermix, fast": ("supermix", {"fast": True}),
    "comixup, cross-entropy alone": ("comixup", {"clean_lam": 0.0, "bce": False}),
    "gridmix, no second loss": ("gridmix", {"patch_weight": 0.0}),
    "automix, 3 images": ("automix", {"images": 3}),
    "transmix, progressive label": ("transmix", {"attention_label": "progressive"}),
}
"""Rows by name: the method and its options."""


def make_task(name: str, model: nn.Module) -> automix.Task:
    method, options = FORMS.get(name, (name, {}))
    if method == "stylemix":
        from automix.methods.stylemix import vgg_decoder, vgg_encoder

        options = {"encoder": vgg_encoder().eval(), "decoder": vgg_decoder().eval()}
    return automix.create_task(method, model, **options).train()


def measure(names: list[str], rounds: int, batch: int) -> dict[str, Quartiles]:
    """Measure quartiles of the ratio to the plain step of the same round, by method, cheapest first."""
    steps: dict[str, tuple[str, Step]] = {}
    for name in names:
        plain = "vanilla, ViT" if name in NEEDS_CLASS_TOKEN else "vanilla"
        if plain not in steps:
            steps[plain] = (plain, training_step(automix.create_task("vanilla", network(plain)).train()))
        if name != "vanilla":
            steps[name] = (plain, training_step(make_task(name, network(plain))))
    for name, oracle in others().items():
        steps[name] = ("vanilla", transform_step(oracle, network("vanilla")))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(batch, 3, SIZE, SIZE, generator=generator).contiguous(memory_format=torch.channels_last)
    y = torch.randint(CLASSES, (batch,), generator=generator)
    seconds = time_interleaved({name: step for name, (_, step) in steps.items()}, x, y, rounds=rounds)
    quartiles = {
        name: tuple(statistics.quantiles(ratios(seconds[name], seconds[plain]), n=4))
        for name, (plain, _) in steps.items()
    }
    return by_median(quartiles)  # type: ignore[arg-type]


def by_median(rows: dict[str, Quartiles]) -> dict[str, Quartiles]:
    """Sort rows, the cheapest first."""
    return dict(sorted(rows.items(), key=lambda item: item[1][1]))


def network(plain: str) -> nn.Module:
    torch.manual_seed(0)
    if plain == "vanilla":
        options: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (16, 32, 64, 128)}
        model = automix.create_model("resnet18", num_classes=CLASSES, image_size=SIZE, **options)
    else:
        model = automix.create_model(
            "deit_tiny_patch16_224", num_classes=CLASSES, image_size=SIZE, depth=4, embed_dim=96
        )
    return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def transform_step(oracle: Callable[..., tuple[Tensor, Tensor]], model: nn.Module) -> Step:
    """Make a training step with a batch transform of another library."""
    optimizer = torch.optim.SGD(model.train().parameters(), lr=0.01, momentum=0.9)

    def step(x: Tensor, y: Tensor) -> None:
        mixed, soft = oracle(x.clone(), y)  # timm's works in place
        optimizer.zero_grad()
        F.cross_entropy(model(mixed), soft).backward()
        optimizer.step()

    return step


def others() -> dict[str, Callable[..., tuple[Tensor, Tensor]]]:
    import timm.data
    import torchvision.transforms.v2 as v2

    timms: dict[str, Any] = {"num_classes": CLASSES, "label_smoothing": 0.0}
    return {
        "timm's Mixup": timm.data.Mixup(mixup_alpha=1.0, cutmix_alpha=0.0, **timms),
        "timm's CutMix": timm.data.Mixup(mixup_alpha=0.0, cutmix_alpha=1.0, **timms),
        "torchvision's MixUp": v2.MixUp(num_classes=CLASSES),
        "torchvision's CutMix": v2.CutMix(num_classes=CLASSES),
    }


def plot(rows: dict[str, Quartiles], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    names = list(rows)[::-1]
    low, middle, high = (torch.tensor([rows[name][i] for name in names]) for i in range(3))
    figure, axes = pyplot.subplots(figsize=(7, 0.28 * len(names) + 1), layout="constrained")
    colors = ["#b0b0b0" if "'s " in name or "vanilla" in name else "#3b6ea5" for name in names]
    axes.barh(names, middle, xerr=torch.stack([middle - low, high - middle]), color=colors, error_kw={"lw": 1})
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xlabel("time of a training step, plain step = 1 (median and quartiles)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
