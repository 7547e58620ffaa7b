"""Networks: building them, pretrained weights, reading a layer, class activation maps, the momentum teacher.

Nothing here knows about mixing.
"""

from automix.networks.attention import check_attention, watch_attention
from automix.networks.cam import CamReader, NoCamError, find_cam
from automix.networks.create import create_model
from automix.networks.feature_tap import FeatureTap, count_classes, find_tap, stage_modules
from automix.networks.freeze import freeze_stages, rest_batch_norms
from automix.networks.head import body_parameters, find_head, head_parameters
from automix.networks.hooks import hidden_layers, run_with_hook
from automix.networks.modes import eval_mode
from automix.networks.outputs import logits_of
from automix.networks.teacher import follow, make_teacher, momentum_at
from automix.networks.weights import LoadReport, Pretrained, available_offline, find_pretrained
from automix.networks.wide_resnet import WideResNet

__all__ = [
    "CamReader",
    "FeatureTap",
    "LoadReport",
    "NoCamError",
    "Pretrained",
    "WideResNet",
    "available_offline",
    "body_parameters",
    "check_attention",
    "count_classes",
    "create_model",
    "eval_mode",
    "find_cam",
    "find_head",
    "find_pretrained",
    "find_tap",
    "follow",
    "freeze_stages",
    "head_parameters",
    "hidden_layers",
    "logits_of",
    "make_teacher",
    "momentum_at",
    "rest_batch_norms",
    "run_with_hook",
    "stage_modules",
    "watch_attention",
]
