"""Shared by all other subpackages: targets and losses, blending, draws and seeds, validation, files.

It needs only torch: `automix.core.config`, which imports pydantic, is not imported here. All names except the errors
are imported on first use, so that ``automix --help`` does not import torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from automix.core.errors import AutomixError, one_line

if TYPE_CHECKING:
    from automix.core.accuracy import pair_correct, topk_accuracy, topk_correct
    from automix.core.attention_labels import AttentionLabel, label_by_attention
    from automix.core.blend import Resize, as_map, at_least_float32, blend_maps, full_mask, mask_spread, resize_mask
    from automix.core.boxes import MixedBoxes, mix_boxes
    from automix.core.criteria import (
        BinaryCrossEntropy,
        Criterion,
        CrossEntropy,
        Decoupled,
        MixedLoss,
        balanced_weights,
        decoupled_loss,
        mixed_loss,
    )
    from automix.core.distributed import is_distributed, rank_and_world
    from automix.core.draws import (
        Pairing,
        draw_dirichlet,
        draw_index,
        draw_lam,
        draw_one,
        draw_other_class,
        draw_uniform,
        draw_weights,
        step_generator,
        step_seed,
    )
    from automix.core.files import write_atomically, write_text
    from automix.core.normalization import IMAGENET, Normalization, denormalize, normalize
    from automix.core.objects import ObjectsRule, boxes_to_masks, label_by_objects, object_masks, visible_lam
    from automix.core.pixel_target import PixelTarget
    from automix.core.target import Mixed, MixedTarget, as_int64, is_multi_label, join_mixed
    from automix.core.tensor_checks import as_lam, check_batch, check_classes, check_index, check_shape
    from automix.core.tensor_files import DamagedError, read_tensors, write_tensors
    from automix.core.transform import MixTransform
    from automix.core.type_checks import check_type, config_error
    from automix.core.validation import check_alpha, check_choice, check_options, check_range, check_whole, unknown_name

_MODULES = (
    "accuracy",
    "attention_labels",
    "blend",
    "boxes",
    "criteria",
    "distributed",
    "draws",
    "files",
    "normalization",
    "objects",
    "pixel_target",
    "target",
    "tensor_files",
    "transform",
    "tensor_checks",
    "type_checks",
    "validation",
)

__all__ = [
    "IMAGENET",
    "AttentionLabel",
    "AutomixError",
    "BinaryCrossEntropy",
    "Criterion",
    "CrossEntropy",
    "DamagedError",
    "Decoupled",
    "MixTransform",
    "Mixed",
    "MixedBoxes",
    "MixedLoss",
    "MixedTarget",
    "Normalization",
    "ObjectsRule",
    "Pairing",
    "PixelTarget",
    "Resize",
    "as_int64",
    "as_lam",
    "as_map",
    "at_least_float32",
    "balanced_weights",
    "blend_maps",
    "boxes_to_masks",
    "check_alpha",
    "check_batch",
    "check_choice",
    "check_classes",
    "check_index",
    "check_options",
    "check_range",
    "check_shape",
    "check_type",
    "check_whole",
    "config_error",
    "decoupled_loss",
    "denormalize",
    "draw_dirichlet",
    "draw_index",
    "draw_lam",
    "draw_one",
    "draw_other_class",
    "draw_uniform",
    "draw_weights",
    "full_mask",
    "is_distributed",
    "is_multi_label",
    "join_mixed",
    "label_by_attention",
    "label_by_objects",
    "mask_spread",
    "mix_boxes",
    "mixed_loss",
    "normalize",
    "object_masks",
    "one_line",
    "pair_correct",
    "rank_and_world",
    "read_tensors",
    "resize_mask",
    "step_generator",
    "step_seed",
    "topk_accuracy",
    "topk_correct",
    "unknown_name",
    "visible_lam",
    "write_atomically",
    "write_tensors",
    "write_text",
]


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name in __all__:
        for module in _MODULES:
            if name in vars(found := import_module(f"automix.core.{module}")):
                return getattr(found, name)
    raise AttributeError(f"module 'automix.core' has no attribute {name!r}")
