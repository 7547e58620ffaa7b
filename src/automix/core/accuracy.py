"""Top-k accuracy: the one place that decides whether a prediction is correct."""

from collections.abc import Sequence

import torch
from torch import Tensor


def topk_correct(logits: Tensor, labels: Tensor, topk: Sequence[int] = (1,)) -> Tensor:
    """Compare the highest logits of each sample with its label.

    Args:
        logits: Scores, ``(N, C)``.
        labels: Class indices ``(N,)`` on the same device.
        topk: The values of k; a k above C counts as C.

    Returns:
        Whether the label is among the k highest logits, ``(len(topk), N)`` bool.
    """
    highest = logits.topk(min(max(topk), logits.shape[1]), dim=1).indices
    hits = (highest == labels.unsqueeze(1)).T
    return torch.stack([hits[:k].any(dim=0) for k in topk])


def topk_accuracy(logits: Tensor, labels: Tensor, k: int = 1) -> float:
    """Compute the top-k accuracy.

    Args:
        logits: Scores, ``(N, C)``.
        labels: Class indices ``(N,)`` on the same device.
        k: How many of the highest logits may contain the label.

    Returns:
        Percent of the samples whose label is among the `k` highest logits.
    """
    return 100 * topk_correct(logits, labels, (k,))[0].double().mean().item()
