"""WebDataset shards, read by position.

A shard is a tar file in which the files of a sample share a name: ``000017.jpg`` and ``000017.cls``, which contains the
label as a number. The webdataset library, hence timm's reader, gives samples in sequence and cannot start at a step.
Here shards are plain files on disk: their headers are read once when the dataset is opened, and every image is then
read from its place, in any order.
"""

import io
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from automix.core.errors import AutomixError
from automix.data.decode import decode, image_error
from automix.data.subset import check_labels

IMAGES = ("jpg", "jpeg", "png", "webp", "ppm", "bmp")
MAX_CLASSES = 1_000_000  # a larger label is a mistake, and a name for each class would fill the memory
EXPECTED = "expected shards (*.tar) with train, and shards with val, validation or test in their names"


@dataclass(frozen=True)
class ShardSet:
    """Labeled images in tar files.

    Attributes:
        shards: The tar files.
        places: Where the images are, ``(N, 3)`` int64: number of the shard, first byte, length in bytes.
        labels: Class indices, ``(N,)`` int64.
        classes: The names of the classes, in the order of the labels.
    """

    shards: tuple[str, ...]
    places: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        check_labels(self.labels, self.classes, self.name_of)

    def __len__(self) -> int:
        return len(self.labels)

    def name_of(self, index: int) -> str:
        """Name an image for messages: its shard, and the byte where it begins."""
        shard, start, _ = self.places[index].tolist()
        return f"{self.shards[shard]}, image at byte {start}"

    def read(self, index: int) -> tuple[Any, int]:
        """Read one image as a PIL image (RGB), and its label."""
        shard, start, length = self.places[index].tolist()
        try:
            with open(self.shards[shard], "rb") as file:
                file.seek(start)
                content = file.read(length)
            return decode(io.BytesIO(content)), int(self.labels[index])
        except Exception as error:
            raise image_error(self.name_of(index), error) from None

    def take(self, positions: Tensor) -> "ShardSet":
        """Keep the images at some positions, in that order."""
        return replace(self, places=self.places[positions], labels=self.labels[positions])


def open_shards(root: Path) -> tuple[ShardSet, ShardSet]:
    """Open the shards of a folder; the split is recognized by the names of the shards or of their folders.

    Classes are named 0, 1, ... up to the largest training label. A larger test label is refused.

    Args:
        root: The folder of the shards.

    Returns:
        The training set and the test set.
    """
    names = {path: path.relative_to(root).as_posix() for path in sorted(root.rglob("*.tar")) if path.is_file()}
    training = [path for path, name in names.items() if "train" in name]
    testing = [path for path, name in names.items() if path not in training and ("val" in name or "test" in name)]
    if not training or not testing:
        raise AutomixError(f"{root}: no shards for {'testing' if training else 'training'}; {EXPECTED}")
    (places, labels), (test_places, test_labels) = _read_headers(training), _read_headers(testing)
    classes = tuple(str(label) for label in range(int(labels.max()) + 1))
    train = ShardSet(tuple(str(path) for path in training), places, labels, classes)
    return train, ShardSet(tuple(str(path) for path in testing), test_places, test_labels, classes)


def _read_headers(shards: list[Path]) -> tuple[Tensor, Tensor]:
    """The places of the images in the shards, and their labels."""
    places: list[tuple[int, int, int]] = []
    labels: list[int] = []
    for number, shard in enumerate(shards):
        place: dict[str, tuple[int, int, int]] = {}
        label: dict[str, int] = {}
        try:
            with tarfile.open(shard, "r:") as tar:
                for member in tar:
                    folder, _, file = member.name.rpartition("/")
                    key, _, kind = file.partition(".")
                    if kind.lower() in IMAGES:
                        place[f"{folder}/{key}"] = (number, member.offset_data, member.size)
                    elif kind == "cls":
                        label[f"{folder}/{key}"] = _label(tar, member)
        except (tarfile.TarError, ValueError) as error:
            raise AutomixError(f"{shard}: cannot be read as a shard ({error})") from None
        odd = place.keys() ^ label.keys()
        if odd or not place:
            which = f"sample {sorted(odd)[0].strip('/')}" if odd else "any sample"
            raise AutomixError(f"{shard}: image or label of {which} is missing; expected pairs like 17.jpg, 17.cls")
        places += place.values()
        labels += [label[key] for key in place]
    return torch.tensor(places), torch.tensor(labels)


def _label(tar: tarfile.TarFile, member: tarfile.TarInfo) -> int:
    content = tar.extractfile(member)
    text = content.read() if content else b""
    try:
        label = int(text)
    except ValueError:
        label = -1
    if not 0 <= label < MAX_CLASSES:
        shown = text[:20].decode(errors="replace").strip()
        raise AutomixError(f"{member.name}: label must be a whole number in [0, {MAX_CLASSES - 1}], got {shown!r}")
    return label
