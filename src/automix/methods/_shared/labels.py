"""Labels as rows, for methods that mix more than two images: SuperMix and Co-Mixup."""

import torch
from torch import Tensor

from automix.core.target import MixedTarget


def label_rows(y: Tensor, num_classes: int | None) -> Tensor:
    """Return labels as rows ``(N, num_classes)`` of a floating type.

    Args:
        y: Class indices ``(N,)``, or rows ``(N, num_classes)``.
        num_classes: Number of classes; needed for class indices only.
    """
    return MixedTarget.clean(y).soft(num_classes if y.ndim == 1 else None)


def count_labels(y: Tensor, num_classes: int) -> int:
    """Return how many columns the labels of a batch need as rows.

    That is the network's number of classes, except for `Task.mix` without labels: it numbers the images of the batch,
    of which there may be more. It runs without gradients, and only then are the labels read, because on another device
    reading them forces a synchronization.

    Args:
        y: Class indices ``(N,)``, or rows ``(N, num_classes)``.
        num_classes: Number of classes of the network.
    """
    if y.ndim == 2 or torch.is_grad_enabled():
        return num_classes
    return max(num_classes, int(y.max()) + 1)
