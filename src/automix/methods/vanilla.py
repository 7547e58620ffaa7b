"""Vanilla: no mixing. The baseline of every comparison, in the form of a method so that all code paths are shared."""

import torch
from torch import Tensor

from automix.core.blend import full_mask
from automix.core.target import Mixed, MixedTarget
from automix.core.validation import check_batch


def vanilla(
    x: Tensor,
    y: Tensor,
    *,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Mixed:
    """The batch as it is; `lam`, `index` and `generator` are accepted, as by every method, and change nothing."""
    check_batch(x, y)
    return Mixed(x, MixedTarget.clean(y), full_mask(x.new_ones(1, 1, 1, 1), x))
