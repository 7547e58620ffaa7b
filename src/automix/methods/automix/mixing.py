"""h_phi (Eq. 4): images blended by the masks of a Mix Block."""

from dataclasses import replace

import torch
from torch import Tensor

from automix.core.blend import blend, blend_many, chain_members
from automix.core.target import Mixed, MixedTarget
from automix.methods.automix.masks import flatten_many, flatten_within
from automix.methods.automix.mix_block import MixBlock
from automix.methods.automix.pairs import Pairs


def mix_images(
    block: MixBlock,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    pairs: Pairs,
    *,
    margin: float,
    classes: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Blend each image with its partner, or partners, by the Mix Block's mask (Eq. 4).

    Args:
        block: The Mix Block.
        x: Images, ``(N, C, H, W)``. Only the first ones are mixed, as many as there are pairs.
        y: Their labels.
        z: Their feature maps.
        pairs: Which images are mixed, and how much of each.
        margin: Masks are flat where ``min(lam, 1 - lam) <= margin``.
        classes: Classes for the masks to follow instead of `y`.
        generator: Source of randomness, for random grids only.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    lam, index = pairs.lam, pairs.index
    count, size = len(index), (x.shape[-2], x.shape[-1])
    x, y, z = x[:count], y[:count], z[:count]
    classes = y if classes is None else classes
    if pairs.weights is not None:
        return _mix_many(block, x, y, z, pairs.weights, index, classes, margin)
    mask = block(z, z[index], lam, size, labels=(classes, classes[index]), generator=generator)
    mask = flatten_within(margin, mask, lam)
    return Mixed(blend(x, index, mask), MixedTarget(y, y[index], lam), mask, index)


def _mix_many(
    block: MixBlock,
    x: Tensor,
    y: Tensor,
    z: Tensor,
    weights: Tensor,
    index: Tensor,
    classes: Tensor,
    margin: float,
) -> Mixed:
    """Mixtures of K images: i, index[i], index[index[i]], ..."""
    members = chain_members(index, weights.shape[-1])
    masks = block.masks(z, members, weights, (x.shape[-2], x.shape[-1]), classes)
    masks = flatten_many(margin, masks, weights, exact_mean=block.exact_mean)
    target = MixedTarget.of([y[of_image] for of_image in members], weights)
    mixed = blend_many(x, members, masks)
    if len(members) == 2:
        return Mixed(mixed, target, masks[:, :1], index)
    return Mixed(mixed, target, masks[:, :1], masks=masks)


def blend_again(mixed: Mixed, x: Tensor, index: Tensor) -> Mixed:
    """Blend images with a graph by masks that were computed without one: the masks are constants, the images are not.

    Args:
        mixed: What `mix_images` made of the images under ``torch.no_grad()``.
        x: The images, which require gradients.
        index: Partners, ``(N,)``.

    Returns:
        The same batch; its images carry a graph back to `x`.
    """
    x = x[: len(index)]
    if mixed.masks is not None:
        return replace(mixed, x=blend_many(x, chain_members(index, mixed.masks.shape[1]), mixed.masks))
    return replace(mixed, x=blend(x, index, mixed.mask))
