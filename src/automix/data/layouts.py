"""The official layouts of named datasets: each function lists the training and the test images of a folder.

FGVC-Aircraft and CIFAR's python files are read by torchvision. No image is opened here. A missing file raises an
`AutomixError` that names the file and the expected layout.
"""

import json
import re
from collections import Counter
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import torch

from automix.core.errors import AutomixError
from automix.data.folders import class_folders
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet

Pair = tuple[ImageFiles, ImageFiles]


def tiny_imagenet(root: Path) -> Pair:
    """List Tiny-ImageNet, with boxes.

    Classes are numbered in the alphabetical order of their WordNet ids, as by ImageFolder. The files give the last
    column and row inside a box, so 1 is added to both.

    Args:
        root: The folder tiny-imagenet-200.

    Returns:
        The training files and the test files.
    """
    ids = sorted(_lines(root / "wnids.txt", "tiny-imagenet-200 with wnids.txt, train/ and val/"))
    label_of = {wnid: label for label, wnid in enumerate(ids)}
    words = dict(line.split("\t", 1) for line in _lines(root / "words.txt", "Tiny-ImageNet with words.txt"))
    names = [words.get(wnid, wnid).split(",")[0] for wnid in ids]
    counts = Counter(names)
    classes = tuple(f"{name} ({wnid})" if counts[name] > 1 else name for name, wnid in zip(names, ids, strict=True))

    def list_rows(rows: list[tuple[Path, str, list[str]]], file: Path) -> ImageFiles:
        boxes = torch.tensor([[float(end) for end in box] for _, _, box in rows])
        boxes[:, 2:] += 1
        return ImageFiles(
            tuple(str(path) for path, _, _ in rows),
            torch.tensor([_look_up(label_of, wnid, file) for _, wnid, _ in rows]),
            classes,
            boxes,
        )

    train = []
    for wnid in ids:
        inside = root / "train" / wnid
        for line in _lines(inside / f"{wnid}_boxes.txt", "train/<wnid>/<wnid>_boxes.txt beside train/<wnid>/images/"):
            name, *box = line.split("\t")
            train.append((inside / "images" / name, wnid, box))
    test = []
    annotations = root / "val" / "val_annotations.txt"
    for line in _lines(annotations, "val/val_annotations.txt beside val/images/"):
        name, wnid, *box = line.split("\t")
        test.append((root / "val" / "images" / name, wnid, box))
    return list_rows(train, root / "wnids.txt"), list_rows(test, annotations)


def cub(root: Path) -> Pair:
    """List CUB-200-2011, with boxes (which its files give as x, y, width, height).

    Args:
        root: The folder CUB_200_2011.

    Returns:
        The training files and the test files.
    """

    def column(file: str) -> dict[str, str]:
        expected = "CUB_200_2011 with images/, images.txt, classes.txt, image_class_labels.txt, ..."
        return dict(line.split(" ", 1) for line in _lines(root / file, expected))

    images, labels, split = column("images.txt"), column("image_class_labels.txt"), column("train_test_split.txt")
    names, boxes = column("classes.txt"), column("bounding_boxes.txt")
    label_of = {key: label for label, key in enumerate(names)}
    files = ("image_class_labels.txt", "bounding_boxes.txt", "train_test_split.txt")
    labeled, boxed, divided = (root / file for file in files)
    corners = torch.tensor([[float(value) for value in _look_up(boxes, key, boxed).split()] for key in images])
    corners[:, 2:] += corners[:, :2]
    everything = ImageFiles(
        tuple(str(root / "images" / path) for path in images.values()),
        torch.tensor([_look_up(label_of, _look_up(labels, key, labeled), labeled) for key in images]),
        tuple(name.split(".", 1)[-1].replace("_", " ") for name in names.values()),
        corners,
    )
    training = torch.tensor([_look_up(split, key, divided) == "1" for key in images])
    return everything.take(training.nonzero().flatten()), everything.take((~training).nonzero().flatten())


def pets(root: Path) -> Pair:
    """List Oxford-IIIT Pets, with trimaps as masks; the training set is trainval.txt.

    Classes are numbered as in the files. Their names are those of the images without the number.

    Args:
        root: The folder with images/ and annotations/.

    Returns:
        The training files and the test files.
    """
    inside = root / "annotations"

    def rows(split: str) -> list[tuple[str, int]]:
        lines = _lines(
            inside / f"{split}.txt", "annotations/{trainval,test}.txt and annotations/trimaps/ beside images/"
        )
        fields = [line.split() for line in lines if not line.startswith("#")]
        return [(name, int(number)) for name, number, _species, _breed in fields]

    train, test = rows("trainval"), rows("test")
    names = {number: name.rpartition("_")[0].replace("_", " ") for name, number in train}
    label_of = {number: label for label, number in enumerate(sorted(names))}

    def list_rows(rows: list[tuple[str, int]], file: Path) -> ImageFiles:
        return ImageFiles(
            tuple(str(root / "images" / f"{name}.jpg") for name, _ in rows),
            torch.tensor([_look_up(label_of, number, file) for _, number in rows]),
            tuple(names[number] for number in label_of),
            masks=tuple(str(inside / "trimaps" / f"{name}.png") for name, _ in rows),
        )

    return list_rows(train, inside / "trainval.txt"), list_rows(test, inside / "test.txt")


def inaturalist(root: Path, year: int) -> Pair:
    """List iNaturalist 2017 or 2018: ``train<year>.json`` and ``val<year>.json``, which name files below the folder.

    Classes are numbered in the order of their category ids.

    Args:
        root: The folder of the two JSON files.
        year: 2017 or 2018.

    Returns:
        The training files and the test files.
    """

    def load(name: str) -> Any:
        return json.loads(_text(root / name, f"train{year}.json and val{year}.json beside the folders of images"))

    train, test = load(f"train{year}.json"), load(f"val{year}.json")
    categories = sorted(train["categories"], key=lambda category: category["id"])
    label_of = {category["id"]: label for label, category in enumerate(categories)}

    def list_split(content: Any, file: Path) -> ImageFiles:
        labels = {row["image_id"]: _look_up(label_of, row["category_id"], file) for row in content["annotations"]}
        return ImageFiles(
            tuple(str(root / image["file_name"]) for image in content["images"]),
            torch.tensor([_look_up(labels, image["id"], file) for image in content["images"]]),
            tuple(str(category["name"]) for category in categories),
        )

    return list_split(train, root / f"train{year}.json"), list_split(test, root / f"val{year}.json")


def places205(root: Path) -> Pair:
    """List Places205: ``trainvalsplit_places205/{train,val}_places205.csv`` with rows "path label".

    The paths are relative to images256/ (also where the official archive puts it), else to the dataset's folder.

    Args:
        root: The dataset's folder.

    Returns:
        The training files and the test files.
    """
    candidates = (root / "images256", root / "data/vision/torralba/deeplearning/images256", root)
    images = next(place for place in candidates if place.is_dir())
    names: dict[int, str] = {}
    parts = []
    for split in ("train", "val"):
        file = root / "trainvalsplit_places205" / f"{split}_places205.csv"
        rows = []
        for line in _lines(file, "trainvalsplit_places205/{train,val}_places205.csv"):
            row = re.fullmatch(r"(.+?)[\s,]+(\d+)", line)
            if row is None:
                raise AutomixError(f"{file}: cannot read the row {line!r}; expected a path and a class number")
            rows.append((row[1], int(row[2])))
            if split == "train":  # a/abbey/1.jpg is an abbey, b/basilica/indoor/2.jpg a basilica/indoor
                names.setdefault(rows[-1][1], "/".join(Path(row[1]).parts[1:-1]))
        parts.append(rows)
    classes = tuple(names.get(label) or str(label) for label in range(max(names) + 1))
    train, test = (
        ImageFiles(tuple(str(images / path) for path, _ in rows), torch.tensor([label for _, label in rows]), classes)
        for rows in parts
    )
    return train, test


def aircraft(root: Path) -> Pair:
    """List FGVC-Aircraft with its 100 variants as classes; the training set is the split `trainval`.

    Args:
        root: The folder fgvc-aircraft-2013b.

    Returns:
        The training files and the test files.
    """
    from torchvision.datasets import FGVCAircraft

    if root.name != "fgvc-aircraft-2013b":
        raise AutomixError(f"{root}: the folder must be named fgvc-aircraft-2013b, by which torchvision finds it")
    parts = []
    for split in ("trainval", "test"):
        try:
            data = FGVCAircraft(str(root.parent), split=split)
        except FileNotFoundError as error:
            raise AutomixError(f"{error.filename}: not found; expected fgvc-aircraft-2013b as unpacked") from None
        parts.append(ImageFiles(tuple(data._image_files), torch.tensor(data._labels), tuple(data.classes)))
    return parts[0], parts[1]


def cifar(root: Path) -> Pair | tuple[ImageSet, ImageSet]:
    """Read CIFAR-10 or CIFAR-100: the official python files, or images in class folders.

    Args:
        root: The folder cifar-10-batches-py or cifar-100-python, or a folder of class folders.

    Returns:
        The training and the test set: in memory if read from python files, else as lists of files.
    """
    from torchvision import datasets

    kinds = {kind.base_folder: kind for kind in (datasets.CIFAR10, datasets.CIFAR100)}
    if root.name not in kinds:
        return class_folders(root)
    sets = []
    for train in (True, False):
        try:
            data = kinds[root.name](str(root.parent), train=train, download=False)
        except RuntimeError as error:
            raise AutomixError(f"{root}: {str(error).split('.')[0]}; expected the official python files") from None
        images = torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous()
        sets.append(ImageSet(images, torch.tensor(data.targets), tuple(data.classes)))
    return sets[0], sets[1]


def _look_up(table: Mapping[Any, Any], key: Hashable, file: Path) -> Any:
    """The entry of `key`, which `file` refers to."""
    if key not in table:
        raise AutomixError(f"{file}: {key!r} is unknown; expected a name or number that the other files list")
    return table[key]


def _text(path: Path, expected: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise AutomixError(f"{path}: not found; expected {expected}") from None


def _lines(path: Path, expected: str) -> list[str]:
    return [line.strip() for line in _text(path, expected).splitlines() if line.strip()]
