"""How good the boxes are: average precision as COCO defines it, by torchmetrics.

A detection is right if it overlaps an object of its class that no better detection has taken, by an IoU of at least t.
Over all detections of a class, best score first, this gives precision as a function of recall; made monotone, its mean
at the recalls 0, 0.01, ..., 1 is the class's AP at t, and the mean over classes that occur is reported:
`AP50` at t = 0.5, `AP75` at t = 0.75, `mAP` as the mean over t = 0.5, 0.55, ..., 0.95. An image's 100 best boxes count.

Objects to ignore (VOC's difficult ones, COCO's crowds) are given as COCO's crowds: a detection that lies on one, and
on no other object, is neither right nor wrong. VOC's own program differs: for 2007 it takes 11 recalls instead of 101,
and a difficult object is met by IoU, not by the share of the detection that lies in it.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.networks.modes import eval_mode
from automix.studies.detection.data import DetectionSet, Objects
from automix.studies.detection.pictures import draw_detections

BATCH = 4
SHOWN = 8  # images on the picture

Found = dict[str, Tensor]  # boxes (M, 4), labels (M,) from 0, scores (M,)


def evaluate_detector(
    detector: nn.Module, data: DetectionSet, *, batch_size: int = BATCH, track: Track = no_progress
) -> EvaluationResult:
    """mAP, AP50 and AP75 in percent over all images of `data`, and a picture of the first detections."""
    metric = new_metric()
    shown: list[Found] = []
    starts = range(0, len(data), batch_size)
    with eval_mode(detector):
        for start in track(starts, len(starts), "detecting objects"):
            positions = range(start, min(start + batch_size, len(data)))
            found = detect(detector, [data.read(i) for i in positions])
            add(metric, found, [data.objects[i] for i in positions])
            shown += found[: SHOWN - len(shown)]

    def picture() -> Any:
        images = [data.read(i) for i in range(len(shown))]
        return draw_detections(images, shown, data.objects[: len(shown)], data.classes)

    return EvaluationResult(summarize(metric), {"detections": picture})


@torch.no_grad()
def detect(detector: nn.Module, images: Sequence[Tensor]) -> list[Found]:
    """What the detector, in evaluation mode, finds on images (3, H, W) uint8."""
    device = next(detector.parameters()).device
    answers = detector([image.to(device) / 255 for image in images])
    return [
        {**{name: v.cpu() for name, v in answer.items()}, "labels": answer["labels"].cpu() - 1} for answer in answers
    ]


def new_metric() -> Any:
    try:
        from torchmetrics.detection import MeanAveragePrecision

        return MeanAveragePrecision(backend="faster_coco_eval")
    except ImportError:
        needed = "pip install 'automix[evaluate]'"
        raise ValueError(f"average precision needs torchmetrics and faster-coco-eval: {needed}") from None


def add(metric: Any, found: Sequence[Found], objects: Sequence[Objects]) -> None:
    expected = [{"boxes": o.boxes, "labels": o.labels, "iscrowd": o.ignored.long()} for o in objects]
    metric.update(list(found), expected)


def summarize(metric: Any) -> dict[str, float]:
    """The three numbers in percent; 0 where there was no object to find."""
    values = metric.compute()
    names = {"mAP": "map", "AP50": "map_50", "AP75": "map_75"}
    return {ours: 100 * max(0.0, float(values[theirs])) for ours, theirs in names.items()}
