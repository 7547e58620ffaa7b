"""Datasets that timm's readers open: tar files, Hugging Face, torchvision's own. They are streamed.

Only sets that can be asked for image number i are accepted: a batch is a function of (seed, step) here. timm's iterable
readers (tfds/, hfids/, wds/) give images in an order of their own and cannot go back to a step. The first two are
refused; shards.py reads WebDataset's shards by position.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from automix.data.decode import BadImage, decode, image_error, to_rgb
from automix.data.subset import label_message

PREFIXES = ("hfds", "torch")
ITERABLE = ("tfds", "hfids")
TEST_SPLITS = ("validation", "test", "val")


class ReaderSet:
    """One split of a map-style dataset of timm or torchvision; `classes` are its names, in the order of the labels."""

    labels: Tensor | None = None

    def __init__(self, name: str, data: Any) -> None:
        self.name = name
        self.data = data
        self.reader = getattr(data, "reader", None)
        held = data if self.reader is None else self.reader
        number: dict[str, int] = getattr(held, "class_to_idx", None) or getattr(held, "class_name_to_idx", None) or {}
        if not number:
            raise ValueError(f"data {name!r}: its classes have no names; accepted are sets for classification")
        self.classes = tuple(str(key) for key in sorted(number, key=lambda key: number[key]))

        self.positions: Sequence[int] = range(len(data))  # of the images, in what timm or torchvision opened

    def __len__(self) -> int:
        return len(self.positions)

    def name_of(self, index: int) -> str:
        """What messages call image `index`: its file's name where the reader knows it."""
        position = self.positions[index]
        known = None if self.reader is None else self.reader.filename(position)
        return f"{self.name}: {known}" if known else f"{self.name}, image {position}"

    def read(self, index: int) -> tuple[Any, int]:
        """Image `index` as PIL's, and its label."""
        try:
            image, label = self._get(self.positions[index])
        except Exception as error:
            raise image_error(self.name_of(index), error) from None
        if not 0 <= label < len(self.classes):
            raise BadImage(label_message(self.name_of(index), label, len(self.classes)))
        return image, label

    def take(self, positions: Tensor) -> "ReaderSet":
        """The images at `positions`, in that order."""
        taken = copy.copy(self)
        taken.positions = [self.positions[index] for index in positions.tolist()]
        return taken

    def _get(self, position: int) -> tuple[Any, int]:
        if self.reader is None:
            image, label = self.data[position]
            return to_rgb(image), int(label)
        # Not through timm's ImageDataset: where an image is broken it goes on with the next one.
        file, label = self.reader[position]
        with file:
            return decode(file), int(label)


def has_tars(root: Path) -> bool:
    """Whether the training images of the folder are in tar files."""
    return (root / "train.tar").is_file() or any((root / "train").glob("*.tar"))


def open_tars(root: Path) -> tuple[ReaderSet, ReaderSet]:
    """``train.tar`` and ``val.tar`` (or test, validation) of class folders, or folders train and val of such tars."""
    from timm.data import ImageDataset
    from timm.data.readers.reader_image_in_tar import ReaderImageInTar

    def split(*names: str) -> ReaderSet:
        places = [place for name in names for place in (root / f"{name}.tar", root / name) if place.exists()]
        if not places:
            raise ValueError(f"{root}: neither {names[0]}.tar nor {names[0]}/ in it; accepted are both train and test")
        # Open tar files cannot be shared by processes, hence none is kept open.
        reader = ReaderImageInTar(str(places[0]), cache_tarfiles=False)
        return ReaderSet(str(places[0]), ImageDataset(str(places[0]), reader=reader))

    return _same_classes(str(root), split("train"), split(*TEST_SPLITS))


def open_reader(name: str, root: Path) -> tuple[ReaderSet, ReaderSet]:
    """timm's ``hfds/<name>`` and ``torch/<name>``; Hugging Face keeps its files below `root`."""
    from timm.data import create_dataset

    def split(*wanted: str) -> ReaderSet:
        """The first of the `wanted` splits that opens; what the libraries complain about, in one line."""
        reasons = []
        for candidate in wanted:
            try:
                return ReaderSet(name, create_dataset(name, root=str(root), split=candidate))
            except ImportError as error:
                raise ValueError(f"data {name!r} needs a package that is not installed: {error}") from None
            except (AssertionError, LookupError, OSError, RuntimeError, ValueError) as error:
                reasons.append((str(error).splitlines() or [type(error).__name__])[0])
        raise ValueError(f"data {name!r}, split {' or '.join(wanted)}: {reasons[0]}")

    return _same_classes(name, split("train"), split(*TEST_SPLITS))


def _same_classes(name: str, train: ReaderSet, test: ReaderSet) -> tuple[ReaderSet, ReaderSet]:
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise ValueError(f"{name}: training and test set have different classes, for instance {odd[0]!r}")
    return train, test
