"""The logits of a classifier for all test images, in one pass; accuracy and calibration are computed from them."""

import math
from typing import TypeAlias

import torch
from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.core.tensor_checks import check_classes
from automix.core.validation import check_whole
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.samples import BATCH, Samples, to_float
from automix.networks.modes import eval_mode

Predictions: TypeAlias = tuple[Tensor, Tensor]
"""Logits (N, C) float32 and labels (N,), both on the CPU."""


def predict_logits(
    model: nn.Module, samples: Samples, *, batch_size: int = BATCH, track: Track = no_progress
) -> Predictions:
    """Run a classifier on all test images.

    Images are read batch by batch and only the logits are kept, so a test set may be larger than the memory.

    Args:
        model: Classifier from pixels in [0, 1] to logits; it runs in eval mode and is left as it was.
        samples: Test images.
        batch_size: Images per forward pass.
        track: Progress display, such as `progress_bar`.

    Returns:
        Logits ``(N, C)`` float32 and labels ``(N,)``, both on the CPU and in the order of the images.
    """
    check_whole("batch_size", batch_size, 1)
    if len(samples) == 0:
        raise AutomixError("samples must have at least 1 image, got 0")
    weight = next(model.parameters())
    outputs, labels = [], []
    with eval_mode(model), torch.no_grad():
        for part in track(samples.parts(batch_size), math.ceil(len(samples) / batch_size), "predicting"):
            logits = model(to_float(part.images, weight.device).to(weight.dtype)).float().cpu()
            check_predictions((logits, part.labels), len(samples.classes))
            outputs.append(logits)
            labels.append(part.labels)
    return torch.cat(outputs), torch.cat(labels)


def predict_unless_given(
    predictions: Predictions | None, model: nn.Module, samples: Samples, *, batch_size: int, track: Track
) -> Predictions:
    """Check `predictions`, or compute them with `predict_logits` where there are none."""
    if predictions is None:
        return predict_logits(model, samples, batch_size=batch_size, track=track)
    check_predictions(predictions, len(samples.classes))
    return predictions


def check_predictions(predictions: Predictions, num_classes: int) -> None:
    """Raise an AutomixError unless there is a finite logit for every class and a label for every image."""
    logits, labels = predictions
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise AutomixError(
            f"predictions must be logits (N, C) and labels (N,), got {tuple(logits.shape)} and {tuple(labels.shape)}"
        )
    if logits.shape[1] != num_classes:
        raise AutomixError(f"the model must return {num_classes} logits, one per class, got {logits.shape[1]}")
    check_classes(labels, num_classes)
    if not logits.isfinite().all():
        raise AutomixError("the model must return finite logits, got NaN or infinity")
