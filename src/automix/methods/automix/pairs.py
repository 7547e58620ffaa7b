"""Which images AutoMix mixes, and how much of each."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from automix.core.draws import draw_cycle, draw_index, draw_lam, draw_one
from automix.methods.automix.settings import AutoMixSettings


@dataclass(frozen=True)
class Pairs:
    """Which images are mixed, and how much of each.

    Attributes:
        lam: Share of the first image, ``()`` or ``(N,)``.
        index: Position of each image's partner, ``(N,)``.
        weights: Weights of the images in mixtures of K images, ``(K,)`` or ``(N, K)``; the first one is `lam`. None for
            pairs.
    """

    lam: Tensor
    index: Tensor
    weights: Tensor | None = None


def draw_pairs(
    x: Tensor,
    settings: AutoMixSettings,
    draw_weights: Callable[[Tensor, int, torch.Generator], Tensor],
    generator: torch.Generator,
    *,
    distinct: bool = False,
) -> Pairs:
    """Draw lam and partners; with `images`, weights and partners.

    Args:
        x: The images to pair.
        settings: Their `alpha`, `images` and `per_sample` count.
        draw_weights: Draws the weights of mixtures of K > 2 images, from images, K and generator.
        generator: Source of randomness.
        distinct: Pair no image with itself.

    Returns:
        The pairs.
    """
    draw_partners = draw_cycle if distinct else draw_index
    images = settings.images if isinstance(settings.images, int) else draw_one(settings.images, generator)
    if images == 2:
        lam = draw_lam(x, settings.alpha, per_sample=settings.per_sample, generator=generator)
        return Pairs(lam, draw_partners(x, generator=generator))
    weights = draw_weights(x, images, generator)
    return Pairs(weights[..., 0], draw_partners(x, generator=generator), weights)
