"""Top-k accuracy: the one place that decides whether a prediction is correct."""

import math
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


def accuracy_interval(accuracy: float, count: int) -> tuple[float, float]:
    """Compute the 95 % interval of an accuracy (Wilson, 1927): what the test set's size leaves open.

    Args:
        accuracy: In percent.
        count: Number of test images.

    Returns:
        Both ends in percent. They say nothing about other seeds or other photographs than those of the test set's kind.
    """
    z = 1.959964
    share = accuracy / 100
    center = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z / (1 + z * z / count) * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
    return 100 * max(0.0, center - half), 100 * min(1.0, center + half)


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
