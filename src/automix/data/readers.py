"""Datasets that timm's readers open: tar files, Hugging Face, torchvision's own. They are streamed.

Only map-style datasets are accepted, because a batch is a function of (seed, step). timm's iterable readers (tfds/,
hfids/, wds/) give images in an order of their own and cannot start at a step. The first two are refused; shards.py
reads WebDataset shards by position.
"""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from automix.core.errors import AutomixError, one_line
from automix.data.decode import BadImage, decode, image_error, to_rgb
from automix.data.folders import check_same_classes
from automix.data.subset import label_message

PREFIXES = ("hfds", "torch")
ITERABLE = ("tfds", "hfids")
TEST_SPLITS = ("validation", "test", "val")


class ReaderSet:
    """One split of a map-style dataset of timm or torchvision.

    Args:
        name: What messages call the dataset.
        data: timm's ImageDataset, or a dataset of torchvision.

    Attributes:
        classes: The names of the classes, in the order of the labels.
        positions: Positions of the images in `data`.
        labels: None, because they are known only by reading the images.
    """

    labels: Tensor | None = None

    def __init__(self, name: str, data: Any) -> None:
        self.name = name
        self.data = data
        self.reader = getattr(data, "reader", None)
        inner = data if self.reader is None else self.reader
        index: dict[str, int] = getattr(inner, "class_to_idx", None) or getattr(inner, "class_name_to_idx", None) or {}
        if not index:
            raise AutomixError(f"data {name!r}: its classes have no names; choose a dataset for classification")
        self.classes = tuple(str(key) for key in sorted(index, key=lambda key: index[key]))
        self.positions: Sequence[int] = range(len(data))

    def __len__(self) -> int:
        return len(self.positions)

    def name_of(self, index: int) -> str:
        """Name an image for messages: by its file if the reader knows it."""
        position = self.positions[index]
        known = None if self.reader is None else self.reader.filename(position)
        return f"{self.name}: {known}" if known else f"{self.name}, image {position}"

    def read(self, index: int) -> tuple[Any, int]:
        """Read one image as a PIL image (RGB), and its label."""
        try:
            image, label = self._get(self.positions[index])
        except Exception as error:
            raise image_error(self.name_of(index), error) from None
        if not 0 <= label < len(self.classes):
            raise BadImage(label_message(self.name_of(index), label, len(self.classes)))
        return image, label

    def take(self, positions: Tensor) -> "ReaderSet":
        """Keep the images at some positions, in that order."""
        taken = copy.copy(self)
        taken.positions = [self.positions[index] for index in positions.tolist()]
        return taken

    def _get(self, position: int) -> tuple[Any, int]:
        if self.reader is None:
            image, label = self.data[position]
            return to_rgb(image), int(label)
        # Not through timm's ImageDataset, which replaces a broken image by the next one.
        file, label = self.reader[position]
        with file:
            return decode(file), int(label)


def has_tars(root: Path) -> bool:
    """Tell whether the training images of a folder are in tar files.

    Args:
        root: The dataset's folder.

    Returns:
        True if there is train.tar, or a tar file in train/.
    """
    return (root / "train.tar").is_file() or any((root / "train").glob("*.tar"))


def open_tars(root: Path) -> tuple[ReaderSet, ReaderSet]:
    """Open ``train.tar`` and ``val.tar`` (or test, validation) of class folders, or folders of such tar files.

    Args:
        root: The dataset's folder.

    Returns:
        The training set and the test set.
    """
    from timm.data import ImageDataset
    from timm.data.readers.reader_image_in_tar import ReaderImageInTar

    def split(*names: str) -> ReaderSet:
        places = [place for name in names for place in (root / f"{name}.tar", root / name) if place.exists()]
        if not places:
            raise AutomixError(f"{root}: neither {names[0]}.tar nor {names[0]}/ in it; train and val are needed")
        # Processes cannot share open tar files, so none is kept open.
        reader = ReaderImageInTar(str(places[0]), cache_tarfiles=False)
        return ReaderSet(str(places[0]), ImageDataset(str(places[0]), reader=reader))

    train, test = split("train"), split(*TEST_SPLITS)
    check_same_classes(str(root), train.classes, test.classes)
    return train, test


def open_reader(name: str, root: Path) -> tuple[ReaderSet, ReaderSet]:
    """Open timm's ``hfds/<name>`` or ``torch/<name>``.

    Args:
        name: The dataset's name with its prefix.
        root: Where Hugging Face and torchvision keep their files.

    Returns:
        The training set and the test set.
    """
    from timm.data import create_dataset

    def split(*names: str) -> ReaderSet:
        """The first of these splits that opens."""
        reasons = []
        for candidate in names:
            try:
                return ReaderSet(name, create_dataset(name, root=str(root), split=candidate))
            except ImportError as error:
                raise AutomixError(f"data {name!r} needs a package that is not installed: {one_line(error)}") from None
            except (AssertionError, LookupError, OSError, RuntimeError, ValueError) as error:
                reasons.append((str(error).splitlines() or [type(error).__name__])[0])
        raise AutomixError(f"data {name!r}, split {' or '.join(names)}: {reasons[0]}")

    train, test = split("train"), split(*TEST_SPLITS)
    check_same_classes(name, train.classes, test.classes)
    return train, test
