"""ImageNet as it is distributed: the 50,000 validation images lie in one folder, and another file has their classes.

The classes of a flat ``val/`` are read from the first of these files that is found:

    LOC_val_solution.csv                                  Kaggle: ImageId,PredictionString ("n01751748 111 108 431 194")
    imagenet_2012_validation_synset_labels.txt            one WordNet id a line, in the order of the files' names
    val.txt                                               Caffe: "ILSVRC2012_val_00000001.JPEG 65", ids in sorted order
    ILSVRC2012_validation_ground_truth.txt, meta.mat      the official development kit: one ILSVRC2012_ID a line
"""

import csv
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from automix.core.errors import AutomixError
from automix.data.folders import class_folders, image_endings, list_classes, subfolders
from automix.data.image_files import ImageFiles

SYNSET_LABELS = "imagenet_2012_validation_synset_labels.txt"
GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
DEVKIT = ("", "data", "ILSVRC2012_devkit_t12/data", "devkit/data", "devkit")  # where its files may be
PARENTS = 3  # Kaggle has ILSVRC/Data/CLS-LOC/val, and its file beside ILSVRC


def imagenet(root: Path) -> tuple[ImageFiles, ImageFiles]:
    """List ImageNet: ``train/<wnid>/``, and ``val/<wnid>/`` or ``val/`` with all images and a file of their classes.

    Args:
        root: The folder of train/ and val/.

    Returns:
        The training files and the test files.
    """
    if not has_flat_val(root):
        return class_folders(root)
    train, val = list_classes(root / "train"), root / "val"
    names = sorted(name for name in os.listdir(val) if name.lower().endswith(image_endings()))
    file, wnids = _read_classes(root, names, train.classes)
    label_of = {wnid: label for label, wnid in enumerate(train.classes)}
    for name in names:
        if name not in wnids:
            raise AutomixError(f"{file}: no class for {name}; expected one for each image of {val}")
        if wnids[name] not in label_of:
            raise AutomixError(
                f"{file}: class {wnids[name]!r} of {name} is unknown; {root / 'train'} has no such folder"
            )
    labels = torch.tensor([label_of[wnids[name]] for name in names])
    return train, ImageFiles(tuple(str(val / name) for name in names), labels, train.classes)


def has_flat_val(root: Path) -> bool:
    """Tell whether a folder has ImageNet's validation images in one folder.

    Args:
        root: A dataset's folder.

    Returns:
        True if there is train/, and val/ has images named ILSVRC2012_val_... but no folders.
    """
    val = root / "val"
    if not (root / "train").is_dir() or not val.is_dir() or subfolders(val):
        return False
    return any(name.startswith("ILSVRC2012_val_") for name in os.listdir(val))


def _read_classes(root: Path, names: list[str], classes: tuple[str, ...]) -> tuple[Path, dict[str, str]]:
    """The file that has the classes of the validation images, and the WordNet id of each image by its name."""
    readers: dict[str, Callable[[Path], dict[str, str]]] = {
        "LOC_val_solution.csv": _read_kaggle,
        SYNSET_LABELS: lambda file: _by_order(file, file.read_text().split(), names),
        "val.txt": lambda file: _read_caffe(file, classes),
        GROUND_TRUTH: lambda file: _by_order(file, _read_devkit(file), names),
    }
    for name, read in readers.items():
        for folder in _places(root):
            if (folder / name).is_file():
                return folder / name, read(folder / name)
    raise AutomixError(
        f"{root / 'val'}: its images are in no class folders, and no file has their classes; put one of "
        f"{', '.join(readers)} into {root}"
    )


def _places(root: Path) -> Iterator[Path]:
    for folder in (root, root / "val", *root.resolve().parents[:PARENTS]):
        yield from (folder / inside for inside in DEVKIT)


def _read_kaggle(file: Path) -> dict[str, str]:
    with file.open(newline="", encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    return {f"{row['ImageId']}.JPEG": row["PredictionString"].split()[0] for row in rows}


def _read_caffe(file: Path, classes: tuple[str, ...]) -> dict[str, str]:
    rows = [line.split() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    return {Path(name).name: classes[int(label)] for name, label in rows}


def _read_devkit(file: Path) -> list[str]:
    meta = file.with_name("meta.mat")
    if not meta.is_file():
        raise AutomixError(f"{meta}: not found; the development kit has it beside {file.name}")
    try:
        from scipy.io import loadmat
    except ImportError:
        raise AutomixError(f"{meta}: cannot be read without scipy; run pip install scipy") from None
    synsets = loadmat(meta, squeeze_me=True)["synsets"]
    wnid_of = {int(row["ILSVRC2012_ID"]): str(row["WNID"]) for row in synsets}
    return [wnid_of[int(number)] for number in file.read_text().split()]


def _by_order(file: Path, wnids: list[str], names: list[str]) -> dict[str, str]:
    """Line n is the class of the image with the number n in its name: some images may have been removed."""
    numbers = {name: int(Path(name).stem.rpartition("_")[2]) for name in names if name.startswith("ILSVRC2012_val_")}
    if max(numbers.values()) > len(wnids):
        raise AutomixError(f"{file}: {len(wnids)} lines, but there is an image number {max(numbers.values())}")
    return {name: wnids[number - 1] for name, number in numbers.items()}
