"""The paper's alphas, lam ~ Beta(alpha, alpha), by method, dataset and backbone (appendix, "Reproduction settings").

`REPRODUCED` are the hand-crafted methods that it lists as its own reproductions; "the rest" and "all these methods" in
its sentences mean them. For other methods (AttentiveMix, GridMix, SmoothMix, ...) it gives no alpha.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Setting = Literal["cifar", "tiny", "pytorch", "deit_rsb", "inat", "places", "fine_grained"]

REPRODUCED = ("mixup", "cutmix", "manifoldmix", "saliencymix", "fmix", "resizemix")


@dataclass(frozen=True)
class BySize:
    """One alpha for ResNet-18, another for the "median and large backbones (e.g., ResNet-50)".

    The paper names no other small network, so everything but ``resnet18`` counts as median or large.
    """

    resnet18: float
    others: float


_GROWING = BySize(resnet18=0.2, others=1.0)

# "optimization-based methods adopt a consistent alpha for all datasets, PuzzleMix adopts alpha=1, Co-Mixup and AutoMix
# adopts alpha=2"
EVERYWHERE: dict[str, float] = {"puzzlemix": 1.0, "comixup": 2.0, "automix": 2.0}

ALPHAS: dict[Setting, dict[str, float | BySize]] = {
    # "For CIFAR-10/100, Mixup and ResizeMix use alpha=1, and CutMix, FMix and SaliencyMix use alpha=0.2, and
    # ManifoldMix uses alpha=2"
    "cifar": {"mixup": 1.0, "resizemix": 1.0, "cutmix": 0.2, "fmix": 0.2, "saliencymix": 0.2, "manifoldmix": 2.0},
    # "For Tiny-ImageNet and ImageNet-1k using PyTorch-style training settings, ManifoldMix uses alpha=0.2, the rest
    # methods use alpha=0.2 for ResNet-18 while adopt alpha=1 for median and large backbones"
    "tiny": {**dict.fromkeys(REPRODUCED, _GROWING), "manifoldmix": 0.2},
    "pytorch": {**dict.fromkeys(REPRODUCED, _GROWING), "manifoldmix": 0.2},
    # "For iNat2017 and iNat2018, Mixup and ManifoldMix use alpha=0.2, the rest methods adopt alpha=1 for ResNet-50 and
    # ResNeXt-101 while use alpha=0.2 for ResNet-18"
    "inat": {**dict.fromkeys(REPRODUCED, _GROWING), "mixup": 0.2, "manifoldmix": 0.2},
    # "For ImageNet-1k using DeiT and RSB A2/A3 settings and Places205 using PyTorch-style settings, all these methods
    # use alpha=0.2"
    "deit_rsb": dict.fromkeys(REPRODUCED, 0.2),
    "places": dict.fromkeys(REPRODUCED, 0.2),
    # "For small-scale fine-grained datasets (CUB-200 and Aircraft), SaliencyMix and FMix use alpha=0.2, and ManifoldMix
    # uses alpha=0.5, while the rest use alpha=1"
    "fine_grained": {**dict.fromkeys(REPRODUCED, 1.0), "saliencymix": 0.2, "fmix": 0.2, "manifoldmix": 0.5},
}

# How the names of the paper's datasets begin, in small letters and digits alone
_DATASETS: dict[str, Setting] = {
    "cifar10": "cifar",
    "tinyimagenet": "tiny",
    "inat20": "inat",
    "inaturalist20": "inat",
    "places205": "places",
    "cub200": "fine_grained",
    "aircraft": "fine_grained",
    "fgvcaircraft": "fine_grained",
}


def paper_alpha(setting: Setting | None, method: str, model: str, data: str | None = None) -> float | None:
    """The alpha of `method` for `model` on dataset `data`, a name or a folder, or by `setting` for other data."""
    if method in EVERYWHERE:
        return EVERYWHERE[method]
    setting = setting_of(data) or setting
    alpha = ALPHAS[setting].get(method) if setting else None
    if isinstance(alpha, BySize):
        architecture = model.partition(".")[0]  # timm's names may end in a tag: resnet18.tv_in1k
        return alpha.resnet18 if architecture == "resnet18" else alpha.others
    return alpha


def setting_of(data: str | None) -> Setting | None:
    """Which of the paper's settings a dataset belongs to, by its name or folder; None for data it does not name."""
    plain = re.sub("[^a-z0-9]", "", Path(data or "").name.lower())
    return next((setting for name, setting in _DATASETS.items() if plain.startswith(name)), None)
