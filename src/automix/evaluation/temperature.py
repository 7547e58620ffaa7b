"""Temperature scaling (Guo, Pleiss, Sun and Weinberger, 2017), cross-fitted on two halves of the test set."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

CHUNK = 200  # rows per step: three times as fast when they fit into the processor's cache
MIN_INVERSE, MAX_INVERSE = 1e-3, 1e3  # bounds of 1/T, in units of the logits' spread


def cross_fit_temperature(logits: Tensor, labels: Tensor) -> tuple[Tensor, tuple[float, float]]:
    """Divide the logits of each half by the temperature fitted on the other half.

    Args:
        logits: ``(N, C)``.
        labels: Class indices ``(N,)``.

    Returns:
        The scaled logits ``(N, C)`` float32, and the temperatures fitted on the first and the second half.
    """
    first = first_half(labels)
    of_first, of_second = (fit_temperature(logits[half], labels[half]) for half in (first, ~first))
    divisors = torch.where(first, of_second, of_first).double()
    return (logits / divisors.unsqueeze(1)).float(), (of_first, of_second)


def first_half(labels: Tensor) -> Tensor:
    """Select every other image of each class, in the order of the images, (N,) bool."""
    half = torch.empty(len(labels), dtype=torch.bool)
    half[labels.argsort(stable=True)] = torch.arange(len(labels)) % 2 == 0
    return half


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """Find the T that minimizes the negative log-likelihood of softmax(logits / T).

    The loss is convex in 1/T, and Newton's method runs in float64; a step that leaves the bracket around the minimum is
    replaced by bisection. If all predictions are correct the minimum lies at T = 0, if they are worse than chance at
    infinity: T stays between 1/1000 and 1000 times the spread of the logits (the mean over images of their standard
    deviation over classes). Logits that are all equal have T = 1.

    Args:
        logits: ``(N, C)``.
        labels: Class indices ``(N,)``.

    Returns:
        The temperature; above 1 if the classifier is overconfident.
    """
    spread = logits.double().std(dim=1, correction=0).mean().item()
    if spread == 0:
        return 1.0
    low, high = MIN_INVERSE / spread, MAX_INVERSE / spread
    if _slope_and_curvature(logits, labels, low)[0] >= 0:
        return 1 / low
    if _slope_and_curvature(logits, labels, high)[0] <= 0:
        return 1 / high
    inverse = min(max(1.0, low), high)
    for _ in range(100):
        slope, curvature = _slope_and_curvature(logits, labels, inverse)
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        newton = inverse - slope / curvature if curvature > 0 else high
        before, inverse = inverse, newton if low < newton < high else math.sqrt(low * high)
        if abs(inverse - before) <= 1e-8 * before:
            break
    return 1 / inverse


def chunks(logits: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """Split logits, in float64, and labels into parts of CHUNK rows."""
    for part, truth in zip(logits.split(CHUNK), labels.split(CHUNK), strict=True):
        yield part.double(), truth


def _slope_and_curvature(logits: Tensor, labels: Tensor, inverse: float) -> tuple[float, float]:
    """Derivatives of the summed negative log-likelihood by 1/T: mean minus true logit, and the logits' variance."""
    slope, curvature = 0.0, 0.0
    for part, truth in chunks(logits, labels):
        probabilities = (part * inverse).softmax(dim=1)
        margin = part - part.gather(1, truth.unsqueeze(1))  # never above 0 for a correct prediction: nor is the slope
        mean = (probabilities * margin).sum(dim=1, keepdim=True)
        slope += mean.sum().item()
        curvature += (probabilities * (margin - mean).square()).sum().item()
    return slope, curvature
