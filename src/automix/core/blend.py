"""Blend two images, or what lies on their pixels, by a mask; masks as tensors."""

from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.tensor_checks import check_shape
from automix.core.validation import check_choice

Resize = Literal["nearest", "bilinear"]
"""How a mask is resized to maps of another size."""


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

    Exact where the mask is 0 or 1, and differentiable in the mask. Images of bool or integers take each pixel from the
    image that has the larger share of it, the first one at 0.5.

    Args:
        x: Images, ``(N, C, H, W)``.
        index: Partners, ``(N,)``.
        mask: Share of the first image, in [0, 1]; broadcasts over `x`.

    Returns:
        The blended images, ``(N, C, H, W)``.
    """
    if not x.is_floating_point():
        return torch.where(mask >= 0.5, x, x[index])
    return torch.lerp(x[index], x, mask.to(x.dtype))


def blend_many(x: Tensor, members: Tensor, masks: Tensor) -> Tensor:
    """Compute the sum over k of ``masks[:, k] * x[members[k]]``, mixtures of K images.

    Exact where the masks are 0 or 1, and differentiable in the masks.

    Args:
        x: Images, ``(N, C, H, W)``.
        members: Positions of the images of each mixture, ``(K, N)``; see `chain_members`.
        masks: Shares of the images, ``(N or 1, K, H or 1, W or 1)``, which sum to 1 over K.

    Returns:
        The blended images, ``(N, C, H, W)``, in the memory format of `x`.
    """
    total = torch.zeros_like(x)
    for of_image, mask in zip(members, masks.to(x.dtype).split(1, dim=1), strict=True):
        total = total + mask * x[of_image]
    return total


def chain_members(index: Tensor, images: int) -> Tensor:
    """Find the images of mixtures of K images: i, index[i], index[index[i]], ...

    Args:
        index: Partners, ``(N,)``.
        images: K, >= 2.

    Returns:
        Positions, ``(K, N)``; the first row is ``range(N)``.
    """
    members = [torch.arange(len(index), device=index.device)]
    for _ in range(images - 1):
        members.append(index[members[-1]])
    return torch.stack(members)


def resize_mask(mask: Tensor, size: tuple[int, int], mode: Resize = "nearest") -> Tensor:
    """Resize masks to maps of another size; their channels are averaged.

    Args:
        mask: Masks, ``(N, C, H, W)``.
        size: Height and width of the maps.
        mode: "nearest" takes the mask's value at the center of each cell, "bilinear" averages over the cell.

    Returns:
        Masks, ``(N, 1, height, width)``.
    """
    check_choice("mode", mode, get_args(Resize))
    if mask.shape[1] > 1:
        mask = at_least_float32(mask).mean(dim=1, keepdim=True)
    if mask.shape[-2:] == size:
        return mask
    if mode == "nearest":
        return F.interpolate(mask, size, mode="nearest-exact")
    return F.interpolate(mask, size, mode="bilinear", antialias=True)


def blend_maps(maps: Tensor, index: Tensor, mask: Tensor, mode: Resize = "nearest") -> Tensor:
    """Blend maps that lie on the pixels of images as the images were blended.

    Maps of a floating type become ``mask * maps + (1 - mask) * maps[index]``. Maps of bool or integers, whose values
    are names and not amounts, take each pixel from the image that has the larger share of it, the first one at 0.5.

    Args:
        maps: Maps, ``(N, h, w)`` or ``(N, channels, h, w)``.
        index: Partners, ``(N,)``.
        mask: Share of the first image, ``(N, C, H, W)``.
        mode: How the mask is resized where the maps have another size than the images.

    Returns:
        The blended maps, in the shape and type of `maps`.
    """
    check_shape("maps", maps, (len(mask), "h", "w"), (len(mask), "channels", "h", "w"))
    mask = resize_mask(mask, (maps.shape[-2], maps.shape[-1]), mode)
    mask = mask.squeeze(1) if maps.ndim == 3 else mask
    return blend(maps, index, mask)


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
