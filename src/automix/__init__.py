"""AutoMix: learned and hand-crafted mixup for image classification in PyTorch.

`lam` belongs to the FIRST image: x_mix = s * x_i + (1 - s) * x_j with mean(s) ~ lam, y_mix = lam * y_i + (1 - lam) *
y_j. The partner of sample i is sample ``index[i]``. Every method comes as a function, a transform and a task.

Names are imported on first use, so that ``import automix`` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from automix._compat import torchvision as _torchvision
from automix._version import __version__ as __version__

_torchvision.install()  # before anything can import torchvision or timm

if TYPE_CHECKING:
    from automix.core.criteria import BinaryCrossEntropy as BinaryCrossEntropy
    from automix.core.criteria import CrossEntropy as CrossEntropy
    from automix.core.criteria import Decoupled as Decoupled
    from automix.core.errors import AutomixError as AutomixError
    from automix.core.target import Mixed as Mixed
    from automix.core.target import MixedTarget as MixedTarget
    from automix.deploy.prediction import predict as predict
    from automix.evaluation.suite import evaluate as evaluate
    from automix.integrations.sklearn import Classifier as Classifier
    from automix.methods import create_task as create_task
    from automix.methods import methods as methods
    from automix.methods.automix import AutoMix as AutoMix
    from automix.methods.automix import AutoMixSettings as AutoMixSettings
    from automix.methods.automix import AutoMixUnlabeled as AutoMixUnlabeled
    from automix.methods.automix import MixBlock as MixBlock
    from automix.methods.cutmix import CutMix as CutMix
    from automix.methods.cutmix import cutmix as cutmix
    from automix.methods.mixup import Mixup as Mixup
    from automix.methods.mixup import mixup as mixup
    from automix.methods.mixup_or_cutmix import MixupOrCutMix as MixupOrCutMix
    from automix.methods.mixup_or_cutmix import mixup_or_cutmix as mixup_or_cutmix
    from automix.methods.vanilla import vanilla as vanilla
    from automix.networks.create import create_model as create_model
    from automix.runs import recipes as recipes
    from automix.runs.config import TrainConfig as TrainConfig
    from automix.runs.folder import load_classifier as load_classifier
    from automix.tasks.mix_task import MixTask as MixTask
    from automix.tasks.step_output import StepOutput as StepOutput
    from automix.tasks.task import Task as Task
    from automix.training import train as train

_NAMES = {
    "AutoMix": "automix.methods.automix",
    "AutoMixSettings": "automix.methods.automix",
    "AutoMixUnlabeled": "automix.methods.automix",
    "AutomixError": "automix.core.errors",
    "BinaryCrossEntropy": "automix.core.criteria",
    "Classifier": "automix.integrations.sklearn",
    "CrossEntropy": "automix.core.criteria",
    "Decoupled": "automix.core.criteria",
    "MixBlock": "automix.methods.automix",
    "MixTask": "automix.tasks.mix_task",
    "Mixed": "automix.core.target",
    "MixedTarget": "automix.core.target",
    "StepOutput": "automix.tasks.step_output",
    "Task": "automix.tasks.task",
    "TrainConfig": "automix.runs.config",
    "create_model": "automix.networks.create",
    "create_task": "automix.methods",
    "evaluate": "automix.evaluation.suite",
    "load_classifier": "automix.runs.folder",
    "predict": "automix.deploy.prediction",
    "train": "automix.training",
}
"""Public names and the modules that define them; the methods' functions and transforms are found by the registry."""

_PACKAGES = {
    **{name: f"automix.{name}" for name in ("core", "data", "deploy", "evaluation", "integrations", "methods")},
    **{name: f"automix.{name}" for name in ("networks", "pictures", "runs", "studies", "tasks", "training", "views")},
    "recipes": "automix.runs.recipes",
}
"""Sub-packages that are there as attributes without an import of their own."""

__all__ = [
    "AutoMix",
    "AutoMixSettings",
    "AutoMixUnlabeled",
    "AutomixError",
    "BinaryCrossEntropy",
    "Classifier",
    "CrossEntropy",
    "CutMix",
    "Decoupled",
    "MixBlock",
    "MixTask",
    "Mixed",
    "MixedTarget",
    "Mixup",
    "MixupOrCutMix",
    "StepOutput",
    "Task",
    "TrainConfig",
    "create_model",
    "create_task",
    "cutmix",
    "evaluate",
    "load_classifier",
    "methods",
    "mixup",
    "mixup_or_cutmix",
    "predict",
    "recipes",
    "train",
    "vanilla",
]


def __getattr__(name: str) -> Any:
    """Import a name on first use: a public name, a sub-package, or the function or transform of a method."""
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    if name in _PACKAGES:
        return import_module(_PACKAGES[name])
    if not name.startswith("_"):
        registry = import_module("automix.methods")
        for method in registry.methods():
            if method.replace("_", "") == name.lower().replace("_", ""):
                module = registry.find_method(method)
                if hasattr(module, name):
                    return getattr(module, name)
    raise AttributeError(f"module 'automix' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_NAMES, *_PACKAGES})
