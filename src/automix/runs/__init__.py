"""The run folder and everything in it: settings, recipes, checkpoints, classifiers, metrics.

`RunFolder` is the only place that knows which file lies where. Reading a run checks values, never the environment.
Names are imported on first use, so that the command line can read settings without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from automix.runs.checkpoint import Checkpoint, load_checkpoint, read_checkpoint, save_checkpoint
    from automix.runs.classifier import Card, WithNormalization, read_classifier, save_classifier
    from automix.runs.config import TrainConfig, read_config
    from automix.runs.folder import RunFolder, load_classifier
    from automix.runs.metrics import (
        Metrics,
        deployed_network,
        deployed_top1,
        read_metrics,
        top1_by_epoch,
        truncate_metrics,
    )
    from automix.runs.protocol import Trials, median_of_last, over_trials, protocol
    from automix.runs.recipes import RECIPES, Recipe, find_recipe

_NAMES = {
    "Card": "automix.runs.classifier",
    "Checkpoint": "automix.runs.checkpoint",
    "Metrics": "automix.runs.metrics",
    "RECIPES": "automix.runs.recipes",
    "Recipe": "automix.runs.recipes",
    "RunFolder": "automix.runs.folder",
    "TrainConfig": "automix.runs.config",
    "Trials": "automix.runs.protocol",
    "WithNormalization": "automix.runs.classifier",
    "deployed_network": "automix.runs.metrics",
    "deployed_top1": "automix.runs.metrics",
    "find_recipe": "automix.runs.recipes",
    "load_checkpoint": "automix.runs.checkpoint",
    "load_classifier": "automix.runs.folder",
    "median_of_last": "automix.runs.protocol",
    "over_trials": "automix.runs.protocol",
    "protocol": "automix.runs.protocol",
    "read_checkpoint": "automix.runs.checkpoint",
    "read_classifier": "automix.runs.classifier",
    "read_config": "automix.runs.config",
    "read_metrics": "automix.runs.metrics",
    "save_checkpoint": "automix.runs.checkpoint",
    "save_classifier": "automix.runs.classifier",
    "top1_by_epoch": "automix.runs.metrics",
    "truncate_metrics": "automix.runs.metrics",
}
"""Public names and the modules that define them."""

__all__ = [
    "RECIPES",
    "Card",
    "Checkpoint",
    "Metrics",
    "Recipe",
    "RunFolder",
    "TrainConfig",
    "Trials",
    "WithNormalization",
    "deployed_network",
    "deployed_top1",
    "find_recipe",
    "load_checkpoint",
    "load_classifier",
    "median_of_last",
    "over_trials",
    "protocol",
    "read_checkpoint",
    "read_classifier",
    "read_config",
    "read_metrics",
    "save_checkpoint",
    "save_classifier",
    "top1_by_epoch",
    "truncate_metrics",
]


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'automix.runs' has no attribute {name!r}")
