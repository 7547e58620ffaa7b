"""AutoMix: learned and hand-crafted mixup for image classification in PyTorch.

`lam` belongs to the FIRST image: x_mix = s * x_i + (1 - s) * x_j with mean(s) ~ lam, y_mix = lam * y_i + (1 - lam) *
y_j. The partner of sample i is sample ``index[i]``. Three doors lead to every method: a function, a transform, a task.
"""

from automix import _torchvision

_torchvision.install()  # before anything can import torchvision or timm

from importlib import import_module
from typing import Any

from automix.backbones import create_model
from automix.catalog import create_task, methods
from automix.learned.automix import AutoMix
from automix.learned.mix_block import MixBlock
from automix.methods.cutmix import CutMix, cutmix
from automix.methods.mixup import Mixup, mixup
from automix.methods.mixup_or_cutmix import MixupOrCutMix, mixup_or_cutmix
from automix.methods.vanilla import vanilla
from automix.mixing import Mixed, MixedTarget
from automix.task import MixTask, StepOutput, Task

__version__ = "0.1.0"

__all__ = [
    "AutoMix",
    "CutMix",
    "MixBlock",
    "MixTask",
    "Mixed",
    "MixedTarget",
    "Mixup",
    "MixupOrCutMix",
    "StepOutput",
    "Task",
    "create_model",
    "create_task",
    "cutmix",
    "methods",
    "mixup",
    "mixup_or_cutmix",
    "vanilla",
]


def __getattr__(name: str) -> Any:
    """Every other method's function and transform, from its file: ``automix.fmix``, ``automix.FMix``."""
    for method in methods():
        if method != "automix" and method.replace("_", "") == name.lower().replace("_", ""):
            module = import_module(f"automix.methods.{method}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module 'automix' has no attribute {name!r}")
