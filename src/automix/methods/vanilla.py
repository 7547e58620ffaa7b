"""Vanilla: no mixing, the baseline of every comparison.

It has the form of a method, so that all code paths are shared.
"""

import torch
from torch import Tensor

from automix.core.target import Mixed
from automix.core.tensor_checks import check_batch

__all__ = ["vanilla"]


def vanilla(
    x: Tensor,
    y: Tensor,
    *,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Return the batch as it is.

    Args:
        x: Images, ``(N, C, H, W)``, of a floating type or uint8.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        lam: Has no effect; accepted as by every method.
        index: Has no effect; accepted as by every method.
        generator: Has no effect; accepted as by every method.

    Returns:
        The images, their labels and a mask of ones.
    """
    check_batch(x, y, uint8=True)
    return Mixed.clean(x, y)
