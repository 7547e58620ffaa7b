"""Networks: building them by name, reading a layer on the way, class activation maps, and the momentum teacher.

Nothing here knows about mixing.
"""

from automix.networks.cam import CamReader, NoCamError, find_cam
from automix.networks.create import create_model
from automix.networks.feature_tap import FeatureTap, count_classes, find_tap, stage_modules
from automix.networks.hooks import hidden_layers, run_with_hook
from automix.networks.modes import eval_mode
from automix.networks.teacher import follow, make_teacher, momentum_at
from automix.networks.wide_resnet import WideResNet

__all__ = [
    "CamReader",
    "FeatureTap",
    "NoCamError",
    "WideResNet",
    "count_classes",
    "create_model",
    "eval_mode",
    "find_cam",
    "find_tap",
    "follow",
    "hidden_layers",
    "make_teacher",
    "momentum_at",
    "run_with_hook",
    "stage_modules",
]
