"""The most probable classes of image files."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.core.validation import check_whole
from automix.deploy.image_files import list_images, read_pixels, reason
from automix.runs.classifier import Card, WithNormalization
from automix.runs.folder import load_classifier


@dataclass(frozen=True)
class Prediction:
    """The most probable classes of one image file.

    Attributes:
        path: The file.
        classes: Names of the classes, the most probable first; empty if the file could not be read.
        probabilities: Their softmax probabilities, in the same order.
        error: Why the file could not be read, in one line without the path; None if it was read.
    """

    path: Path
    classes: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    error: str | None = None


def predict(
    run_or_file: str | Path,
    images: str | Path | Sequence[str | Path],
    *,
    top: int = 5,
    which: Literal["last", "best"] = "last",
    batch_size: int = 32,
) -> Iterator[Prediction]:
    """Load a trained classifier and classify image files with it.

    Args:
        run_or_file: A run folder, or a classifier's safetensors file.
        images: One or more image files or folders; a folder stands for all images below it.
        top: Number of classes per image, at least 1; no more than the classifier has.
        which: In a run folder, the weights of the last epoch or of the best one on the test set.
        batch_size: Number of images per forward pass, at least 1.

    Returns:
        An iterator over one prediction per image, in order. A file that cannot be read gives a prediction with its
        `error`, and the other files are still classified.
    """
    model, card = load_classifier(Path(run_or_file), which)
    given = [images] if isinstance(images, str | Path) else images
    return predict_files(model, card, [Path(path) for path in given], top=top, batch_size=batch_size)


def predict_files(
    model: nn.Module, card: Card, paths: Sequence[Path], *, top: int = 5, batch_size: int = 32
) -> Iterator[Prediction]:
    """Classify image files with a model that is loaded already.

    Args:
        model: The classifier, in eval mode. It takes normalized images.
        card: The classes of the model, its image size and its normalization.
        paths: Image files and folders.
        top: Number of classes per image, at least 1; no more than the card has.
        batch_size: Number of images per forward pass, at least 1.

    Returns:
        An iterator over one prediction per image, as `predict` returns it.
    """
    check_whole("top", top, 1)
    check_whole("batch_size", batch_size, 1)
    if model.training:
        raise AutomixError("model must be in eval mode, got one in training mode; call model.eval()")
    return _predict_batches(model, card, list_images(paths), top, batch_size)


def _predict_batches(
    model: nn.Module, card: Card, paths: list[Path], top: int, batch_size: int
) -> Iterator[Prediction]:
    classifier = WithNormalization(model, card)
    for start in range(0, len(paths), batch_size):
        batch = paths[start : start + batch_size]
        pixels_or_errors = [_read(path, card) for path in batch]
        pixels = [item for item in pixels_or_errors if isinstance(item, Tensor)]
        answers = iter(_most_probable(classifier, card, torch.stack(pixels), top) if pixels else ())
        for path, item in zip(batch, pixels_or_errors, strict=True):
            yield Prediction(path, error=item) if isinstance(item, str) else Prediction(path, *next(answers))


def _read(path: Path, card: Card) -> Tensor | str:
    """The pixels, or why there are none."""
    try:
        return read_pixels(path, card.image_size, card.crop)
    except Exception as error:
        return reason(error)


def _most_probable(
    classifier: WithNormalization, card: Card, images: Tensor, top: int
) -> list[tuple[tuple[str, ...], tuple[float, ...]]]:
    """For each image, the names of its `top` classes and their probabilities."""
    with torch.inference_mode():
        logits = classifier(images.to(classifier.mean) / 255)
        if logits.shape[1:] != (len(card.classes),):
            raise AutomixError(f"model must give {len(card.classes)} logits, one per class, got {logits.shape[1]}")
        probabilities, labels = logits.float().softmax(dim=1).topk(min(top, len(card.classes)))
    return [
        (tuple(card.classes[label] for label in row), tuple(shares))
        for row, shares in zip(labels.tolist(), probabilities.tolist(), strict=True)
    ]
