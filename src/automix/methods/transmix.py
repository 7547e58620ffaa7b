"""TransMix (Chen et al., 2022): CutMix whose label follows the attention of the transformer.

The images are CutMix's. Half of the label's lam is the area that x_i keeps, the other half the share of the class
token's attention, in the last block and averaged over the heads, that falls on the patches of x_i:

    lam := (mean(s) + sum(A * s') / sum(A)) / 2        s' the mask s at the patches (nearest)

For vision transformers with a class token, and for Swin: it averages its last map, as if by a class token with even
attention, so that A is the mean over all queries of the attention that a patch gets in its window of the last block. As
in the authors' training, a batch is mixed so with probability `switch`, else by Mixup. The student's own pass over the
mixed images gives A: there is no second pass, and no gradient through the label.
"""

from typing import Any

import torch
from torch import Tensor, nn

from automix.core.attention_labels import AttentionLabel, label_by_attention
from automix.core.draws import Pairing, draw_uniform
from automix.core.target import Mixed
from automix.core.validation import check_alpha, check_range
from automix.methods.cutmix import cutmix
from automix.methods.mixup import mixup
from automix.tasks.mix_task import MixTask

__all__ = ["create_task", "transmix"]


def transmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    attention: Tensor | None = None,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    center: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix as CutMix does, with a label that follows the attention on the mixed images (Chen et al., 2022).

    Attention is not known before a network has processed the mixed images: without it the label is CutMix's, and
    `label_by_attention` corrects it.

    Args:
        x: Images, ``(N, C, H, W)``, of a floating type or uint8; pixels are copied, never blended.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)`` before clipping.
        attention: Attention on the MIXED images, ``(N, h, w)``.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        center: Pixel (row, column) of the box's center, ``(2,)`` or ``(N, 2)``; drawn if not given.
        per_sample: Draw `lam` and the box for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    options: dict[str, Any] = {"center": center, "per_sample": per_sample, "generator": generator}
    mixed = cutmix(x, y, alpha, lam=lam, index=index, pairing=pairing, **options)
    return mixed if attention is None else label_by_attention(mixed, attention)


def create_task(
    model: nn.Module,
    *,
    switch: float = 0.8,
    mixup_alpha: float = 0.8,
    attention_label: AttentionLabel = "half",
    **options: Any,
) -> "TransMixTask":
    """Build the training task, for a timm transformer with a class token or Swin.

    Args:
        model: The network to train.
        switch: Probability of TransMix, in [0, 1]; other batches are mixed by Mixup.
        mixup_alpha: ``lam ~ Beta(alpha, alpha)`` of Mixup.
        attention_label: "half" is TransMix's label, "progressive" MixPro's.
        **options: Options of `transmix` and of `MixTask`.

    Returns:
        The task.
    """
    check_range("switch", switch, 0, 1)
    check_alpha(mixup_alpha, "mixup_alpha")
    return TransMixTask(model, switch, mixup_alpha, attention_label=attention_label, **options)


class TransMixTask(MixTask):
    """CutMix with labels by attention, but for batches that are mixed by Mixup."""

    def __init__(self, model: nn.Module, switch: float, mixup_alpha: float, **options: Any) -> None:
        super().__init__(model, transmix, **options)
        self.switch, self.mixup_alpha = switch, mixup_alpha

    def draw_mixed(self, x: Tensor, y: Tensor, generator: torch.Generator) -> Mixed:
        if self.switch < 1 and draw_uniform(torch.empty(0), (), generator) >= self.switch:
            shared = {name: self.options[name] for name in ("per_sample", "pairing") if name in self.options}
            return mixup(x, y, self.mixup_alpha, generator=generator, **shared)  # an even mask: its label stays
        return super().draw_mixed(x, y, generator)
