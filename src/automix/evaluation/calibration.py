"""Calibration: is the classifier as often right as it says?

confidence and overconfidence
    An image's confidence is the highest softmax probability. `confidence` is its mean in percent, `overconfidence` is
    that mean minus top-1: positive where the classifier promises too much, negative where it is too modest.
ece
    The expected calibration error (Guo, Pleiss, Sun and Weinberger, 2017), in percent as in the paper: images are put
    by confidence into 15 equal bins, and |accuracy - mean confidence| of the bins is averaged, weighted by how many
    images they have. By torchmetrics. A bin includes its lower edge, the last one 1 as well; torchmetrics by itself
    gives a confidence of exactly 1 a bin of its own, and Guo's bins include the upper edge.
ece_scaled and temperature
    The same after temperature scaling (Guo et al.): logits are divided by the T that minimizes the negative
    log-likelihood on held-out images. The test images are split in two halves, alternating within each class, and each
    half is scaled by the T fitted on the OTHER half, so that no image is judged by a temperature it helped to find.
    `temperature` is the mean of the two, above 1 where the classifier was overconfident. What remains of the error is
    what one number cannot mend, and the noise of the bins: few images have an ECE above 0 however good the classifier.
brier
    The mean over images of the SUM over classes of (probability - truth)^2, from 0 to 2 (Brier, 1950; others take the
    mean over classes, or half of it). No percentage.
nll
    The mean negative log-likelihood of the right class in nats: the cross-entropy. No percentage.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.accuracy import topk_accuracy, topk_correct
from automix.evaluation.plots import BLUE, GRAY, ORANGE, RED, as_image, new_figure
from automix.evaluation.predictions import Predictions, answers_of
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples

BINS = 15
ROWS = 200  # handled at once: what fits into the processor's cache is three times as fast
BELOW_ONE = 1 - 2**-24  # the largest float32 below 1
LIGHT_RED, LIGHT_ORANGE = "#f3d6d6", "#f9e4cb"
FLATTEST, SHARPEST = 1e-3, 1e3  # bounds of 1/T, in units of the logits' spread


def evaluate_calibration(
    model: nn.Module,
    samples: Samples,
    *,
    answers: Predictions | None = None,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> EvaluationResult:
    """ECE as it is and after temperature scaling, over-confidence, Brier score and NLL; see above for each.

    Where `predict_logits` has run already, its `answers` spare a second pass.
    """
    if len(samples.classes) < 2 or len(samples) < 2:
        raise ValueError(
            f"calibration on {len(samples)} images of {len(samples.classes)} classes: accepted are 2 or more of both"
        )
    _torchmetrics()  # before the pass: where it is missing nobody should wait to hear so
    logits, labels = answers_of(model, samples, answers, batch_size=batch_size, track=track)
    scaled, temperatures = cross_fit_temperature(logits, labels)
    confidence = 100 * confidences(logits).double().mean().item()
    nll, brier = nll_and_brier(logits, labels)
    values = {
        "ece": 100 * expected_calibration_error(logits, labels),
        "ece_scaled": 100 * expected_calibration_error(scaled, labels),
        "temperature": sum(temperatures) / 2,
        "confidence": confidence,
        "overconfidence": confidence - topk_accuracy(logits, labels),
        "brier": brier,
        "nll": nll,
    }
    panels = {
        f"as it is\nECE {values['ece']:.1f} %": reliability(logits, labels),
        f"divided by T = {values['temperature']:.2f}\nECE {values['ece_scaled']:.1f} %": reliability(scaled, labels),
    }
    notes = ("temperature, brier (sum over classes, 0 to 2) and nll (nats) are no percentages",)
    return EvaluationResult(values, {"reliability": partial(draw_reliability, panels)}, notes)


def expected_calibration_error(logits: Tensor, labels: Tensor) -> float:
    """ECE of 15 bins, from 0 to 1."""
    metric = _torchmetrics().MulticlassCalibrationError(num_classes=logits.shape[1], n_bins=BINS, norm="l1")
    for some, truth in _parts(logits, labels):
        metric.update(some.softmax(dim=1).clamp(max=BELOW_ONE), truth)  # the last bin includes 1
    return metric.compute().item()


def _torchmetrics() -> Any:
    try:
        from torchmetrics import classification
    except ImportError:
        raise ValueError("calibration needs torchmetrics: pip install 'automix[evaluate]'") from None
    return classification


def confidences(logits: Tensor) -> Tensor:
    """The highest probability of each image, (N,) float32."""
    return torch.cat([some.softmax(dim=1).amax(dim=1) for some in logits.double().split(ROWS)]).float()


def nll_and_brier(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """The negative log-likelihood in nats and the Brier score, both as means over the images."""
    nll, brier = 0.0, 0.0
    for some, truth in _parts(logits, labels):
        logs = some.log_softmax(dim=1)
        nll -= logs.gather(1, truth.unsqueeze(1)).sum().item()
        brier += (logs.exp() - nn.functional.one_hot(truth, logits.shape[1])).square().sum().item()
    return nll / len(labels), brier / len(labels)


# --- temperature scaling


def cross_fit_temperature(logits: Tensor, labels: Tensor) -> tuple[Tensor, tuple[float, float]]:
    """The logits of each half divided by the temperature of the other one; and the temperatures of both."""
    first = first_half(labels)
    of_first, of_second = (fit_temperature(logits[half], labels[half]) for half in (first, ~first))
    divisors = torch.where(first, of_second, of_first).double()
    return (logits / divisors.unsqueeze(1)).float(), (of_first, of_second)


def first_half(labels: Tensor) -> Tensor:
    """Which images belong to the first half, (N,) bool: every other one of each class, in the order of the images."""
    half = torch.empty(len(labels), dtype=torch.bool)
    half[labels.argsort(stable=True)] = torch.arange(len(labels)) % 2 == 0
    return half


def fit_temperature(logits: Tensor, labels: Tensor) -> float:
    """The T that minimizes the negative log-likelihood of softmax(logits / T), by Newton's method in float64.

    The loss is convex in 1/T. Newton steps that leave the bracket around its minimum are replaced by bisection, so that
    it is always found. Where all images are answered right it lies at T = 0, where the logits know less than nothing at
    T = infinity: T stays between 1/1000 and 1000 times the spread of the logits (the mean over images of their standard
    deviation over classes). Logits that are all equal have T = 1.
    """
    spread = logits.double().std(dim=1, correction=0).mean().item()
    if spread == 0:
        return 1.0
    low, high = FLATTEST / spread, SHARPEST / spread
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


def _slope_and_curvature(logits: Tensor, labels: Tensor, inverse: float) -> tuple[float, float]:
    """Derivatives of the summed negative log-likelihood by 1/T: mean minus true logit, and the logits' variance."""
    slope, curvature = 0.0, 0.0
    for some, truth in _parts(logits, labels):
        probabilities = (some * inverse).softmax(dim=1)
        lead = some - some.gather(1, truth.unsqueeze(1))  # never above 0 where the answer is right: nor is the slope
        mean = (probabilities * lead).sum(dim=1, keepdim=True)
        slope += mean.sum().item()
        curvature += (probabilities * (lead - mean).square()).sum().item()
    return slope, curvature


def _parts(logits: Tensor, labels: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    for some, truth in zip(logits.split(ROWS), labels.split(ROWS), strict=True):
        yield some.double(), truth


# --- the reliability diagram


class Reliability(NamedTuple):
    """By bin, (15,): the share of the images, their accuracy and their mean confidence, NaN where there are none."""

    share: Tensor
    accuracy: Tensor
    confidence: Tensor


def reliability(logits: Tensor, labels: Tensor) -> Reliability:
    """What the bins of the ECE hold: it is the sum of share * |accuracy - confidence|."""
    confidence = confidences(logits).clamp(max=BELOW_ONE)
    right = topk_correct(logits, labels)[0].double()
    place = torch.bucketize(confidence, torch.linspace(0, 1, BINS + 1), right=True) - 1
    count = torch.bincount(place, minlength=BINS)
    sums = (torch.bincount(place, weights=what, minlength=BINS) for what in (right, confidence.double()))
    return Reliability(count / len(labels), *(total / count for total in sums))


def draw_reliability(panels: dict[str, Reliability]) -> Image.Image:
    """Accuracy by confidence, with the gap to what was promised; below, how many images each bin has."""
    rows = {"nrows": 2, "gridspec_kw": {"height_ratios": (4, 1)}}
    figure, axes = new_figure(4.2 * len(panels), 5.7, ncols=len(panels), squeeze=False, sharex=True, **rows)
    centers = (np.arange(BINS) + 0.5) / BINS
    width = 1 / BINS
    for (above, below), (words, bins) in zip(axes.T, panels.items(), strict=True):
        share, accuracy, confidence = (values.numpy() for values in bins)
        gap = confidence - accuracy
        missing = {"bottom": accuracy, "color": LIGHT_RED, "edgecolor": RED, "hatch": "///"}
        surplus = {"bottom": confidence, "color": LIGHT_ORANGE, "edgecolor": ORANGE, "hatch": "xxx"}
        above.bar(centers, accuracy, width, color=BLUE, edgecolor="white", label="accuracy")
        above.bar(centers, np.where(gap > 0, gap, np.nan), width, label="less than promised", **missing)
        above.bar(centers, np.where(gap < 0, -gap, np.nan), width, label="more than promised", **surplus)
        above.plot((0, 1), (0, 1), color="red", linewidth=1.5, label="as promised")
        above.text(0.96, 0.05, words, ha="right", bbox={"facecolor": "white", "edgecolor": GRAY})
        above.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        below.bar(centers, 100 * share, width, color=GRAY, edgecolor="white")
        below.set(xlabel="confidence", ylim=(0, None))
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("images, %")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return as_image(figure)
