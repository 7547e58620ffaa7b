"""Calibration: does the predicted probability agree with the accuracy?

confidence, overconfidence
    The confidence of an image is its highest softmax probability. `confidence` is the mean in percent, and
    `overconfidence` that mean minus top-1: positive if the classifier is overconfident, negative if underconfident.
ece
    The expected calibration error in percent (Guo, Pleiss, Sun and Weinberger, 2017): images are put by confidence into
    15 equal bins, and |accuracy - mean confidence| is averaged over the bins, weighted by their images, by
    torchmetrics.
    A bin includes its lower edge, and the last one 1 as well; torchmetrics by itself gives a confidence of exactly 1 a
    bin of its own, and Guo's bins include the upper edge.
ece_scaled, temperature
    The same after temperature scaling: logits are divided by the T that minimizes the negative log-likelihood on
    held-out images. The test images are split in two halves, alternating within each class, and each half is scaled by
    the T fitted on the other one. `temperature` is the mean of the two, above 1 if the classifier is overconfident. A
    small test set has an ECE above 0 however good the classifier is.
brier
    The mean over images of the SUM over classes of (probability - truth)^2, from 0 to 2 (Brier, 1950; others take the
    mean over classes, or half of it). Not a percentage.
nll
    The mean negative log-likelihood of the true class in nats, the cross-entropy. Not a percentage.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.accuracy import topk_accuracy, topk_correct
from automix.core.errors import AutomixError
from automix.evaluation.plots import BLUE, GRAY, ORANGE, RED, as_image, new_figure
from automix.evaluation.predictions import Predictions, predict_unless_given
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples
from automix.evaluation.temperature import CHUNK, chunks, cross_fit_temperature

BINS = 15
BELOW_ONE = 1 - 2**-24  # the largest float32 below 1
CENTERS = (np.arange(BINS) + 0.5) / BINS
LIGHT_RED, LIGHT_ORANGE = "#f3d6d6", "#f9e4cb"


def evaluate_calibration(
    model: nn.Module,
    samples: Samples,
    *,
    predictions: Predictions | None = None,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> EvaluationResult:
    """Measure the expected calibration error, before and after temperature scaling, the Brier score and the NLL.

    Args:
        model: Classifier from pixels in [0, 1] to logits.
        samples: Test images, 2 or more, of 2 or more classes.
        predictions: Result of `predict_logits` on the same images, to share one pass between evaluators.
        batch_size: Images per forward pass.
        track: Progress display, such as `progress_bar`.

    Returns:
        ``ece``, ``ece_scaled``, ``temperature``, ``confidence``, ``overconfidence``, ``brier`` and ``nll``; the picture
        is the reliability diagram, and the series are its bins.
    """
    if len(samples.classes) < 2 or len(samples) < 2:
        raise AutomixError(
            f"samples must have at least 2 images and 2 classes, got {len(samples)} and {len(samples.classes)}"
        )
    _torchmetrics()  # fail before the pass over the images, not after it
    logits, labels = predict_unless_given(predictions, model, samples, batch_size=batch_size, track=track)
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
    bins = reliability(logits, labels)
    panels = {
        f"before scaling\nECE {values['ece']:.1f} %": bins,
        f"divided by T = {values['temperature']:.2f}\nECE {values['ece_scaled']:.1f} %": reliability(scaled, labels),
    }
    notes = ("temperature, brier (sum over classes, 0 to 2) and nll (nats) are not percentages",)
    return EvaluationResult(values, {"reliability": partial(draw_reliability, panels)}, notes, bins.series())


def expected_calibration_error(logits: Tensor, labels: Tensor) -> float:
    """Compute the ECE with 15 bins, from 0 to 1."""
    metric = _torchmetrics().MulticlassCalibrationError(num_classes=logits.shape[1], n_bins=BINS, norm="l1")
    for part, truth in chunks(logits, labels):
        metric.update(part.softmax(dim=1).clamp(max=BELOW_ONE), truth)  # the last bin includes 1
    return metric.compute().item()


def _torchmetrics() -> Any:
    try:
        from torchmetrics import classification
    except ImportError:
        raise AutomixError("calibration needs torchmetrics: pip install 'automix[evaluate]'") from None
    return classification


def confidences(logits: Tensor) -> Tensor:
    """Compute the highest probability of each image, (N,) float32."""
    return torch.cat([part.softmax(dim=1).amax(dim=1) for part in logits.double().split(CHUNK)]).float()


def nll_and_brier(logits: Tensor, labels: Tensor) -> tuple[float, float]:
    """Compute the negative log-likelihood in nats and the Brier score, both as means over the images."""
    nll, brier = 0.0, 0.0
    for part, truth in chunks(logits, labels):
        logs = part.log_softmax(dim=1)
        nll -= logs.gather(1, truth.unsqueeze(1)).sum().item()
        brier += (logs.exp() - nn.functional.one_hot(truth, logits.shape[1])).square().sum().item()
    return nll / len(labels), brier / len(labels)


# --- the reliability diagram


class Reliability(NamedTuple):
    """Share of the images, accuracy and mean confidence of each bin, (15,) each; NaN in an empty bin."""

    share: Tensor
    accuracy: Tensor
    confidence: Tensor

    def series(self) -> dict[str, list[float | None]]:
        """List the bins for `EvaluationResult.series`, None instead of NaN."""
        return {name: [None if math.isnan(value) else value for value in values.tolist()]
                for name, values in self._asdict().items()}  # fmt: skip

    @classmethod
    def from_series(cls, series: Mapping[str, Sequence[float | None]]) -> "Reliability":
        """Read the bins that `series` listed."""
        columns = ([math.nan if value is None else value for value in series[name]] for name in cls._fields)
        return cls(*(torch.tensor(column, dtype=torch.float64) for column in columns))


def reliability(logits: Tensor, labels: Tensor) -> Reliability:
    """Compute the bins of the ECE, which is the sum of share * |accuracy - confidence|."""
    confidence = confidences(logits).clamp(max=BELOW_ONE)
    correct = topk_correct(logits, labels)[0].double()
    bin_index = torch.bucketize(confidence, torch.linspace(0, 1, BINS + 1), right=True) - 1
    count = torch.bincount(bin_index, minlength=BINS)
    sums = (torch.bincount(bin_index, weights=what, minlength=BINS) for what in (correct, confidence.double()))
    return Reliability(count / len(labels), *(total / count for total in sums))


def draw_reliability(panels: dict[str, Reliability]) -> Image.Image:
    """Draw accuracy over confidence with the gap between them; below, how many images each bin has."""
    rows = {"nrows": 2, "gridspec_kw": {"height_ratios": (4, 1)}}
    figure, axes = new_figure(4.2 * len(panels), 5.7, ncols=len(panels), squeeze=False, sharex=True, **rows)
    for (above, below), (title, bins) in zip(axes.T, panels.items(), strict=True):
        draw_bins(above, bins)
        above.text(0.96, 0.05, title, ha="right", bbox={"facecolor": "white", "edgecolor": GRAY})
        below.bar(CENTERS, 100 * bins.share.numpy(), 1 / BINS, color=GRAY, edgecolor="white")
        below.set(xlabel="confidence", ylim=(0, None))
    axes[0, 0].set_ylabel("accuracy")
    axes[1, 0].set_ylabel("images, %")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=4, frameon=False)
    return as_image(figure)


def draw_bins(axis: Any, bins: Reliability) -> None:
    """Draw accuracy over confidence, the gap between them and the diagonal of a calibrated classifier."""
    accuracy, confidence = bins.accuracy.numpy(), bins.confidence.numpy()
    gap, width = confidence - accuracy, 1 / BINS
    over = {"bottom": accuracy, "color": LIGHT_RED, "edgecolor": RED, "hatch": "///"}
    under = {"bottom": confidence, "color": LIGHT_ORANGE, "edgecolor": ORANGE, "hatch": "xxx"}
    axis.bar(CENTERS, accuracy, width, color=BLUE, edgecolor="white", label="accuracy")
    axis.bar(CENTERS, np.where(gap > 0, gap, np.nan), width, label="overconfident", **over)
    axis.bar(CENTERS, np.where(gap < 0, -gap, np.nan), width, label="underconfident", **under)
    axis.plot((0, 1), (0, 1), color="red", linewidth=1.5, label="calibrated")
    axis.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
