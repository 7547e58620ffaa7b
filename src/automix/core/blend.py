"""Blending two images by a mask, and masks as tensors."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """float64 stays; everything else becomes float32."""
    return x if x.dtype == torch.float64 else x.float()


def blend(x: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """``mask * x + (1 - mask) * x[index]``, exact where the mask is 0 or 1, differentiable in the mask."""
    return torch.lerp(x[index], x, mask.to(x.dtype))


def as_map(lam: Tensor) -> Tensor:
    """lam, shape () or (N,), as a constant mask that broadcasts over (N, 1, H, W)."""
    return lam.reshape(-1, 1, 1, 1)


def full_mask(mask: Tensor, x: Tensor) -> Tensor:
    """A mask that broadcasts, as the (N, 1, H, W) view that callers see."""
    return mask.expand(len(x), 1, *x.shape[-2:])


def mask_spread(mask: Tensor) -> Tensor:
    """The standard deviation over the pixels of each mask (N, 1, H, W): 0 for Mixup."""
    return mask.float().flatten(1).std(dim=1, correction=0)
