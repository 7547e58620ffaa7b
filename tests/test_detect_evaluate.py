"""Average precision: worked out by hand, and against pycocotools."""

import contextlib
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from automix.studies.detection import DetectionSet, Objects, evaluate_detector
from automix.studies.detection.drawing import draw_detections
from automix.studies.detection.evaluate import Detections, compute_precision, create_metric, update_metric
from automix.studies.detection.voc07 import Voc07Precision

pytest.importorskip("faster_coco_eval")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


COCO_VALUES, VOC_VALUES = ("mAP", "AP50", "AP75"), ("voc07_mAP", "voc07_AP50", "voc07_AP75")


def precision(detections: list[Detections], objects: list[Objects]) -> dict[str, float]:
    metric = create_metric()
    update_metric(metric, detections, objects)
    return compute_precision(metric)


def detections(boxes: list[list[float]], scores: list[float], labels: list[int] | None = None) -> Detections:
    return {
        "boxes": torch.tensor(boxes).float().view(-1, 4),
        "scores": torch.tensor(scores),
        "labels": torch.tensor(labels or [0] * len(scores)),
    }


A, B = [0.0, 0, 100, 100], [200.0, 0, 300, 100]
TWO = Objects.from_lists([A, B], [0, 0], [False, False])


def test_wrong_box_between_two_right_ones() -> None:
    """Precision 1 up to a recall of one half (51 of 101 points), 2/3 from there on (50 points)."""
    answer = detections([A, [400, 0, 500, 100], B], [0.9, 0.8, 0.7])
    expected = 100 * (51 + 50 * 2 / 3) / 101
    assert precision([answer], [TWO]) == pytest.approx({"mAP": expected, "AP50": expected, "AP75": expected})


def test_box_that_overlaps_by_62_percent() -> None:
    """Right at 0.5, 0.55 and 0.6, wrong at the seven thresholds above, where recall ends at one half."""
    answer = detections([A, [200, 0, 262, 100]], [0.9, 0.8])
    half = 100 * 51 / 101
    expected = {"mAP": (3 * 100 + 7 * half) / 10, "AP50": 100.0, "AP75": half}
    assert precision([answer], [TWO]) == pytest.approx(expected)


def test_second_box_on_one_object_is_wrong() -> None:
    answer = detections([A, A, B], [0.9, 0.8, 0.7])
    assert precision([answer], [TWO])["AP50"] == pytest.approx(100 * (51 + 50 * 2 / 3) / 101)


def test_detections_of_ignored_objects_do_not_count() -> None:
    difficult = Objects.from_lists([A, B], [0, 0], [False, True])
    assert precision([detections([A], [0.9])], [difficult])["AP50"] == 100
    assert precision([detections([B, A], [0.9, 0.8])], [difficult])["AP50"] == 100
    assert precision([detections([B, A], [0.9, 0.8])], [Objects.from_lists([A], [0], [False])])[
        "AP50"
    ] == pytest.approx(50)


def test_right_box_of_the_wrong_class_is_wrong() -> None:
    assert precision([detections([A, B], [0.9, 0.8], [1, 1])], [TWO])["AP50"] == 0


def test_precision_without_detections_or_objects_is_zero() -> None:
    assert precision([detections([], [])], [TWO]) == {"mAP": 0, "AP50": 0, "AP75": 0}
    assert precision([detections([A], [0.9])], [Objects.from_lists([], [], [])]) == {"mAP": 0, "AP50": 0, "AP75": 0}


def random_boxes(count: int) -> Tensor:
    ends = torch.rand(count, 2, 2).mul(100).sort(dim=1).values
    return (ends + torch.tensor([[0.0, 0.0], [5.0, 5.0]])).flatten(1)


def scenes(images: int) -> tuple[list[Detections], list[Objects]]:
    """Some boxes close to the objects, some anywhere, some of another class; some objects are to be ignored."""
    answers, objects = [], []
    for _ in range(images):
        boxes, labels = random_boxes(6), torch.randint(3, (6,))
        objects.append(Objects(boxes, labels, torch.rand(6) < 0.2))
        near = boxes + torch.randn(6, 4) * 3
        near[:, 2:] = torch.maximum(near[:, 2:], near[:, :2] + 1)
        answers.append(
            {"boxes": torch.cat([near, random_boxes(6)]), "scores": torch.rand(12), "labels": labels.repeat(2)}
        )
    return answers, objects


def oracle(answers: list[Detections], objects: list[Objects]) -> list[float]:
    """pycocotools' own summary of the same boxes."""
    pytest.importorskip("pycocotools")
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    def sides(boxes: Tensor) -> list[list[float]]:
        return torch.cat([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]], dim=1).tolist()

    truth = COCO()
    annotations = [
        {"image_id": image, "bbox": box, "area": box[2] * box[3], "category_id": label, "iscrowd": int(crowd)}
        for image, shown in enumerate(objects)
        for box, label, crowd in zip(sides(shown.boxes), shown.labels.tolist(), shown.ignored.tolist(), strict=True)
    ]
    truth.dataset = {
        "images": [{"id": image} for image in range(len(objects))],
        "categories": [{"id": label} for label in range(3)],
        "annotations": [{"id": number + 1, **annotation} for number, annotation in enumerate(annotations)],
    }
    results = [
        {"image_id": image, "bbox": box, "score": score, "category_id": label}
        for image, answer in enumerate(answers)
        for box, score, label in zip(
            sides(answer["boxes"]), answer["scores"].tolist(), answer["labels"].tolist(), strict=True
        )
    ]
    with contextlib.redirect_stdout(io.StringIO()):
        truth.createIndex()
        evaluation = COCOeval(truth, truth.loadRes(results), "bbox")
        evaluation.evaluate()
        evaluation.accumulate()
        evaluation.summarize()
    return [100 * float(value) for value in evaluation.stats[:3]]


@pytest.mark.parametrize("ignoring", [False, True])
def test_precision_equals_pycocotools(ignoring: bool) -> None:
    answers, objects = scenes(20)
    if not ignoring:
        objects = [Objects(o.boxes, o.labels, torch.zeros_like(o.ignored)) for o in objects]
    ours = precision(answers, objects)
    assert 20 < ours["AP50"] < 95
    # with crowds torchmetrics differs in the third decimal, with pycocotools as its backend too
    assert list(ours.values()) == pytest.approx(oracle(answers, objects), abs=0.01 if ignoring else 1e-4)


# --- VOC's measure of 2007


def voc07(answers: list[Detections], objects: list[Objects]) -> dict[str, float]:
    metric = Voc07Precision()
    metric.update(answers, objects)
    return metric.compute()


def test_voc07_worked_out_by_hand() -> None:
    """Precision is 1 at a recall of one half and 2/3 at 1: six of the 11 recalls (0 to 0.5) have 1, five have 2/3."""
    answer = detections([A, [400, 0, 500, 100], B], [0.9, 0.8, 0.7])
    expected = 100 * (6 + 5 * 2 / 3) / 11
    assert voc07([answer], [TWO]) == pytest.approx(dict.fromkeys(VOC_VALUES, expected))


def test_voc07_of_a_box_that_overlaps_by_62_percent() -> None:
    """Right at 0.5, 0.55 and 0.6; at the seven thresholds above, recall ends at one half."""
    answer = detections([A, [200, 0, 262, 100]], [0.9, 0.8])
    half = 100 * 6 / 11
    expected = {"voc07_mAP": (3 * 100 + 7 * half) / 10, "voc07_AP50": 100.0, "voc07_AP75": half}
    assert voc07([answer], [TWO]) == pytest.approx(expected)


def test_voc07_second_box_goes_to_no_other_object() -> None:
    """The second box overlaps B and C alike: it is B's, which is taken; COCO gives it C."""
    c = [250.0, 0, 350, 100]
    close = Objects.from_lists([B, c], [0, 0], [False, False])
    answer = detections([B, [225, 0, 325, 100]], [0.9, 0.8])  # of IoU 75 / 125 with both: the first is taken
    assert voc07([answer], [close])["voc07_AP50"] == pytest.approx(100 * 6 / 11)
    assert precision([answer], [close])["AP50"] == pytest.approx(100)


def test_voc07_leaves_out_difficult_objects() -> None:
    difficult = Objects.from_lists([A, B], [0, 0], [False, True])
    assert voc07([detections([B, B, A], [0.9, 0.8, 0.7])], [difficult])["voc07_AP50"] == pytest.approx(100)
    alone = Objects.from_lists([A], [0], [False])
    assert voc07([detections([B, B, A], [0.9, 0.8, 0.7])], [alone])["voc07_AP50"] == pytest.approx(100 / 3)


def test_voc07_without_detections_or_objects_is_zero() -> None:
    nothing = Objects.from_lists([], [], [])
    assert voc07([detections([], [])], [TWO]) == dict.fromkeys(VOC_VALUES, 0)
    assert voc07([detections([A], [0.9])], [nothing]) == dict.fromkeys(VOC_VALUES, 0)
    assert voc07([], []) == dict.fromkeys(VOC_VALUES, 0)


def devkit(answers: list[Detections], objects: list[Objects], label: int, least: float) -> float:
    """The text of VOCevaldet.m, line by line, in VOC's coordinates: pixels counted from 1, both ends included."""
    listed = [
        (float(answer["scores"][k]), image, [float(x) + (1 if side < 2 else 0) for side, x in enumerate(box)])
        for image, answer in enumerate(answers)
        for k, box in enumerate(answer["boxes"].tolist())
        if int(answer["labels"][k]) == label
    ]
    listed.sort(key=lambda item: -item[0])
    truth: dict[int, list[dict[str, Any]]] = {
        image: [
            {"box": [b[0] + 1, b[1] + 1, b[2], b[3]], "difficult": bool(skip), "detected": False}
            for b, own, skip in zip(o.boxes.tolist(), o.labels.tolist(), o.ignored.tolist(), strict=True)
            if own == label
        ]
        for image, o in enumerate(objects)
    }
    positives = sum(not item["difficult"] for items in truth.values() for item in items)
    right = wrong = 0
    curve = []
    for _, image, bb in listed:
        best, chosen = float("-inf"), None
        for item in truth[image]:
            bbgt = item["box"]
            width = min(bb[2], bbgt[2]) - max(bb[0], bbgt[0]) + 1
            height = min(bb[3], bbgt[3]) - max(bb[1], bbgt[1]) + 1
            if width > 0 and height > 0:
                union = (bb[2] - bb[0] + 1) * (bb[3] - bb[1] + 1) + (bbgt[2] - bbgt[0] + 1) * (bbgt[3] - bbgt[1] + 1)
                overlap = width * height / (union - width * height)
                if overlap > best:
                    best, chosen = overlap, item
        if chosen is not None and best >= least:
            if not chosen["difficult"]:
                if not chosen["detected"]:
                    right += 1
                    chosen["detected"] = True
                else:
                    wrong += 1
        else:
            wrong += 1
        if right + wrong:
            curve.append((right / positives, right / (right + wrong)))
    tenths = [max((p for recall, p in curve if recall >= tenth / 10), default=0.0) for tenth in range(11)]
    return sum(tenths) / 11


@pytest.mark.parametrize(("least", "name"), [(0.5, "voc07_AP50"), (0.75, "voc07_AP75")])
def test_voc07_equals_the_text_of_the_devkit(least: float, name: str) -> None:
    answers, objects = scenes(20)
    labels = sorted({int(label) for o in objects for label in o.labels[~o.ignored]})
    expected = 100 * sum(devkit(answers, objects, label, least) for label in labels) / len(labels)
    assert 5 < expected < 95
    assert voc07(answers, objects)[name] == pytest.approx(expected)


class Oracle(nn.Module):
    """Returns the objects of known images, which it recognizes by their mean."""

    def __init__(self, known: dict[float, Objects]) -> None:
        super().__init__()
        self.known = known
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, images: list[Tensor]) -> list[Detections]:
        assert not self.training
        shown = [self.known[round(float(image.mean()), 4)] for image in images]
        return [{"boxes": o.boxes, "labels": o.labels + 1, "scores": torch.ones(len(o.labels))} for o in shown]


@pytest.mark.parametrize("batch_size", [1, 2, 4])
def test_perfect_detector_has_full_precision_and_keeps_its_mode(batch_size: int) -> None:
    images = torch.stack([torch.full((3, 40, 60), value, dtype=torch.uint8) for value in (0, 51, 102, 153, 204)])
    objects = tuple(Objects.from_lists([[5, 5, 20 + i, 30]], [i % 2], [False]) for i in range(5))
    detector = Oracle({round(value / 255, 4): o for value, o in zip((0, 51, 102, 153, 204), objects, strict=True)})
    data = DetectionSet(("cat", "dog"), objects, images=images)
    evaluation = evaluate_detector(detector.train(), data, batch_size=batch_size)
    assert evaluation.values == pytest.approx(dict.fromkeys((*COCO_VALUES, *VOC_VALUES), 100))
    assert detector.training
    assert evaluation.pictures["detections"]().size[0] > 900


def test_picture_shows_confident_detections_and_the_best() -> None:
    image, shown = torch.zeros(3, 240, 240, dtype=torch.uint8), Objects.from_lists([[10, 100, 100, 200]], [0], [False])
    boxes = [[20.0, 110, 90, 190], [120.0, 110, 200, 190]]
    answers = [detections(boxes, [0.9, 0.8], [0, 1]), detections(boxes, [0.3, 0.4], [0, 1]), detections([], [])]
    red_and_orange = [(255, 92, 92), (255, 176, 0)]
    seen = []
    for answer in answers:
        picture = draw_detections([image], [answer], [shown], ["cat", "dog"])
        colors = {color for _, color in picture.getcolors(2**16) or ()}
        seen.append([color in colors for color in red_and_orange])
    assert seen == [[True, True], [False, True], [False, False]]
