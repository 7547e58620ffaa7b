"""What the menus need to know of a method: what its function wants beside the images, which laws are not its own."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import timm
import torch
from conftest import HandWritten
from torch import Tensor, nn

NEED_A_NETWORK = {
    "adautomix",
    "alignmix",
    "attentivemix",
    "automix",
    "comixup",
    "patchup",
    "puzzlemix",
    "stylemix",
    "supermix",
    "transmix",
}
"""Methods that `automix mix` cannot show without a run."""


def nothing(x: Tensor) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Traits:
    """The ordinary method needs nothing and keeps every law."""

    further: Callable[[Tensor], dict[str, Any]] = nothing  # keywords of the function, for images x
    mixes: bool = True  # two images and their labels; else a label stays as it is
    blends: bool = True  # pixels are mask * x + (1 - mask) * x[index]; else partners are moved, resized, ...
    pairs: bool = True  # the label is of two images; else of more, as rows
    batch_of_one: bool = False  # a single small image is enough for BatchNorm
    model: Callable[[], nn.Module] = HandWritten  # a network that fits the method
    options: dict[str, Any] = field(default_factory=dict)  # of the task around that network


def attention(x: Tensor) -> dict[str, Any]:
    return {"attention": torch.rand(len(x), 7, 7, generator=torch.Generator().manual_seed(0))}


def few_iterations(x: Tensor) -> dict[str, Any]:
    return {"iterations": 3}


def peaked(x: Tensor) -> dict[str, Any]:
    """Saliency with clear peaks: on flat one, which noise has, masks of all ones are right and tell nothing."""
    return {"saliency": x.float().norm(dim=1) ** 8}


def peaked_of_five_classes(x: Tensor) -> dict[str, Any]:
    return {**peaked(x), "num_classes": 5}


def supervisor(x: Tensor) -> dict[str, Any]:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return {"model": HandWritten().to(x.dtype)}


def small_vit() -> nn.Module:
    sizes = {"img_size": 16, "patch_size": 4, "depth": 2, "embed_dim": 24, "num_heads": 3}
    return timm.create_model(
        "vit_tiny_patch16_224", num_classes=5, dynamic_img_size=True, dynamic_img_pad=True, **sizes
    )


def style_networks() -> dict[str, Any]:
    """An encoder and a decoder that take no files and no time."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        encoder = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2))
        decoder = nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(6, 3, 3, padding=1))
    return {"encoder": encoder, "decoder": decoder, "size": 16}


def style(x: Tensor) -> dict[str, Any]:
    return {**style_networks(), "style_lam": 1.0}


TRAITS: dict[str, Traits] = {
    "adautomix": Traits(options={"layer": "body"}),
    "alignmix": Traits(blends=False, further=few_iterations, options={"layer": "body", "iterations": 3}),
    "attentivemix": Traits(further=attention, options={"layer": "body", "plus": True}),  # k = 6 is always the same lam
    "augmix": Traits(mixes=False, blends=False, batch_of_one=True),  # three views make three values
    "automix": Traits(options={"layer": "body"}),
    "comixup": Traits(
        further=peaked_of_five_classes,
        blends=False,
        pairs=False,
        options={"beta": 0.0, "gamma": 0.02, "eta": 0.02},  # an untrained network's saliency is flat
    ),
    "patchup": Traits(options={"layers": (0, "stem", "body"), "block": 3, "prob": 1.0}),  # two clean batches are alike
    "pixmix": Traits(mixes=False, blends=False),
    "puzzlemix": Traits(further=peaked, blends=False, options={"beta": 0.1, "eta": 0.05}),  # blocks are moved
    "recursivemix": Traits(blends=False),  # the partner is resized and moved
    "regmixup": Traits(batch_of_one=True),  # clean and mixed image make two values
    "resizemix": Traits(blends=False),  # the partner is resized and moved
    "stylemix": Traits(blends=False, further=style, options=style_networks()),
    "supermix": Traits(further=supervisor),
    "transmix": Traits(model=small_vit, batch_of_one=True),  # no BatchNorm in it
    "vanilla": Traits(mixes=False),
}


VARIANTS: dict[str, dict[str, Any]] = {
    "objects": {"objects": "teacher"},
    "progressive": {"attention_label": "progressive"},
    "three": {"images": 3},
}


def traits(name: str) -> Traits:
    """Of a method, or of its task with a variant: "cutmix+objects", "mixup+three" or, for a preset, "automix+samix"."""
    method, _, variant = name.partition("+")
    known = TRAITS.get(method, Traits())
    if not variant:
        return known
    return replace(known, options={**known.options, **VARIANTS.get(variant, {"preset": variant})})
