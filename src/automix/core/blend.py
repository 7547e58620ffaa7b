"""Blend two images by a mask, and masks as tensors."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """Convert to float32; float64 stays.

    Args:
        x: Any tensor.

    Returns:
        The tensor in float32 or float64.
    """
    return x if x.dtype == torch.float64 else x.float()


def blend(x: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """Compute ``mask * x + (1 - mask) * x[index]``.

    Exact where the mask is 0 or 1, and differentiable in the mask.

    Args:
        x: Images, ``(N, C, H, W)``.
        index: Partners, ``(N,)``.
        mask: Share of the first image, in [0, 1]; broadcasts over `x`.

    Returns:
        The blended images, ``(N, C, H, W)``.
    """
    return torch.lerp(x[index], x, mask.to(x.dtype))


def as_map(lam: Tensor) -> Tensor:
    """Turn `lam` into a constant mask that broadcasts over images.

    Args:
        lam: A number, shape ``()``, or ``(N,)``.

    Returns:
        The mask, ``(1 or N, 1, 1, 1)``.
    """
    return lam.reshape(-1, 1, 1, 1)


def full_mask(mask: Tensor, x: Tensor) -> Tensor:
    """Expand a mask that broadcasts to one value per pixel.

    Args:
        mask: A mask, ``(N or 1, 1, H or 1, W or 1)``.
        x: The images it belongs to, ``(N, C, H, W)``.

    Returns:
        A view, ``(N, 1, H, W)``.
    """
    return mask.expand(len(x), 1, *x.shape[-2:])


def mask_spread(mask: Tensor) -> Tensor:
    """Compute the standard deviation over the pixels of each mask: 0 for Mixup.

    Args:
        mask: Masks, ``(N, 1, H, W)``.

    Returns:
        Standard deviations, ``(N,)``.
    """
    return mask.float().flatten(1).std(dim=1, correction=0)
