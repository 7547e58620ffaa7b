"""Images with boxes: VOC's and COCO's layouts, drawn scenes, batches, and errors for broken files."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from automix.core.errors import AutomixError
from automix.data.batch_plan import BatchPlan
from automix.studies.detection import DetectionSet, Objects, open_detection_data
from automix.studies.detection.data import training_batch, training_batches
from automix.studies.detection.layouts import VOC_CLASSES
from automix.studies.detection.scenes import SIDE, draw_scenes

POOL = ThreadPoolExecutor(1)


def voc_object(name: str, box: tuple[int, int, int, int], difficult: int = 0) -> str:
    sides = "".join(f"<{s}>{v}</{s}>" for s, v in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True))
    return f"<object><name>{name}</name><difficult>{difficult}</difficult><bndbox>{sides}</bndbox></object>"


def write_voc(root: Path, year: str, sets: dict[str, dict[str, str]]) -> Path:
    """A devkit of one year: for each set, the objects of each image."""
    for folder in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (root / year / folder).mkdir(parents=True, exist_ok=True)
    for which, images in sets.items():
        (root / year / "ImageSets" / "Main" / f"{which}.txt").write_text("\n".join(images))
        for name, objects in images.items():
            (root / year / "Annotations" / f"{name}.xml").write_text(f"<annotation>{objects}</annotation>")
            pixels = np.full((30, 40, 3), int(name) % 256, dtype=np.uint8)
            Image.fromarray(pixels).save(root / year / "JPEGImages" / f"{name}.jpg")
    return root


CAT, HARD_DOG = voc_object("cat", (1, 1, 10, 20)), voc_object("dog", (5, 6, 7, 8), difficult=1)
MINIMAL = {"trainval": {"1": CAT}, "test": {"9": CAT}}


def test_voc(tmp_path: Path) -> None:
    write_voc(tmp_path, "VOC2007", {"trainval": {"000001": CAT + HARD_DOG, "000002": ""}, "test": {"000003": CAT}})
    train, test = open_detection_data(str(tmp_path))
    assert (len(train), len(test), train.classes) == (2, 1, VOC_CLASSES)
    first = train.objects[0]
    assert first.boxes.tolist() == [[0, 0, 10, 20], [4, 5, 7, 8]]  # from pixel 1 to pixel 10: ten pixels
    assert [VOC_CLASSES[label] for label in first.labels.tolist()] == ["cat", "dog"]
    assert first.ignored.tolist() == [False, True]
    assert train.objects[1].boxes.shape == (0, 4)
    assert train.read(1).shape == (3, 30, 40)
    assert train.trainable().paths == train.paths[:1]


def test_voc_2012_is_added_to_the_training_images(tmp_path: Path) -> None:
    write_voc(tmp_path, "VOC2007", MINIMAL)
    write_voc(tmp_path, "VOC2012", {"trainval": {"7": HARD_DOG + CAT}})
    train, test = open_detection_data(str(tmp_path))
    assert [Path(path).name for path in train.paths] == ["1.jpg", "7.jpg"]
    assert [Path(path).name for path in test.paths] == ["9.jpg"]


def test_training_set_without_a_box_is_refused(tmp_path: Path) -> None:
    write_voc(tmp_path, "VOC2007", {**MINIMAL, "trainval": {"1": "", "2": HARD_DOG}})
    with pytest.raises(AutomixError, match="none of the 2 training images"):
        open_detection_data(str(tmp_path))[0].trainable()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("<annotation><object>", "no element found: line 1"),
        (f"<annotation>{voc_object('unicorn', (1, 1, 2, 2))}</annotation>", "not in tuple"),
        (f"<annotation>{voc_object('cat', (9, 1, 2, 2))}</annotation>", r"x0 < x1.*\(8, 0\) to \(2, 2\)"),
        ("<annotation><object><name>cat</name></object></annotation>", "could not convert string to float"),
        (None, "No such file or directory"),
    ],
)
def test_error_names_a_broken_voc_annotation(tmp_path: Path, content: str | None, reason: str) -> None:
    path = write_voc(tmp_path, "VOC2007", MINIMAL) / "VOC2007" / "Annotations" / "1.xml"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(AutomixError, match=rf"1\.xml: .*{reason}"):
        open_detection_data(str(tmp_path))


def test_error_names_a_broken_image(tmp_path: Path) -> None:
    write_voc(tmp_path, "VOC2007", MINIMAL)
    (tmp_path / "VOC2007" / "JPEGImages" / "1.jpg").write_text("no image")
    train, _ = open_detection_data(str(tmp_path))
    with pytest.raises(ValueError, match=r"1\.jpg: "):
        next(training_batches(train, BatchPlan(1, 1), 0, 1, workers=1))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "data must be shapes, voc, coco.*'nowhere'"),
        ("{root}", "VOC2007.*annotations"),
        ("voc", r"trainval\.txt: not found"),
        ("coco", r"instances_train2017\.json: not found"),
    ],
)
def test_missing_data_is_refused_in_one_line(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(AutomixError, match=message) as error:
        open_detection_data(name.format(root=tmp_path), tmp_path)
    assert "\n" not in str(error.value)


COCO: dict[str, Any] = {
    "images": [{"id": 8, "file_name": "b.jpg"}, {"id": 5, "file_name": "a.jpg"}],
    "categories": [{"id": 90, "name": "kite"}, {"id": 3, "name": "car"}],
    "annotations": [
        {"image_id": 5, "category_id": 90, "bbox": [1, 2, 10.5, 4], "iscrowd": 0},
        {"image_id": 5, "category_id": 3, "bbox": [0, 0, 5, 5], "iscrowd": 1},
        {"image_id": 8, "category_id": 3, "bbox": [0, 0, 0, 5], "iscrowd": 0},
    ],
}


def write_coco(root: Path, train: Any = COCO, test: Any = COCO) -> Path:
    (root / "annotations").mkdir()
    for which, content in (("train2017", train), ("val2017", test)):
        text = content if isinstance(content, str) else json.dumps(content)
        (root / "annotations" / f"instances_{which}.json").write_text(text)
    return root


def test_coco(tmp_path: Path) -> None:
    train, test = open_detection_data(str(write_coco(tmp_path)))
    assert train.classes == ("car", "kite")
    assert train.paths == (str(tmp_path / "train2017" / "b.jpg"), str(tmp_path / "train2017" / "a.jpg"))
    assert test.paths[0] == str(tmp_path / "val2017" / "b.jpg")
    assert train.objects[0].boxes.shape == (0, 4)  # a box without width is none
    assert train.objects[1].boxes.tolist() == [[1, 2, 11.5, 6], [0, 0, 5, 5]]
    assert train.objects[1].labels.tolist() == [1, 0]
    assert train.objects[1].ignored.tolist() == [False, True]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", r"train2017\.json: .*JSON"),
        ({**COCO, "categories": COCO["categories"][:1]}, r"train2017\.json: .*3 is missing"),
        ({"images": []}, r"train2017\.json: .*'categories' is missing"),
        ({**COCO, "categories": [{"id": 3, "name": "c"}, {"id": 90, "name": "k"}]}, "same categories"),
    ],
)
def test_error_names_broken_coco_annotations(tmp_path: Path, content: Any, message: str) -> None:
    with pytest.raises(AutomixError, match=message) as error:
        open_detection_data(str(write_coco(tmp_path, train=content)))
    assert "\n" not in str(error.value)


def test_scenes_are_bright_inside_their_boxes() -> None:
    scenes = draw_scenes(40)
    assert scenes.images is not None
    assert scenes.images.shape == (40, 3, SIDE, SIDE)
    assert {len(objects.labels) for objects in scenes.objects} == {1, 2, 3, 4}
    for image, objects in zip(scenes.images.float(), scenes.objects, strict=True):
        assert (objects.boxes[:, :2] >= 0).all()
        assert (objects.boxes <= SIDE).all()
        outside = torch.ones(SIDE, SIDE, dtype=torch.bool)
        for x0, y0, x1, y1 in objects.boxes.int().tolist():
            assert image[:, y0:y1, x0:x1].mean() > 1.3 * image[:, outside].mean() or len(objects.labels) > 1
            outside[y0:y1, x0:x1] = False
        assert image[:, outside].mean() < 90  # of 255: the ground is dark


def test_scenes_are_a_function_of_the_seed() -> None:
    first, again, other = (draw_scenes(3, seed).images for seed in (4, 4, 5))
    assert torch.equal(first, again)  # type: ignore[arg-type]
    assert not torch.equal(first, other)  # type: ignore[arg-type]


def numbered(count: int) -> DetectionSet:
    """Image i is black but for one pixel of value i + 1 at x = 1, y = 0, in the box of its object."""
    images = torch.zeros(count, 3, 4, 6, dtype=torch.uint8)
    images[:, :, 0, 1] = torch.arange(1, count + 1, dtype=torch.uint8).view(-1, 1)
    objects = tuple(Objects.from_lists([[1, 0, 2, 1]], [i], [False]) for i in range(count))
    return DetectionSet(tuple(map(str, range(count))), objects, images=images)


def test_mirroring_moves_the_boxes_with_the_pixels() -> None:
    data, flipped = numbered(50), 0
    for image, objects in zip(*training_batch(data, BatchPlan(50, 50), 0, POOL), strict=True):
        x0, y0, x1, y1 = objects.boxes[0].int().tolist()
        assert image[0, y0:y1, x0:x1].tolist() == [[int(objects.labels[0]) + 1]]
        flipped += x0 != 1
    assert 10 < flipped < 40


def test_batches_are_a_function_of_seed_and_step() -> None:
    data, plan = numbered(10), BatchPlan(10, 4, seed=3, accumulate=2)
    straight = list(training_batches(data, plan, 0, 4, workers=2))
    resumed = list(training_batches(data, plan, 2, 4, workers=1))
    assert (len(straight), len(resumed)) == (8, 4)
    for (images, objects), (images_again, objects_again) in zip(straight[4:], resumed, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(images, images_again, strict=True))
        assert all(torch.equal(a.boxes, b.boxes) for a, b in zip(objects, objects_again, strict=True))
    assert not torch.equal(straight[0][0][0], straight[4][0][0])
