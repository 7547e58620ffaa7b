"""Masks from maps of logits: those of K images as a partition of one, and flat ones where little is mixed.

    s = U( softmax over k of (l_k + b_k) )        l_1 = b_1 = 0,   mean(s_k) = w_k

The Mix Block compares each further image with the first one as in a pair: l_k is the logit of s_j (mix_block.py) for
the pair (1, k), with lam = w_1 / (w_1 + w_k), the share of image 1 in that pair. The softmax of (0, l_2) is the sigmoid
of l_2, so that K = 2 is the pair's mask. The shifts b, K - 1 numbers for each mixture, are solved for as the pair's b
(exact_mean.py). Without `exact_mean` there are none, and l_lambda pulls each mean towards its weight.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.blend import as_map
from automix.methods.automix.exact_mean import LOWEST_WEIGHT, shifts_for_means

ENLARGE: dict[str, dict[str, Any]] = {
    "nearest": {"mode": "nearest"},
    "bilinear": {"mode": "bilinear", "align_corners": False},
}
"""Options of ``F.interpolate`` by the name of an upsampling."""


def partition(logit: Tensor, weights: Tensor, size: tuple[int, int], upsampling: str, *, exact_mean: bool) -> Tensor:
    """Turn K maps of logits into masks that sum to 1.

    Args:
        logit: Maps, ``(N, K, h, w)``.
        weights: Weights of the images, ``(N, K)``.
        size: Height and width of the images.
        upsampling: As of `MixBlock`; "bilinear-logits" enlarges the maps before the softmax.
        exact_mean: Solve for the means of the masks, which then are the weights.

    Returns:
        The masks, ``(N, K, *size)``.
    """
    if exact_mean:
        logit = logit + shifts_for_means(logit.flatten(2), weights)[..., None, None]
    if upsampling == "bilinear-logits":
        return F.interpolate(logit, size=size, **ENLARGE["bilinear"]).softmax(dim=1)
    return F.interpolate(logit.softmax(dim=1), size=size, **ENLARGE[upsampling])


def flatten_within(margin: float, mask: Tensor, lam: Tensor) -> Tensor:
    """Make masks flat where one image has nearly all of the weight.

    Args:
        margin: Masks are flat where ``min(lam, 1 - lam) <= margin``.
        mask: Masks, ``(N, 1, H, W)``.
        lam: Share of the first image, ``()`` or ``(N,)``.

    Returns:
        The masks; where they are flat, their value is `lam`.
    """
    lam = as_map(lam)
    flat = torch.minimum(lam, 1 - lam) <= margin
    # `where`, not a branch: no wait for the device, and under DDP every rank uses every parameter in every step
    return torch.where(flat, lam.to(mask.dtype), mask)


def flatten_many(margin: float, masks: Tensor, weights: Tensor, *, exact_mean: bool) -> Tensor:
    """Make masks of K images flat where one image has nearly all of the weight.

    Args:
        margin: Masks are flat where one image has a weight of at least ``1 - margin``.
        masks: Masks, ``(N, K, H, W)``.
        weights: Weights of the images, ``(K,)`` or ``(N, K)``.
        exact_mean: Whether the means are solved for; masks are then also flat where a weight is too small for a mask of
            that mean.

    Returns:
        The masks; where they are flat, their values are the weights.
    """
    flat = 1 - weights.amax(dim=-1) <= margin
    if exact_mean:
        flat = flat | (weights.amin(dim=-1) < LOWEST_WEIGHT)
    return torch.where(as_map(flat), weights.reshape(-1, masks.shape[1], 1, 1).to(masks.dtype), masks)
