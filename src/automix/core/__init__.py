"""What every other room uses: targets and losses, blending, draws and seeds, validation, files.

Needs torch alone; `automix.core.config`, which imports pydantic, is not imported here.
"""

from automix.core.accuracy import pair_correct, topk_accuracy, topk_correct
from automix.core.blend import as_map, at_least_float32, blend, full_mask, mask_spread
from automix.core.criteria import BinaryCrossEntropy, Criterion, CrossEntropy, MixedLoss, mixed_loss
from automix.core.distributed import is_distributed, rank_and_world
from automix.core.draws import (
    draw_dirichlet,
    draw_index,
    draw_lam,
    draw_one,
    draw_uniform,
    step_generator,
    step_seed,
)
from automix.core.errors import AutomixError, one_line
from automix.core.files import write_atomically, write_text
from automix.core.normalization import denormalize, normalize
from automix.core.target import Mixed, MixedTarget, as_int64, is_multi_label
from automix.core.tensor_files import DamagedError, read_tensors, write_tensors
from automix.core.transform import MixTransform
from automix.core.validation import (
    as_lam,
    check_alpha,
    check_batch,
    check_choice,
    check_classes,
    check_index,
    check_options,
    check_range,
    check_shape,
    check_type,
    check_whole,
    config_error,
    unknown_name,
)

__all__ = [
    "AutomixError",
    "BinaryCrossEntropy",
    "Criterion",
    "CrossEntropy",
    "DamagedError",
    "MixTransform",
    "Mixed",
    "MixedLoss",
    "MixedTarget",
    "as_int64",
    "as_lam",
    "as_map",
    "at_least_float32",
    "blend",
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
    "denormalize",
    "draw_dirichlet",
    "draw_index",
    "draw_lam",
    "draw_one",
    "draw_uniform",
    "full_mask",
    "is_distributed",
    "is_multi_label",
    "mask_spread",
    "mixed_loss",
    "normalize",
    "one_line",
    "pair_correct",
    "rank_and_world",
    "read_tensors",
    "step_generator",
    "step_seed",
    "topk_accuracy",
    "topk_correct",
    "unknown_name",
    "write_atomically",
    "write_tensors",
    "write_text",
]
