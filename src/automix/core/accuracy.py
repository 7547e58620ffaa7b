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


def pair_correct(logits: Tensor, y_a: Tensor, y_b: Tensor) -> tuple[Tensor, Tensor]:
    """Compare the two highest logits of each mixed sample with its two labels.

    Samples whose two labels are the same class are left out.

    Args:
        logits: Scores, ``(N, C)``.
        y_a: Class indices of the images ``(N,)``.
        y_b: Class indices of their partners ``(N,)``.

    Returns:
        Whether the highest logit is one of the two classes, and whether the two highest logits are both; bool, one
        element for each sample of two classes.
    """
    labels = torch.stack([y_a, y_b], dim=1)
    highest = logits.topk(2, dim=1).indices
    hits = (highest.unsqueeze(2) == labels.unsqueeze(1)).any(dim=2)  # (N, 2)
    two = y_a != y_b
    return hits[two, 0], hits[two].all(dim=1)
