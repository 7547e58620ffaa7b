"""What a classifier gets wrong: the classes it confuses most often, and its most confident errors, as photographs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from automix.core.accuracy import topk_correct
from automix.evaluation.calibration import confidences
from automix.evaluation.plots import BLUE, GRAY, as_image, new_figure, shorten
from automix.evaluation.samples import Samples

CONFUSIONS, EXAMPLES = 5, 4  # pairs of classes, and photographs of each
GALLERY, COLUMNS = 12, 4  # most confident errors
MATRIX_CLASSES = 40  # more would not be readable
NAME, FILE = 26, 36  # characters of a class's and of a file's name


@dataclass(frozen=True)
class Confusion:
    """Images of one class that were predicted as another.

    Attributes:
        label: The true class.
        predicted: The predicted class.
        positions: The images, the most confident error first, ``(N,)``.
        of: Number of images of the true class.
    """

    label: int
    predicted: int
    positions: Tensor
    of: int


def worst_confusions(logits: Tensor, labels: Tensor, count: int = CONFUSIONS) -> list[Confusion]:
    """Find the pairs of classes that are confused most often.

    Args:
        logits: Scores, ``(N, C)``.
        labels: True classes, ``(N,)``.
        count: Pairs to find.

    Returns:
        True and predicted classes with their images, the most frequent pair first; fewer if there are fewer.
    """
    wrong = most_confident_errors(logits, labels)
    predicted = logits.argmax(dim=1)
    pairs = labels[wrong] * logits.shape[1] + predicted[wrong]
    found, counts = pairs.unique(return_counts=True)
    chosen = found[counts.argsort(descending=True, stable=True)][:count]
    return [
        Confusion(
            label=int(pair) // logits.shape[1],
            predicted=int(pair) % logits.shape[1],
            positions=wrong[pairs == pair],
            of=int((labels == int(pair) // logits.shape[1]).sum()),
        )
        for pair in chosen
    ]


def most_confident_errors(logits: Tensor, labels: Tensor) -> Tensor:
    """Order the images with a wrong prediction.

    Args:
        logits: Scores, ``(N, C)``.
        labels: True classes, ``(N,)``.

    Returns:
        Their positions, the highest confidence first.
    """
    wrong = (~topk_correct(logits, labels)[0]).nonzero().flatten()
    return wrong[confidences(logits[wrong]).argsort(descending=True, stable=True)] if len(wrong) else wrong


def draw_confusions(logits: Tensor, labels: Tensor, samples: Samples) -> Image.Image:
    """Draw the worst confusions, a row each: how often, and the photographs with the most confident errors.

    Args:
        logits: Scores, ``(N, C)``, of all `samples`.
        labels: True classes, ``(N,)``.
        samples: The images.

    Returns:
        The picture.
    """
    rows = worst_confusions(logits, labels)
    figure, axes = new_figure(8.6, 1.75 * len(rows) + 0.2, nrows=len(rows), ncols=EXAMPLES + 1, squeeze=False)
    for row, (words, *places) in zip(rows, axes, strict=True):
        _write(words, f"{_name(samples, row.label)}\ntaken for\n{_name(samples, row.predicted)}\n\n"
                      f"{len(row.positions)} of {row.of} images")  # fmt: skip
        _show(places, row.positions[:EXAMPLES], logits, samples, with_classes=False)
    return as_image(figure)


def draw_confident_errors(logits: Tensor, labels: Tensor, samples: Samples) -> Image.Image:
    """Draw the photographs that are wrong with the highest confidence.

    Args:
        logits: Scores, ``(N, C)``, of all `samples`.
        labels: True classes, ``(N,)``.
        samples: The images.

    Returns:
        The picture.
    """
    wrong = most_confident_errors(logits, labels)[:GALLERY]
    rows = -(-len(wrong) // COLUMNS)
    figure, axes = new_figure(8.6, 2.65 * rows, nrows=rows, ncols=COLUMNS, squeeze=False)
    _show(list(axes.flat), wrong, logits, samples, with_classes=True, labels=labels)
    return as_image(figure)


def draw_confusion_matrix(logits: Tensor, labels: Tensor, classes: Sequence[str]) -> Image.Image:
    """Draw how many images of each class were predicted as which, in percent of the true class.

    Args:
        logits: Scores, ``(N, C)``.
        labels: True classes, ``(N,)``.
        classes: Their names.

    Returns:
        The picture.
    """
    shares = 100 * confusion_matrix(logits, labels)
    size = 2.4 + 0.22 * len(classes)
    figure, axes = new_figure(size + 0.4, size)
    shown = axes.imshow(shares.numpy(), cmap="Blues", vmin=0, vmax=100)
    names = [shorten(name, NAME) for name in classes]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set(xlabel="predicted", ylabel="true class")
    for row, column in ((shares >= 10) & ~torch.eye(len(names), dtype=torch.bool)).nonzero().tolist():
        color = "white" if shares[row, column] > 50 else BLUE
        axes.text(column, row, f"{shares[row, column]:.0f}", ha="center", va="center", fontsize=6, color=color)
    figure.colorbar(shown, ax=axes, label="% of the images of the true class", shrink=0.6)
    return as_image(figure)


def confusion_matrix(logits: Tensor, labels: Tensor) -> Tensor:
    """Count the predictions of each class's images.

    Args:
        logits: Scores, ``(N, C)``.
        labels: True classes, ``(N,)``.

    Returns:
        Shares of the images of the true class (row) by predicted class (column), ``(C, C)`` float64; a row of zeros for
        a class without images.
    """
    count = logits.shape[1]
    pairs = torch.bincount(labels * count + logits.argmax(dim=1), minlength=count * count).view(count, count)
    return pairs.double() / pairs.sum(dim=1, keepdim=True).clamp(min=1)


def _show(
    places: Sequence[Any],
    positions: Tensor,
    logits: Tensor,
    samples: Samples,
    *,
    with_classes: bool,
    labels: Tensor | None = None,
) -> None:
    """Draw images with their confidence, their file and, if not said elsewhere, both classes."""
    order = positions.argsort()  # read in the order of the files
    images = [image for part in samples.take(positions[order]).parts() for image in part.images]
    shown = dict(zip(order.tolist(), images, strict=True))
    for place in places:
        place.axis("off")
    for number, (place, position) in enumerate(zip(places, positions.tolist(), strict=False)):
        place.imshow(shown[number].permute(1, 2, 0).numpy())
        confidence = confidences(logits[position : position + 1]).item()
        lines = [f"{confidence:.0%} {_name(samples, int(logits[position].argmax()))}" if with_classes
                 else f"{confidence:.0%} sure"]  # fmt: skip
        if labels is not None:
            lines.append(f"is {_name(samples, int(labels[position]))}")
        place.set_title("\n".join(lines), fontsize=8, loc="left")
        file = samples.source.name_of(position).replace("\\", "/").rsplit("/", 1)[-1]
        place.text(0, -0.03, shorten(file, FILE), transform=place.transAxes, va="top", fontsize=6, color=GRAY)


def _write(place: Any, text: str) -> None:
    place.axis("off")
    place.text(0, 0.5, text, transform=place.transAxes, va="center", fontsize=8.5)


def _name(samples: Samples, label: int) -> str:
    return shorten(samples.classes[label], NAME)
