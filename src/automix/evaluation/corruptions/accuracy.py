"""Accuracy on corrupted images: 19 common corruptions at 5 severities (Hendrycks & Dietterich, ICLR 2019).

    accuracy of a corruption = mean over the severities of the top-1 accuracy
    corruption_top1          = mean over the corruptions
    corruption_error         = 100 - corruption_top1

The paper's mCE divides each corruption's error by that of an AlexNet before it takes the mean; such weights exist for
ImageNet-C only. `corruption_error` is the mean without them, as is usual on CIFAR-C. The paper takes the mean over 15
corruptions (`corrupt.BENCHMARK`); here it is over all 19 unless `names` says otherwise.

Images are read from the official files where there is a `folder` of them (folders.py), else made from the test images
(generate.py). Made ones have the published strengths but their own random numbers, and frost that is drawn: close to
the files, not equal to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.accuracy import topk_correct
from automix.core.validation import check_whole
from automix.evaluation.corruptions.apply import check_names, check_severities
from automix.evaluation.corruptions.folders import Arrays, Files, open_corrupted
from automix.evaluation.corruptions.generate import PART, check_samples, corrupt_part
from automix.evaluation.corruptions.severities import NAMES, severity_table
from automix.evaluation.plots import as_image, new_figure
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import Samples, to_float
from automix.networks.modes import eval_mode

SEVERITIES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class CorruptionTable:
    """Top-1 in percent: `top1` (corruptions, severities), and `clean`, of the images as they are."""

    names: tuple[str, ...]
    severities: tuple[int, ...]
    top1: Tensor
    clean: float


def evaluate_corruptions(
    model: nn.Module,
    samples: Samples,
    *,
    folder: Path | str | None = None,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    batch_size: int = 100,
    track: Track = no_progress,
) -> EvaluationResult:
    """corruption_top1, corruption_error and <name>_top1 of each corruption; the picture is the whole table.

    `samples` are the clean images. The corrupted ones come from `folder`, in the layout of CIFAR-C or ImageNet-C, or
    are made from `samples`; what is not in a given folder is an error, and never made up beside files.
    """
    table, notes = corruption_table(
        model, samples, folder=folder, names=names, severities=severities, batch_size=batch_size, track=track
    )
    mean = float(table.top1.mean())
    values = {"corruption_top1": mean, "corruption_error": 100 - mean}
    values |= {f"{name}_top1": float(row.mean()) for name, row in zip(table.names, table.top1, strict=True)}
    return EvaluationResult(values, {"corruptions": lambda: heat_map(table)}, notes)


def corruption_table(
    model: nn.Module,
    samples: Samples,
    *,
    folder: Path | str | None = None,
    names: Sequence[str] | None = None,
    severities: Sequence[int] = SEVERITIES,
    batch_size: int = 100,
    track: Track = no_progress,
) -> tuple[CorruptionTable, tuple[str, ...]]:
    """The accuracy of every corruption at every severity, and what a reader of it must know."""
    check_severities(severities, least=1)
    check_whole("batch_size", batch_size, 1)
    check_samples(samples)
    answers = _Answers(model, len(samples.classes), batch_size)
    with eval_mode(model), torch.inference_mode():
        if folder is not None:
            stored = open_corrupted(folder, names, severities, samples.classes)
            table = _from_files(answers, samples, stored, tuple(severities), track)
            source = f"read from {folder}"
        else:
            names = NAMES if names is None else names
            check_names(names)
            table = _made(answers, samples, tuple(names), tuple(severities), track)
            source = (
                f"made from the {len(samples):,} test images with the strengths of "
                f"{severity_table(samples.image_size)[0]}, frost with drawn ice: not the official files"
            )
    count = f"{len(table.names)} corruptions at severity {', '.join(map(str, table.severities))}"
    return table, (f"{count}, {source}", "corruption_error is a plain mean, not mCE: it is not relative to AlexNet")


@dataclass(frozen=True)
class _Answers:
    """How many of a batch the model gets right."""

    model: nn.Module
    classes: int
    batch_size: int

    def right(self, images: Tensor, labels: Tensor) -> int:
        device = next(self.model.parameters()).device
        total = 0
        for pixels, truth in zip(images.split(self.batch_size), labels.split(self.batch_size), strict=True):
            logits = self.model(to_float(pixels, device))
            if logits.shape[1:] != (self.classes,):
                raise ValueError(f"the model gives {logits.shape[1]} numbers: accepted are {self.classes}, the classes")
            total += int(topk_correct(logits.cpu(), truth).sum())
        return total


def _made(
    answers: _Answers, samples: Samples, names: tuple[str, ...], severities: tuple[int, ...], track: Track
) -> CorruptionTable:
    """Every image is read once and corrupted in all ways."""
    right, clean = torch.zeros(len(names), len(severities)), 0
    parts = track(samples.parts(PART), -(-len(samples) // PART), "corruptions")
    for number, part in enumerate(parts):
        clean += answers.right(part.images, part.labels)
        for row, name in enumerate(names):
            for column, severity in enumerate(severities):
                images = corrupt_part(part.images, number, name, severity)
                right[row, column] += answers.right(images, part.labels)
    return CorruptionTable(names, severities, 100 * right / len(samples), 100 * clean / len(samples))


def _from_files(
    answers: _Answers, samples: Samples, stored: Arrays | Files, severities: tuple[int, ...], track: Track
) -> CorruptionTable:
    clean = sum(answers.right(part.images, part.labels) for part in samples.parts(answers.batch_size))
    top1 = torch.zeros(len(stored.names), len(severities))
    places = [(row, column) for row in range(len(stored.names)) for column in range(len(severities))]
    for row, column in track(places, len(places), "corruptions"):
        right = count = 0
        parts = stored.parts(stored.names[row], severities[column], samples.image_size, answers.batch_size)
        for part in parts:
            right, count = right + answers.right(part.images, part.labels), count + len(part)
        top1[row, column] = 100 * right / count
    return CorruptionTable(stored.names, severities, top1, 100 * clean / len(samples))


def heat_map(table: CorruptionTable) -> Image.Image:
    """Corruptions downwards, severities across, the number in each cell; the last row and column are the means."""
    rows, columns = len(table.names), len(table.severities)
    cells = torch.zeros(rows + 1, columns + 1)
    cells[:rows, :columns] = table.top1
    cells[rows, :columns], cells[:rows, columns] = table.top1.mean(dim=0), table.top1.mean(dim=1)
    cells[rows, columns] = table.top1.mean()
    brightest = max(table.clean, float(cells.max()), 1.0)

    figure, axes = new_figure(2.6 + 0.62 * (columns + 1), 1.4 + 0.27 * (rows + 1))
    axes.imshow(cells.numpy(), cmap="viridis", vmin=0, vmax=brightest, aspect="auto")
    for (row, column), value in _items(cells):
        ink = "black" if value > 0.6 * brightest else "white"
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
