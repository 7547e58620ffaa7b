"""Accuracy on corrupted images: 19 common corruptions at 5 severities (Hendrycks & Dietterich, ICLR 2019).

    accuracy of a corruption = mean over the severities of the top-1 accuracy
    corruption_top1          = mean over the corruptions
    corruption_error         = 100 - corruption_top1

The paper's mCE divides each corruption's error by that of an AlexNet before it takes the mean; such weights exist for
ImageNet-C only. `corruption_error` is the mean without them, as is usual on CIFAR-C. The paper takes the mean over 15
corruptions (`BENCHMARK`); here it is over all 19 unless `names` is given.

Images are read from the official files if there is a `folder` of them (folders.py), else generated from the test images
(generate.py). Generated ones have the published strengths but other random numbers, and drawn frost: close to the files
but not equal to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.accuracy import topk_accuracy, topk_correct
from automix.core.validation import check_whole
from automix.evaluation.corruptions.apply import check_names, check_severities
from automix.evaluation.corruptions.folders import Arrays, Files, open_corrupted
from automix.evaluation.corruptions.generate import PART, check_samples, corrupt_part
from automix.evaluation.corruptions.severities import NAMES, severity_table
from automix.evaluation.plots import as_image, new_figure
from automix.evaluation.predictions import Predictions, check_predictions, predict_unless_given
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples, to_float
from automix.networks.modes import eval_mode

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class CorruptionTable:
    """Top-1 accuracy in percent by corruption and severity.

    Attributes:
        names: Names of the corruptions.
        severities: From 1 to 5.
        top1: ``(corruptions, severities)``.
        clean: Of the images without a corruption.
    """

    names: tuple[str, ...]
    severities: tuple[int, ...]
    top1: Tensor
    clean: float


@dataclass(frozen=True)
class CorruptionResult(EvaluationResult):
    """The result of `evaluate_corruptions`.

    Attributes:
        table: Accuracy by corruption and severity.
    """

    table: CorruptionTable = field(kw_only=True)


def evaluate_corruptions(
    model: nn.Module,
    samples: Samples,
    *,
    folder: Path | str | None = None,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    predictions: Predictions | None = None,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> CorruptionResult:
    """Measure the accuracy on corrupted images.

    Args:
        model: Classifier from pixels in [0, 1] to logits.
        samples: The test images without corruptions.
        folder: Corrupted images in the layout of CIFAR-C or ImageNet-C; generated from `samples` if not given.
        names: Names of the corruptions; all 19 if not given, or what a folder has. A name that is missing in the folder
            is an error.
        severities: From 1 to 5.
        predictions: Result of `predict_logits` on the same images, to share one pass between evaluators.
        batch_size: Images per forward pass.
        track: Progress display, such as `progress_bar`.

    Returns:
        ``corruption_top1``, ``corruption_error`` and ``<name>_top1`` of each corruption in percent; the whole table is
        in `table` and in the picture.
    """
    check_severities(severities, least=1)
    check_whole("batch_size", batch_size, 1)
    check_samples(samples)
    count_correct = _Counter(model, len(samples.classes), batch_size)
    logits, labels = predict_unless_given(predictions, model, samples, batch_size=batch_size, track=no_progress)
    clean = topk_accuracy(logits, labels)
    with eval_mode(model), torch.inference_mode():
        if folder is not None:
            stored = open_corrupted(folder, names, severities, samples.classes)
            table = _from_files(count_correct, samples, stored, tuple(severities), clean, track)
            source = f"read from {folder}"
        else:
            names = NAMES if names is None else names
            check_names(names)
            table = _generated(count_correct, samples, tuple(names), tuple(severities), clean, track)
            source = (
                f"generated from the {len(samples):,} test images with the strengths of "
                f"{severity_table(samples.image_size)[0]}, frost with drawn ice: not the official files"
            )
    mean = float(table.top1.mean())
    values = {"corruption_top1": mean, "corruption_error": 100 - mean}
    values |= {f"{name}_top1": float(row.mean()) for name, row in zip(table.names, table.top1, strict=True)}
    notes = (
        f"{len(table.names)} corruptions at severity {', '.join(map(str, table.severities))}, {source}",
        "corruption_error is a plain mean, not mCE: it is not relative to AlexNet",
    )
    return CorruptionResult(values, {"corruptions": lambda: draw_table(table)}, notes, table=table)


@dataclass(frozen=True)
class _Counter:
    """Count the images that the model predicts correctly."""

    model: nn.Module
    num_classes: int
    batch_size: int

    def __call__(self, images: Tensor, labels: Tensor) -> int:
        device = next(self.model.parameters()).device
        total = 0
        for pixels, truth in zip(images.split(self.batch_size), labels.split(self.batch_size), strict=True):
            logits = self.model(to_float(pixels, device)).cpu()
            check_predictions((logits, truth), self.num_classes)
            total += int(topk_correct(logits, truth).sum())
        return total


def _generated(
    count_correct: _Counter,
    samples: Samples,
    names: tuple[str, ...],
    severities: tuple[int, ...],
    clean: float,
    track: Track,
) -> CorruptionTable:
    """Read every image once and corrupt it in all ways."""
    correct = torch.zeros(len(names), len(severities))
    cells = [(row, column) for row in range(len(names)) for column in range(len(severities))]
    steps = ((number, part, cell) for number, part in enumerate(samples.parts(PART)) for cell in cells)
    total = -(-len(samples) // PART) * len(cells)
    for number, part, (row, column) in track(steps, total, "corruptions"):
        images = corrupt_part(part.images, number, names[row], severities[column])
        correct[row, column] += count_correct(images, part.labels)
    return CorruptionTable(names, severities, 100 * correct / len(samples), clean)


def _from_files(
    count_correct: _Counter,
    samples: Samples,
    stored: Arrays | Files,
    severities: tuple[int, ...],
    clean: float,
    track: Track,
) -> CorruptionTable:
    top1 = torch.zeros(len(stored.names), len(severities))
    places = [(row, column) for row in range(len(stored.names)) for column in range(len(severities))]
    for row, column in track(places, len(places), "corruptions"):
        correct = count = 0
        parts = stored.parts(stored.names[row], severities[column], samples.image_size, count_correct.batch_size)
        for part in parts:
            correct, count = correct + count_correct(part.images, part.labels), count + len(part)
        top1[row, column] = 100 * correct / count
    return CorruptionTable(stored.names, severities, top1, clean)


def draw_table(table: CorruptionTable) -> Image.Image:
    """Draw the accuracy by corruption and severity; the last row and column are the means."""
    rows, columns = len(table.names), len(table.severities)
    cells = torch.zeros(rows + 1, columns + 1)
    cells[:rows, :columns] = table.top1
    cells[rows, :columns], cells[:rows, columns] = table.top1.mean(dim=0), table.top1.mean(dim=1)
    cells[rows, columns] = table.top1.mean()
    bcorrectest = max(table.clean, float(cells.max()), 1.0)

    figure, axes = new_figure(2.6 + 0.62 * (columns + 1), 1.4 + 0.27 * (rows + 1))
    axes.imshow(cells.numpy(), cmap="viridis", vmin=0, vmax=bcorrectest, aspect="auto")
    for (row, column), value in _items(cells):
        ink = "black" if value > 0.6 * bcorrectest else "white"
        axes.text(column, row, f"{value:.1f}", ha="center", va="center", color=ink, fontsize=8)
    axes.set_xticks(range(columns + 1), [*map(str, table.severities), "mean"], fontsize=9)
    axes.set_yticks(range(rows + 1), [*(name.replace("_", " ") for name in table.names), "mean"], fontsize=9)
    axes.set_xlabel("severity")
    axes.axhline(rows - 0.5, color="white", linewidth=3)
    axes.axvline(columns - 0.5, color="white", linewidth=3)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    figure.suptitle(f"top-1 in %: clean {table.clean:.1f}, corrupted {cells[rows, columns]:.1f}", fontsize=11)
    return as_image(figure)


def _items(cells: Tensor) -> list[tuple[tuple[int, int], float]]:
    return [((row, column), value) for row, line in enumerate(cells.tolist()) for column, value in enumerate(line)]
