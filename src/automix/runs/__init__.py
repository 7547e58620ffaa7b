"""The run folder and everything in it: settings, recipes, checkpoints, classifiers, metrics.

`RunFolder` is the only place that knows which file lies where. Reading a run checks values, never the environment.
"""

from automix.runs.checkpoint import Checkpoint, load_checkpoint, read_checkpoint, save_checkpoint
from automix.runs.classifier import Card, WithNormalization, read_classifier, save_classifier
from automix.runs.config import TrainConfig, read_config
from automix.runs.folder import RunFolder, load_classifier
from automix.runs.metrics import Metrics, deployed_network, deployed_top1, read_metrics, top1_by_epoch, truncate_metrics
from automix.runs.protocol import Trials, median_of_last, over_trials, protocol
from automix.runs.recipes import RECIPES, Recipe, find_recipe

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
