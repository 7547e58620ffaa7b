"""Labels by attention: the label follows how much attention falls on each image of a mixture.

With the attention A of a vision transformer on the mixed images and the mask s of the mixture at its patches (nearest),

    lam_A = sum(A * s) / sum(A)

    half:         lam := (lam_A + lam) / 2                                       (TransMix, Chen et al., 2022)
    progressive:  lam := c lam_A + (1 - c) lam,  c = cos(prediction, label)      (MixPro, Zhao et al., 2023)

lam is the plain area, `label` the mixed label by area, and the prediction the softmax of the logits (for multi-label
rows, their sigmoid). The progressive rule trusts the attention as far as the network knows what it sees.
"""

from dataclasses import replace
from typing import Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget, is_multi_label
from automix.core.tensor_checks import check_shape
from automix.core.validation import check_choice

AttentionLabel = Literal["half", "progressive"]
"""Weight of the attention in the label: a half, or the similarity of prediction and label."""


@torch.no_grad()
def label_by_attention(
    mixed: Mixed, attention: Tensor, rule: AttentionLabel = "half", *, logits: Tensor | None = None
) -> Mixed:
    """Let the label of a mixed batch follow the share of the attention that falls on each image.

    No gradient flows through the label.

    Args:
        mixed: A batch of mixed pairs.
        attention: Attention on the MIXED images, ``(N, h, w)``.
        rule: "half" takes half of `lam` from the attention, "progressive" as much as prediction and label are alike.
        logits: The network's output for the mixed images, ``(N, num_classes)``; for "progressive" only.

    Returns:
        The batch with one `lam` per sample.
    """
    check_choice("rule", rule, get_args(AttentionLabel))
    check_shape("attention", attention, (len(mixed.x), "h", "w"))
    if mixed.target.more:
        raise AutomixError(f"labels by attention are those of pairs, got {len(mixed.target.labels)} images a mixture")
    attention = at_least_float32(attention)
    mask = mixed.mask.to(attention.dtype).mean(dim=1, keepdim=True)
    mask = F.interpolate(mask, size=attention.shape[-2:], mode="nearest").squeeze(1)
    share = ((attention * mask).sum(dim=(1, 2)) / attention.sum(dim=(1, 2))).to(mixed.target.lam)
    if rule == "half":
        lam = (mixed.target.lam + share) / 2
    elif logits is None:
        raise AutomixError("logits must be given for the progressive rule, got None")
    else:
        trust = _similarity(logits, mixed.target).to(share)
        lam = trust * share + (1 - trust) * mixed.target.lam
    return replace(mixed, target=replace(mixed.target, lam=lam))


def _similarity(logits: Tensor, target: MixedTarget) -> Tensor:
    """The cosine of the angle between prediction and label of each sample (N,), in [0, 1]."""
    logits = at_least_float32(logits)
    multi_label = target.multi_label or is_multi_label(target.y_a)
    prediction = logits.sigmoid() if multi_label else logits.softmax(dim=1)
    return F.cosine_similarity(prediction, target.soft(logits.shape[1]).to(prediction), dim=1)
