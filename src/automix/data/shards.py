"""WebDataset's shards, read by position.

A shard is a tar file that has the files of a sample under one name: ``000017.jpg``, ``000017.cls``, the label being the
number in the latter. The webdataset library, hence timm's reader, gives samples as they come and cannot go back to a
step. Here shards are plain files on disk: their headers are walked through once when the set is opened, and every image
is then read from where it lies, in any order.
"""

import io
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from automix.data.decode import decode, image_error
from automix.data.subset import check_labels

IMAGES = ("jpg", "jpeg", "png", "webp", "ppm", "bmp")
MOST_CLASSES = 1_000_000  # a label beyond is a mistake, and a name for each class up to it would fill the memory
EXPECTED = "accepted are shards (*.tar) with train, and shards with val, validation or test in their names"


@dataclass(frozen=True)
class ShardSet:
    """N images in `shards`: (N, 3) `places` are number of the shard, first byte and length; `labels` are (N,)."""

    shards: tuple[str, ...]
    places: Tensor
    labels: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        check_labels(self.labels, self.classes, self.name_of)

    def __len__(self) -> int:
        return len(self.labels)

    def name_of(self, index: int) -> str:
        """What messages call image `index`: its shard, and where in it the image begins."""
        shard, start, _ = self.places[index].tolist()
        return f"{self.shards[shard]}, image at byte {start}"

    def read(self, index: int) -> tuple[Any, int]:
        """Image `index` as PIL's, and its label."""
        shard, start, length = self.places[index].tolist()
        try:
            with open(self.shards[shard], "rb") as file:
                file.seek(start)
                content = file.read(length)
            return decode(io.BytesIO(content)), int(self.labels[index])
        except Exception as error:
            raise image_error(self.name_of(index), error) from None

    def take(self, positions: Tensor) -> "ShardSet":
        """The images at `positions`, in that order."""
        return replace(self, places=self.places[positions], labels=self.labels[positions])


def open_shards(root: Path) -> tuple[ShardSet, ShardSet]:
    """The shards of a folder, told apart by their names (or those of their folders).

    Classes are called 0, 1, ... up to the largest label in training; a label beyond it in testing is refused.
    """
    names = {path: path.relative_to(root).as_posix() for path in sorted(root.rglob("*.tar"))}
    training = [path for path, name in names.items() if "train" in name]
    testing = [path for path, name in names.items() if path not in training and ("val" in name or "test" in name)]
    if not training or not testing:
        raise ValueError(f"{root}: no shards for {'testing' if training else 'training'}; {EXPECTED}")
    (places, labels), (test_places, test_labels) = _walk(training), _walk(testing)
    classes = tuple(str(label) for label in range(int(labels.max()) + 1))
    train = ShardSet(tuple(str(path) for path in training), places, labels, classes)
    return train, ShardSet(tuple(str(path) for path in testing), test_places, test_labels, classes)


def _walk(shards: list[Path]) -> tuple[Tensor, Tensor]:
    """Where the images of the shards lie, and their labels."""
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
            raise ValueError(f"{shard}: cannot be read as a shard ({error})") from None
        odd = place.keys() ^ label.keys()
        if odd or not place:
            which = f"sample {sorted(odd)[0].strip('/')}" if odd else "any sample"
            raise ValueError(f"{shard}: image or label of {which} is missing; accepted are pairs like 17.jpg, 17.cls")
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
    if not 0 <= label < MOST_CLASSES:
        found = text[:20].decode(errors="replace").strip()
        raise ValueError(f"{member.name}: label {found!r}, accepted are whole numbers from 0 to {MOST_CLASSES - 1}")
    return label
