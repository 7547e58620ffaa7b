"""The layouts of VOC and COCO. Every annotation is read at the start, so that a broken one does not end a long run."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from automix.studies.detection.data import DetectionSet, Objects

VOC_CLASSES = (
    *("aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow"),
    *("diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor"),
)


def voc(folder: Path) -> tuple[DetectionSet, DetectionSet]:
    """trainval of VOC2007 and, where it is there, of VOC2012; tested on VOC2007's test images.

    VOC's coordinates are those of pixels, counted from 1, both ends included: 1 is subtracted from the first.
    """
    listed = {"train": [("VOC2007", "trainval")], "test": [("VOC2007", "test")]}
    if (folder / "VOC2012").is_dir():
        listed["train"].append(("VOC2012", "trainval"))
    train, test = (
        _voc_images([(folder / year, name) for year, which in parts for name in _voc_names(folder / year, which)])
        for parts in listed.values()
    )
    return train, test


def _voc_names(year: Path, which: str) -> list[str]:
    path = year / "ImageSets" / "Main" / f"{which}.txt"
    try:
        names = path.read_text(encoding="utf-8").split()
    except OSError:
        raise ValueError(f"{path}: not found; accepted is VOC's own layout, get it from "
                         "http://host.robots.ox.ac.uk/pascal/VOC/")  from None  # fmt: skip
    if not names:
        raise ValueError(f"{path}: names no image; accepted is a name on each line")
    return names


def _voc_images(images: list[tuple[Path, str]]) -> DetectionSet:
    objects = tuple(read_voc_annotation(year / "Annotations" / f"{name}.xml") for year, name in images)
    return DetectionSet(VOC_CLASSES, objects, tuple(str(year / "JPEGImages" / f"{name}.jpg") for year, name in images))


def read_voc_annotation(path: Path) -> Objects:
    boxes: list[list[float]] = []
    labels, difficult = [], []
    try:
        for item in ElementTree.parse(path).getroot().iter("object"):
            x0, y0, x1, y1 = (float(item.findtext(f"bndbox/{side}", "")) for side in ("xmin", "ymin", "xmax", "ymax"))
            boxes.append(_checked([x0 - 1, y0 - 1, x1, y1]))
            labels.append(VOC_CLASSES.index(item.findtext("name", "").strip()))
            difficult.append(item.findtext("difficult", "0").strip() == "1")
    except (OSError, ElementTree.ParseError, ValueError) as error:
        reason = (isinstance(error, OSError) and error.strerror) or " ".join(str(error).split())
        raise ValueError(f"{path}: cannot be read as a VOC annotation ({reason})") from None
    return Objects.of(boxes, labels, difficult)


def coco(folder: Path) -> tuple[DetectionSet, DetectionSet]:
    """train2017 and val2017. The classes are the categories in the order of their numbers."""
    train, test = (_coco_images(folder, which) for which in ("train2017", "val2017"))
    if train.classes != test.classes:
        raise ValueError(f"{folder}: train2017 and val2017 have different categories; accepted are the same in both")
    return train, test


def _coco_images(folder: Path, which: str) -> DetectionSet:
    path = folder / "annotations" / f"instances_{which}.json"
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError:
        raise ValueError(f"{path}: not found; accepted is COCO's own layout, get it from "
                         "https://cocodataset.org/#download")  from None  # fmt: skip
    except ValueError as error:
        raise ValueError(f"{path}: cannot be read as JSON ({' '.join(str(error).split())})") from None
    try:
        return _coco_set(content, folder / which)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise ValueError(f"{path}: cannot be read as COCO's instances ({what})") from None


def _coco_set(content: dict[str, Any], images: Path) -> DetectionSet:
    categories = sorted(content["categories"], key=lambda category: category["id"])
    label_of = {category["id"]: label for label, category in enumerate(categories)}
    found: dict[int, tuple[list[list[float]], list[int], list[bool]]] = {
        image["id"]: ([], [], []) for image in content["images"]
    }
    for annotation in content["annotations"]:
        x, y, width, height = annotation["bbox"]
        if width <= 0 or height <= 0:
            continue  # COCO has two such; Detectron2 drops them as well
        boxes, labels, crowds = found[annotation["image_id"]]
        boxes.append(_checked([x, y, x + width, y + height]))
        labels.append(label_of[annotation["category_id"]])
        crowds.append(bool(annotation.get("iscrowd", 0)))
    return DetectionSet(
        tuple(category["name"] for category in categories),
        tuple(Objects.of(*found[image["id"]]) for image in content["images"]),
        tuple(str(images / image["file_name"]) for image in content["images"]),
    )


def _checked(box: list[float]) -> list[float]:
    x0, y0, x1, y1 = box
    if not (x0 < x1 and y0 < y1):  # NaN included
        raise ValueError(f"a box from ({x0:g}, {y0:g}) to ({x1:g}, {y1:g}): accepted are x0 < x1 and y0 < y1")
    return box
