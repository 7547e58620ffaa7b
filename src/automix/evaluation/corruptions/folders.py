"""Corrupted images on disk, in the two official layouts.

CIFAR-10-C, CIFAR-100-C:       <name>.npy, uint8 (5 N, H, W, 3), the N images of severity 1 first; labels.npy (5 N,)
ImageNet-C, Tiny-ImageNet-C:   <name>/<severity>/<class>/<image>

They were cropped when they were made: they are resized if the model takes another size, but never cropped again.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from automix.core.errors import AutomixError, one_line
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet
from automix.evaluation.corruptions.apply import check_names
from automix.evaluation.corruptions.severities import BENCHMARK, EXTRA, NAMES, STRONGEST
from automix.evaluation.samples import Samples

LABELS = "labels.npy"
LAYOUTS = "the layout of CIFAR-C (<name>.npy, labels.npy) or ImageNet-C (<name>/<severity>/<class>/)"


@dataclass(frozen=True)
class Arrays:
    """CIFAR-C's layout. Arrays are read from the disk part by part."""

    root: Path
    names: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]

    def parts(self, name: str, severity: int, size: int, batch_size: int) -> Iterator[ImageSet]:
        """The images of one severity, `batch_size` at a time, brought to `size`."""
        array, count = _load(self.root / f"{name}.npy"), len(self.labels) // STRONGEST
        for positions in torch.arange((severity - 1) * count, severity * count).split(batch_size):
            start, end = int(positions[0]), int(positions[-1]) + 1
            images = torch.from_numpy(np.array(array[start:end])).permute(0, 3, 1, 2).contiguous()
            yield ImageSet(images, self.labels[start:end], self.classes).resized(size)


@dataclass(frozen=True)
class Files:
    """ImageNet-C's layout. `labels` are the numbers of the class folders."""

    root: Path
    names: tuple[str, ...]
    labels: dict[str, int]
    classes: tuple[str, ...]

    def parts(self, name: str, severity: int, size: int, batch_size: int) -> Iterator[ImageSet]:
        """The images of one severity, `batch_size` at a time, brought to `size`."""
        from torchvision.datasets.folder import IMG_EXTENSIONS

        below = self.root / name / str(severity)
        found = [
            (str(file), label)
            for folder, label in self.labels.items()
            for file in sorted((below / folder).iterdir())
            if file.suffix.lower() in IMG_EXTENSIONS
        ]
        if not found:
            raise AutomixError(f"{below}: no images in it; images must be <class>/<image>")
        paths, labels = zip(*found, strict=True)
        return Samples(ImageFiles(paths, torch.tensor(labels), self.classes), size).parts(batch_size)


def open_corrupted(
    folder: Path | str, names: Sequence[str] | None, severities: Sequence[int], classes: tuple[str, ...]
) -> Arrays | Files:
    """Find corrupted images on disk, and check what can be checked without reading them.

    Args:
        folder: In the layout of CIFAR-C or ImageNet-C.
        names: Names of the corruptions. If not given all 19, or the 15 of the benchmark if none of the 4 extra ones is
            there, which are a download of their own.
        severities: From 1 to 5.
        classes: The model's class names.

    Returns:
        An object whose `parts` reads the images of one corruption and severity.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise AutomixError(f"{folder}: no such folder; give one in {LAYOUTS}")
    if any(folder.glob("*.npy")):
        return _open_arrays(folder, _choose(folder, names, ".npy"), classes)
    if not any((folder / name).is_dir() for name in NAMES):
        raise AutomixError(f"{folder}: no corruptions in it; give a folder in {LAYOUTS}")
    return _open_files(folder, _choose(folder, names, ""), severities, classes)


def _choose(folder: Path, names: Sequence[str] | None, ending: str) -> tuple[str, ...]:
    """The names to read; an error if one of them is missing."""
    present = [name for name in NAMES if (folder / f"{name}{ending}").exists()]
    if names is None:
        names = NAMES if set(EXTRA) & set(present) else BENCHMARK
    check_names(names)
    if missing := [f"{name}{ending}" for name in names if name not in present]:
        raise AutomixError(
            f"{folder}: {', '.join(missing)} missing; choose names=... from what is there "
            f"({', '.join(present) or 'nothing'}), or generate all of them without a folder"
        )
    return tuple(names)


# --- CIFAR-C ---------------------------------------------------------------------------------------------------------


def _open_arrays(folder: Path, names: tuple[str, ...], classes: tuple[str, ...]) -> Arrays:
    if not (folder / LABELS).is_file():
        raise AutomixError(f"{folder}: {LABELS} missing; give a folder in {LAYOUTS}")
    labels = _load(folder / LABELS)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or len(labels) == 0 or len(labels) % STRONGEST:
        raise AutomixError(f"{folder / LABELS}: must be whole numbers (5 N,), N for each severity, got {_kind(labels)}")
    if labels.min() < 0 or labels.max() >= len(classes):
        wrong = labels.min() if labels.min() < 0 else labels.max()
        raise AutomixError(f"{folder / LABELS}: classes must be in [0, {len(classes) - 1}], got {wrong}")
    for name in names:
        path = folder / f"{name}.npy"
        array = _load(path)
        if array.ndim != 4 or array.shape[3] != 3 or array.dtype != np.uint8:
            raise AutomixError(f"{path}: must be uint8 of shape (5 N, H, W, 3), got {_kind(array)}")
        if len(array) != len(labels):
            raise AutomixError(f"{path}: must have {len(labels)} images as {LABELS} has labels, got {len(array)}")
    return Arrays(folder, names, torch.from_numpy(labels.astype(np.int64)), classes)


def _load(path: Path) -> Any:
    """An array that stays on the disk; nothing in the file is executed."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise AutomixError(f"{path}: not an array of numpy's, or damaged ({one_line(error)})") from None


def _kind(array: Any) -> str:
    return f"{array.dtype} of shape {array.shape}"


# --- ImageNet-C ------------------------------------------------------------------------------------------------------


def _open_files(folder: Path, names: tuple[str, ...], severities: Sequence[int], classes: tuple[str, ...]) -> Files:
    labels: dict[str, int] = {}
    for name in names:
        for severity in severities:
            below = folder / name / str(severity)
            if not below.is_dir():
                raise AutomixError(f"{below}: not found; give a folder in {LAYOUTS}")
            labels = _class_folders(below, classes)
    return Files(folder, names, labels, classes)


def _class_folders(below: Path, classes: tuple[str, ...]) -> dict[str, int]:
    """The number of each class folder: by its name, or by the order of WordNet ids where the classes have words."""
    found = sorted(entry.name for entry in below.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if set(found) == set(classes):
        return {name: classes.index(name) for name in found}
    ids, known_ids = (all(re.fullmatch(r"n\d{8}", name) for name in given) for given in (found, classes))
    if ids and not known_ids and len(found) == len(classes):
        return {wnid: number for number, wnid in enumerate(found)}
    unknown, absent = sorted(set(found) - set(classes)), sorted(set(classes) - set(found))
    first = f"{unknown[0]} is not a class of the model" if unknown else f"{absent[0]} is missing"
    raise AutomixError(f"{below}: must have a folder for each of the model's {len(classes)} classes; {first}")
