"""How datasets lie on disk: each function takes a dataset's folder and lists its training and its test images.

ImageFolder's layout and FGVC-Aircraft are read by torchvision, the others by a few lines each. No image is opened here.
A file that is missing ends in one line that names it and the layout that was expected.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import torch

from automix.core.draws import step_generator
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet

EXTENSIONS = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm")  # of images in folders
TEST_FOLDERS = ("test", "val", "validation")
HELD_OUT = 5  # of a folder without a test set, one image in so many

Pair = tuple[ImageFiles, ImageFiles]


def folder(root: Path) -> Pair:
    """``train/<class>/`` and ``test/<class>/`` (or val, validation); or ``<class>/`` alone, see `flat`.

    Classes are numbered in alphabetical order.
    """
    expected = "accepted is train/<class>/ and test/<class>/, or <class>/ alone"
    split = next((root / name for name in TEST_FOLDERS if (root / name).is_dir()), None)
    if not (root / "train").is_dir():
        if split is None:
            return flat(root)
        raise ValueError(f"{root}: no folder train in it; {expected}")
    if split is None:
        raise ValueError(f"{root}: no folder {' or '.join(TEST_FOLDERS)} in it; {expected}")
    train, test = _image_folder(root / "train"), _image_folder(split)
    if train.classes != test.classes:
        odd = sorted(set(train.classes) ^ set(test.classes))
        raise ValueError(f"{root}: training and test set have different classes, for instance {odd[0]!r}")
    return train, test


def flat(root: Path) -> Pair:
    """``<class>/<image>`` without a test set: every fifth image of each class is held out as one.

    The images of a class are shuffled first, by a seed that never changes: the split is the same for every run.
    """
    everything = _image_folder(root)
    order = torch.randperm(len(everything), generator=step_generator(0, 0, stream="held out"))
    testing = torch.zeros(len(everything), dtype=torch.bool)
    for label, name in enumerate(everything.classes):
        members = order[everything.labels[order] == label]
        if len(members) < 2:
            raise ValueError(
                f"{root / name}: one image only; accepted are at least two, one of them is held out to test"
            )
        testing[members[::HELD_OUT]] = True
    return _split(everything, ~testing)


def tiny_imagenet(root: Path) -> Pair:
    """Tiny-ImageNet's own layout; classes in alphabetical order of their WordNet ids, as ImageFolder numbers them.

    The files give the last column and row inside a box, 63 at the most in images of 64 px: 1 is added to both.
    """
    ids = sorted(line for line in _lines(root / "wnids.txt", "tiny-imagenet-200 with wnids.txt, train/ and val/"))
    number = {wnid: label for label, wnid in enumerate(ids)}
    words = dict(line.split("\t", 1) for line in _lines(root / "words.txt", "Tiny-ImageNet with words.txt"))
    names = [words.get(wnid, wnid).split(",")[0] for wnid in ids]
    often = Counter(names)
    classes = tuple(f"{name} ({wnid})" if often[name] > 1 else name for name, wnid in zip(names, ids, strict=True))

    def listing(rows: list[tuple[Path, str, list[str]]], file: Path) -> ImageFiles:
        boxes = torch.tensor([[float(end) for end in box] for _, _, box in rows])
        boxes[:, 2:] += 1
        return ImageFiles(
            tuple(str(path) for path, _, _ in rows),
            torch.tensor([_look_up(number, wnid, file) for _, wnid, _ in rows]),
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
    notes = root / "val" / "val_annotations.txt"
    for line in _lines(notes, "val/val_annotations.txt beside val/images/"):
        name, wnid, *box = line.split("\t")
        test.append((root / "val" / "images" / name, wnid, box))
    return listing(train, root / "wnids.txt"), listing(test, notes)


def cub(root: Path) -> Pair:
    """CUB-200-2011's own layout, with its boxes (given as x, y, width, height)."""

    def column(file: str) -> dict[str, str]:
        expected = "CUB_200_2011 with images/, images.txt, classes.txt, image_class_labels.txt, ..."
        return dict(line.split(" ", 1) for line in _lines(root / file, expected))

    images, labels, split = column("images.txt"), column("image_class_labels.txt"), column("train_test_split.txt")
    names, boxes = column("classes.txt"), column("bounding_boxes.txt")
    number = {key: label for label, key in enumerate(names)}
    files = ("image_class_labels.txt", "bounding_boxes.txt", "train_test_split.txt")
    labeled, boxed, divided = (root / file for file in files)
    corners = torch.tensor([[float(value) for value in _look_up(boxes, key, boxed).split()] for key in images])
    corners[:, 2:] += corners[:, :2]
    everything = ImageFiles(
        tuple(str(root / "images" / path) for path in images.values()),
        torch.tensor([_look_up(number, _look_up(labels, key, labeled), labeled) for key in images]),
        tuple(name.split(".", 1)[-1].replace("_", " ") for name in names.values()),
        corners,
    )
    training = torch.tensor([_look_up(split, key, divided) == "1" for key in images])
    return _split(everything, training)


def inaturalist(root: Path, year: int) -> Pair:
    """iNaturalist 2017 and 2018: ``train<year>.json`` and ``val<year>.json``, which name files below the folder.

    Classes are numbered in the order of their category ids.
    """

    def load(name: str) -> Any:
        return json.loads(_text(root / name, f"train{year}.json and val{year}.json beside the folders of images"))

    train, test = load(f"train{year}.json"), load(f"val{year}.json")
    categories = sorted(train["categories"], key=lambda category: category["id"])
    number = {category["id"]: label for label, category in enumerate(categories)}

    def listing(content: Any, file: Path) -> ImageFiles:
        notes = content["annotations"]
        label_of = {note["image_id"]: _look_up(number, note["category_id"], file) for note in notes}
        return ImageFiles(
            tuple(str(root / image["file_name"]) for image in content["images"]),
            torch.tensor([_look_up(label_of, image["id"], file) for image in content["images"]]),
            tuple(str(category["name"]) for category in categories),
        )

    return listing(train, root / f"train{year}.json"), listing(test, root / f"val{year}.json")


def places205(root: Path) -> Pair:
    """Places205: ``trainvalsplit_places205/{train,val}_places205.csv`` with rows "path label", images in images256/.

    The paths are relative to images256/ (also where the official archive puts it), else to the dataset's folder.
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
                raise ValueError(f"{file}: the row {line!r}; accepted is a path and a class number")
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
    """FGVC-Aircraft, 100 variants, through torchvision; trains on its split `trainval`."""
    from torchvision.datasets import FGVCAircraft

    if root.name != "fgvc-aircraft-2013b":
        raise ValueError(f"{root}: accepted is a folder of the name fgvc-aircraft-2013b, by which torchvision finds it")
    parts = []
    for split in ("trainval", "test"):
        try:
            data = FGVCAircraft(str(root.parent), split=split)
        except FileNotFoundError as error:
            raise ValueError(
                f"{error.filename}: not found; accepted is fgvc-aircraft-2013b as it is unpacked"
            ) from None
        parts.append(ImageFiles(tuple(data._image_files), torch.tensor(data._labels), tuple(data.classes)))
    return parts[0], parts[1]


def cifar(root: Path) -> Pair | tuple[ImageSet, ImageSet]:
    """CIFAR-10 or -100: the official python files through torchvision, or the images in folders."""
    from torchvision import datasets

    kinds = {kind.base_folder: kind for kind in (datasets.CIFAR10, datasets.CIFAR100)}
    if root.name not in kinds:
        return folder(root)
    sets = []
    for train in (True, False):
        try:
            data = kinds[root.name](str(root.parent), train=train, download=False)
        except RuntimeError as error:
            raise ValueError(f"{root}: {str(error).split('.')[0]}; accepted are the official python files") from None
        images = torch.from_numpy(data.data).permute(0, 3, 1, 2).contiguous()
        sets.append(ImageSet(images, torch.tensor(data.targets), tuple(data.classes)))
    return sets[0], sets[1]


def _image_folder(root: Path) -> ImageFiles:
    """torchvision's ImageFolder as a listing."""
    from torchvision.datasets import ImageFolder

    try:
        found = ImageFolder(str(root), is_valid_file=_is_listed, allow_empty=True)
    except FileNotFoundError as error:
        raise ValueError(f"{root}: {str(error).splitlines()[0]}; accepted is <class>/<image>") from None
    labels = torch.tensor(found.targets, dtype=torch.int64)
    sizes = torch.bincount(labels, minlength=len(found.classes)).tolist()
    for name, size in zip(found.classes, sizes, strict=True):
        if size == 0:
            why = "no image in it" if os.access(root / name, os.R_OK | os.X_OK) else "may not be read"
            raise ValueError(f"{root / name}: {why}; accepted are folders of images ({' '.join(EXTENSIONS)})")
    return ImageFiles(tuple(path for path, _ in found.samples), labels, tuple(found.classes))


def _is_listed(path: str) -> bool:
    return path.lower().endswith(EXTENSIONS)


def _split(everything: ImageFiles, training: torch.Tensor) -> Pair:
    return everything.take(training.nonzero().flatten()), everything.take((~training).nonzero().flatten())


def _look_up(table: Mapping[Any, Any], key: Hashable, file: Path) -> Any:
    """The entry of `key`, which `file` speaks of."""
    if key not in table:
        raise ValueError(f"{file}: {key!r} is unknown; accepted are the names and numbers that the other files list")
    return table[key]


def _text(path: Path, expected: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise ValueError(f"{path}: not found; accepted is {expected}") from None


def _lines(path: Path, expected: str) -> list[str]:
    return [line.strip() for line in _text(path, expected).splitlines() if line.strip()]
