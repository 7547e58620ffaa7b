"""Mixup or CutMix at random (Touvron et al., 2021): each batch is mixed by one of the two.

The practice of DeiT (Touvron et al., 2021; alphas 0.8 and 1.0) and of "ResNet strikes back" (Wightman et al., 2021;
alphas 0.1 and 1.0), and the rows "DeiT" and "RSB" of the AutoMix paper. For long schedules with strong augmentation.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from automix.core.draws import Pairing, draw_index, draw_uniform
from automix.core.objects import ObjectsRule
from automix.core.target import Mixed
from automix.core.tensor_checks import check_batch
from automix.core.transform import MixTransform
from automix.core.validation import check_alpha, check_range
from automix.methods.cutmix import cutmix
from automix.methods.mixup import mixup

__all__ = ["MixupOrCutMix", "mixup_or_cutmix"]


def mixup_or_cutmix(
    x: Tensor,
    y: Tensor,
    mixup_alpha: float = 0.8,
    cutmix_alpha: float = 1.0,
    *,
    switch: float = 0.5,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix a batch by CutMix with probability `switch`, else by Mixup (Touvron et al., 2021).

    The choice is drawn even where it is certain, so that `switch` does not change the numbers drawn after it.

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        mixup_alpha: ``lam ~ Beta(alpha, alpha)`` of Mixup.
        cutmix_alpha: ``lam ~ Beta(alpha, alpha)`` of CutMix.
        switch: Probability of CutMix, in [0, 1].
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        per_sample: Draw `lam` for every sample instead of once for the batch.
        objects: Where the object of each image is: masks ``(N, H, W)`` or boxes ``(N, 4)``. If given, the label follows
            the visible objects; see `label_by_objects`.
        objects_rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        objects_weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    check_batch(x, y)  # of Mixup, whichever is drawn: uint8 is CutMix's alone
    _check_options(mixup_alpha, cutmix_alpha, switch)
    # On the CPU wherever x is: a branch on a number of another device would force a synchronization.
    coin = draw_uniform(torch.empty(0), (), generator)
    options: dict[str, Any] = {"lam": lam, "per_sample": per_sample, "objects": objects, "objects_rule": objects_rule}
    options |= {"objects_weight": objects_weight, "generator": generator}
    if torch.compiler.is_compiling():  # a graph has no branches: mix by both, and take one
        index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
        first, second = (
            cutmix(x, y, cutmix_alpha, index=index, **options),
            mixup(x, y, mixup_alpha, index=index, **options),
        )
        return _choose(coin.to(x.device) < switch, first, second)
    mix, alpha = (cutmix, cutmix_alpha) if coin < switch else (mixup, mixup_alpha)
    return mix(x, y, alpha, index=index, pairing=pairing, **options)


def _choose(chosen: Tensor, first: Mixed, second: Mixed) -> Mixed:
    """The first of two mixed batches with the same partners if `chosen`, else the second."""
    target = replace(first.target, lam=torch.where(chosen, first.target.lam, second.target.lam))
    pixels, mask = (torch.where(chosen, a, b) for a, b in ((first.x, second.x), (first.mask, second.mask)))
    return Mixed(pixels, target, mask, first.index)


def _check_options(mixup_alpha: float, cutmix_alpha: float, switch: float) -> None:
    """Check both alphas, whichever is used: an error must not depend on the draw."""
    check_alpha(mixup_alpha, "mixup_alpha")
    check_alpha(cutmix_alpha, "cutmix_alpha")
    check_range("switch", switch, 0, 1)


class MixupOrCutMix(MixTransform):
    """Mix a batch by CutMix with probability `switch`, else by Mixup (Touvron et al., 2021).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        mixup_alpha: ``lam ~ Beta(alpha, alpha)`` of Mixup.
        cutmix_alpha: ``lam ~ Beta(alpha, alpha)`` of CutMix.
        switch: Probability of CutMix, in [0, 1].
        **options: `pairing`, `objects_rule` and `objects_weight` of `mixup_or_cutmix`, and `num_classes`,
            `label_smoothing`, `per_sample`, `prob` and `generator`, as of every `MixTransform`.
    """

    function = mixup_or_cutmix

    def __init__(
        self,
        *,
        mixup_alpha: float = 0.8,
        cutmix_alpha: float = 1.0,
        switch: float = 0.5,
        **options: Any,
    ) -> None:
        _check_options(mixup_alpha, cutmix_alpha, switch)
        own: dict[str, Any] = {"mixup_alpha": mixup_alpha, "cutmix_alpha": cutmix_alpha, "switch": switch}
        super().__init__(**own, **options)
