"""The classifier's answers to all test images, in one pass: what accuracy and calibration are computed from."""

import math
from typing import TypeAlias

import torch
from torch import Tensor, nn

from automix.core.validation import check_classes, check_whole
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.samples import BATCH, Samples, to_float
from automix.networks.modes import eval_mode

Predictions: TypeAlias = tuple[Tensor, Tensor]
"""Logits (N, C) float32 and labels (N,), both on the CPU."""


def predict_logits(
    model: nn.Module, samples: Samples, *, batch_size: int = BATCH, track: Track = no_progress
) -> tuple[Tensor, Tensor]:
    """Logits (N, C) float32 and labels (N,), both on the CPU, in the order of the images.

    Only the logits are kept, so the images may be more than the memory holds.
    """
    check_whole("batch_size", batch_size, 1)
    if len(samples) == 0:
        raise ValueError("there are no images: accepted are one or more")
    weight = next(model.parameters())
    answers, labels = [], []
    with eval_mode(model), torch.no_grad():
        for part in track(samples.parts(batch_size), math.ceil(len(samples) / batch_size), "asking the classifier"):
            logits = model(to_float(part.images, weight.device).to(weight.dtype)).float().cpu()
            check_predictions((logits, part.labels), len(samples.classes))
            answers.append(logits)
            labels.append(part.labels)
    return torch.cat(answers), torch.cat(labels)


def check_predictions(answers: Predictions, num_classes: int) -> None:
    """Raise a ValueError of one line unless there is a finite number for every class and a label for every image."""
    logits, labels = answers
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise ValueError(
            f"answers of shape {tuple(logits.shape)} to labels of shape {tuple(labels.shape)}: "
            "accepted are logits (N, C) and labels (N,)"
        )
    if logits.shape[1] != num_classes:
        raise ValueError(
            f"the model gives {logits.shape[1]} numbers, the data has {num_classes} classes: accepted are equals"
        )
    check_classes(labels, num_classes)
    if not logits.isfinite().all():
        raise ValueError("the model gives NaN or infinity: accepted are finite numbers")


def answers_of(
    model: nn.Module, samples: Samples, answers: Predictions | None, *, batch_size: int, track: Track
) -> tuple[Tensor, Tensor]:
    """`answers`, checked, or where there are none yet the model's."""
    if answers is None:
        return predict_logits(model, samples, batch_size=batch_size, track=track)
    check_predictions(answers, len(samples.classes))
    return answers
