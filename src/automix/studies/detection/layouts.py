"""The file layouts of VOC and COCO. All annotations are read at the start, so that a broken one fails early."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from automix.core.errors import AutomixError, one_line
from automix.studies.detection.data import DetectionSet, Objects

VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)
VOC_SOURCE = "http://host.robots.ox.ac.uk/pascal/VOC/"
COCO_SOURCE = "https://cocodataset.org/#download"


def read_voc(folder: Path) -> tuple[DetectionSet, DetectionSet]:
    """Read a VOCdevkit.

    VOC counts pixels from 1 and includes both ends of a box: 1 is subtracted from the first.

    Args:
        folder: The VOCdevkit, with VOC2007 and optionally VOC2012 in it.

    Returns:
        trainval of VOC2007 and, if it is there, of VOC2012; the test images of VOC2007.
    """
    listed = {"train": [("VOC2007", "trainval")], "test": [("VOC2007", "test")]}
    if (folder / "VOC2012").is_dir():
        listed["train"].append(("VOC2012", "trainval"))
    train, test = (
        _read_voc_images([(folder / year, name) for year, which in parts for name in _voc_names(folder / year, which)])
        for parts in listed.values()
    )
    return train, test


def _voc_names(year: Path, which: str) -> list[str]:
    path = year / "ImageSets" / "Main" / f"{which}.txt"
    try:
        names = path.read_text(encoding="utf-8").split()
    except OSError:
        raise AutomixError(f"{path}: not found; get VOC in its original layout from {VOC_SOURCE}") from None
    if not names:
        raise AutomixError(f"{path}: the list is empty; it must have an image name on each line")
    return names


def _read_voc_images(images: list[tuple[Path, str]]) -> DetectionSet:
    objects = tuple(read_voc_annotation(year / "Annotations" / f"{name}.xml") for year, name in images)
    return DetectionSet(VOC_CLASSES, objects, tuple(str(year / "JPEGImages" / f"{name}.jpg") for year, name in images))


def read_voc_annotation(path: Path) -> Objects:
    """Read the XML annotation of one VOC image.

    Args:
        path: The file.

    Returns:
        The objects; difficult ones are ignored.

    Raises:
        AutomixError: If the file cannot be read, a class is unknown or a box is empty.
    """
    boxes: list[list[float]] = []
    labels, difficult = [], []
    try:
        for item in ElementTree.parse(path).getroot().iter("object"):
            x0, y0, x1, y1 = (float(item.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax"))
            boxes.append(_check_box([x0 - 1, y0 - 1, x1, y1]))
            labels.append(VOC_CLASSES.index(item.findtext("name", "").strip()))
            difficult.append(item.findtext("difficult", "0").strip() == "1")
    except (OSError, ElementTree.ParseError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or one_line(error)
        raise AutomixError(f"{path}: cannot be read as a VOC annotation ({reason})") from None
    return Objects.from_lists(boxes, labels, difficult)


def read_coco(folder: Path) -> tuple[DetectionSet, DetectionSet]:
    """Read COCO's train2017 and val2017.

    Args:
        folder: The folder with train2017, val2017 and annotations in it.

    Returns:
        The training and the test set. The classes are the categories in the order of their ids.
    """
    train, test = (_read_coco_images(folder, which) for which in ("train2017", "val2017"))
    if train.classes != test.classes:
        raise AutomixError(f"{folder}: train2017 and val2017 must have the same categories")
    return train, test


def _read_coco_images(folder: Path, which: str) -> DetectionSet:
    path = folder / "annotations" / f"instances_{which}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise AutomixError(f"{path}: not found; get COCO in its original layout from {COCO_SOURCE}") from None
    except ValueError as error:
        raise AutomixError(f"{path}: cannot be read as JSON ({one_line(error)})") from None
    try:
        return _parse_coco(content, folder / which)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else one_line(error)
        raise AutomixError(f"{path}: cannot be read as COCO's instances ({what})") from None


def _parse_coco(content: dict[str, Any], images: Path) -> DetectionSet:
    categories = sorted(content["categories"], key=lambda category: category["id"])
    label_of = {category["id"]: label for label, category in enumerate(categories)}
    by_image: dict[int, tuple[list[list[float]], list[int], list[bool]]] = {
        image["id"]: ([], [], []) for image in content["images"]
    }
    for annotation in content["annotations"]:
        x, y, width, height = annotation["bbox"]
        if width <= 0 or height <= 0:
            continue  # COCO has two such boxes; Detectron2 drops them as well
        boxes, labels, crowds = by_image[annotation["image_id"]]
        boxes.append(_check_box([x, y, x + width, y + height]))
        labels.append(label_of[annotation["category_id"]])
        crowds.append(bool(annotation.get("iscrowd", 0)))
    return DetectionSet(
        tuple(category["name"] for category in categories),
        tuple(Objects.from_lists(*by_image[image["id"]]) for image in content["images"]),
        tuple(str(images / image["file_name"]) for image in content["images"]),
    )


def _check_box(box: list[float]) -> list[float]:
    x0, y0, x1, y1 = box
    if not (x0 < x1 and y0 < y1):  # NaN included
        raise AutomixError(f"a box must have x0 < x1 and y0 < y1, got ({x0:g}, {y0:g}) to ({x1:g}, {y1:g})")
    return box
