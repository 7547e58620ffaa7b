"""Mixup or CutMix at random: each batch is mixed by one of the two, chosen by the toss of a coin.

The practice of DeiT (Touvron et al., 2021; alphas 0.8 and 1.0) and of "ResNet strikes back" (Wightman et al., 2021;
alphas 0.1 and 1.0), and the rows "DeiT" and "RSB" of the AutoMix paper. For long schedules with strong augmentation.
"""

from typing import Any

import torch
from torch import Tensor

from automix.core.draws import draw_uniform
from automix.core.target import Mixed
from automix.core.transform import MixTransform
from automix.core.validation import check_alpha, check_range
from automix.methods.cutmix import cutmix
from automix.methods.mixup import mixup


def mixup_or_cutmix(
    x: Tensor,
    y: Tensor,
    mixup_alpha: float = 0.8,
    cutmix_alpha: float = 1.0,
    *,
    switch: float = 0.5,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix images `x` and labels `y` by CutMix with probability `switch`, else by Mixup.

    The choice is made for the whole batch, and always drawn; `lam` and `index` are drawn unless given.
    """
    _check_options(mixup_alpha, cutmix_alpha, switch)
    # On the CPU wherever x is: a branch on a number of the device would make the host wait.
    coin = draw_uniform(torch.empty(0), (), generator)
    mix, alpha = (cutmix, cutmix_alpha) if coin < switch else (mixup, mixup_alpha)
    return mix(x, y, alpha, lam=lam, index=index, per_sample=per_sample, generator=generator)


def _check_options(mixup_alpha: float, cutmix_alpha: float, switch: float) -> None:
    """Both alphas, whichever is used: an error must not depend on the toss."""
    check_alpha(mixup_alpha, "mixup_alpha")
    check_alpha(cutmix_alpha, "cutmix_alpha")
    check_range("switch", switch, 0, 1)


class MixupOrCutMix(MixTransform):
    """``x, soft = MixupOrCutMix(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=100)(x, y)``"""

    function = mixup_or_cutmix

    def __init__(
        self,
        mixup_alpha: float = 0.8,
        cutmix_alpha: float = 1.0,
        num_classes: int | None = None,
        *,
        switch: float = 0.5,
        **options: Any,
    ) -> None:
        _check_options(mixup_alpha, cutmix_alpha, switch)
        own: dict[str, Any] = {"mixup_alpha": mixup_alpha, "cutmix_alpha": cutmix_alpha, "switch": switch}
        super().__init__(None, num_classes, **own, **options)
