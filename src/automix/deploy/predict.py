"""What a trained classifier says of image files.

Images are prepared as they were for the test: upright, RGB, the short side resized to ``image_size / crop``, the center
cut out, scaled to [0, 1], normalized. An image that has the right size already passes through unchanged.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from automix.core.errors import one_line
from automix.data.images import fit
from automix.data.listing import decode
from automix.runs.classifier import Card, WithNormalization

LONGEST = 100  # times the short side; beyond it, resizing by the short side would take gigabytes


@dataclass(frozen=True)
class Prediction:
    """The most probable classes of one image, best first; or, where it cannot be read, one line that says why."""

    path: Path
    classes: tuple[str, ...] = ()
    probabilities: tuple[float, ...] = ()
    error: str | None = None


def predict(
    model: nn.Module, card: Card, paths: Sequence[Path], *, top: int = 5, batch_size: int = 32
) -> Iterator[Prediction]:
    """The `top` classes of every image in `paths`, in their order; a folder stands for the images in it.

    A file that cannot be read gets a prediction with its `error`, and the others are still answered.
    """
    for name, value in (("top", top), ("batch_size", batch_size)):
        if value < 1:
            raise ValueError(f"{name}={value}: accepted is a whole number >= 1")
    if model.training:
        raise ValueError("the model is in training mode: accepted is model.eval()")
    return _predict(model, card, list_images(paths), top, batch_size)


def list_images(paths: Sequence[Path]) -> list[Path]:
    """`paths` with every folder replaced by the images below it, in alphabetical order, hidden ones left out.

    A folder without images stays in the list, so that somebody hears of it.
    """
    from torchvision.datasets.folder import IMG_EXTENSIONS  # those that training reads

    listed: list[Path] = []
    for path in paths:
        inside = sorted(
            file
            for file in (path.rglob("*") if path.is_dir() else ())
            if file.suffix.lower() in IMG_EXTENSIONS and file.is_file() and not _hidden(file.relative_to(path))
        )
        listed.extend(inside or [path])
    return listed


def read_square(path: Path, size: int, crop: float = 1.0) -> Tensor:
    """The center of an image file as (3, size, size) uint8, or a ValueError of one line that names the file."""
    try:
        return _read(path, size, crop)
    except Exception as error:
        raise ValueError(f"{path}: {_reason(error)}") from None


def _predict(model: nn.Module, card: Card, paths: list[Path], top: int, batch_size: int) -> Iterator[Prediction]:
    classifier = WithNormalization(model, card)
    for start in range(0, len(paths), batch_size):
        read = [_read_or_say_why(path, card) for path in paths[start : start + batch_size]]
        images = [image for image in read if isinstance(image, Tensor)]
        answers = iter(_answer(classifier, card, torch.stack(images), top) if images else ())
        for path, image in zip(paths[start : start + batch_size], read, strict=True):
            if isinstance(image, str):
                yield Prediction(path, error=image)
            else:
                yield Prediction(path, *next(answers))


def _read_or_say_why(path: Path, card: Card) -> Tensor | str:
    try:
        return _read(path, card.image_size, card.crop)
    except Exception as error:
        return _reason(error)


def _read(path: Path, size: int, crop: float) -> Tensor:
    """May raise anything: damaged files make decoders end in OSError, SyntaxError, struct.error, ..."""
    import numpy as np

    if path.is_dir():
        raise ValueError("no images in this folder")
    image = decode(path)
    short, long = min(image.size), max(image.size)
    if long > LONGEST * short:
        raise ValueError(f"{image.width} x {image.height} px: accepted are sides of up to 1 : {LONGEST}")
    return torch.from_numpy(np.array(fit(image, image.size, size, crop))).permute(2, 0, 1)


def _reason(error: Exception) -> str:
    return (isinstance(error, OSError) and error.strerror) or one_line(error)


def _answer(
    classifier: WithNormalization, card: Card, images: Tensor, top: int
) -> list[tuple[tuple[str, ...], tuple[float, ...]]]:
    with torch.inference_mode():
        logits = classifier(images.to(classifier.mean) / 255)
        if logits.shape[1:] != (len(card.classes),):
            raise ValueError(
                f"the model gives {logits.shape[1]} numbers: accepted are {len(card.classes)}, the classes"
            )
        probabilities, places = logits.float().softmax(dim=1).topk(min(top, len(card.classes)))
    return [
        (tuple(card.classes[place] for place in row), tuple(shares))
        for row, shares in zip(places.tolist(), probabilities.tolist(), strict=True)
    ]


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)
