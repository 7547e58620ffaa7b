"""Average precision as COCO defines it, by torchmetrics; `voc07` has that of VOC beside it.

A detection is right if its IoU with an object of its class that no better detection has taken is at least t. All
detections of a class, best score first, give precision as a function of recall. Made monotone, its mean at the recalls
0, 0.01, ..., 1 is the class's AP at t. The mean over the classes that occur is reported: `AP50` at t = 0.5, `AP75` at
t = 0.75, `mAP` as the mean over t = 0.5, 0.55, ..., 0.95. The 100 best boxes of an image count.

Ignored objects (VOC's difficult ones, COCO's crowds) are passed on as COCO's crowds: a detection that lies on one, and
on no other object, is neither right nor wrong.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.networks.modes import eval_mode
from automix.studies.detection.data import DetectionSet, Objects
from automix.studies.detection.drawing import draw_detections
from automix.studies.detection.voc07 import Voc07Precision

BATCH = 4
SHOWN = 8  # images on the picture

Detections = dict[str, Tensor]
"""Of one image: boxes (M, 4), labels (M,) from 0, scores (M,)."""


def evaluate_detector(
    detector: nn.Module, data: DetectionSet, *, batch_size: int = BATCH, track: Track = no_progress
) -> EvaluationResult:
    """Measure mAP, AP50 and AP75 in percent over all images of a dataset, by COCO's and by VOC's rules.

    Args:
        detector: A detector, as from `create_detector` or `load_detector`. Its mode is restored afterwards.
        data: The test set.
        batch_size: Images in one forward pass.
        track: Shows the progress.

    Returns:
        ``mAP``, ``AP50`` and ``AP75`` of COCO, ``voc07_mAP``, ``voc07_AP50`` and ``voc07_AP75`` of VOC, and a picture
        of the first detections.
    """
    metric, voc07 = create_metric(), Voc07Precision()
    shown: list[Detections] = []
    starts = range(0, len(data), batch_size)
    with eval_mode(detector):
        for start in track(starts, len(starts), "detecting objects"):
            positions = range(start, min(start + batch_size, len(data)))
            detections = predict(detector, [data.read(i) for i in positions])
            objects = [data.objects[i] for i in positions]
            update_metric(metric, detections, objects)
            voc07.update(detections, objects)
            shown += detections[: SHOWN - len(shown)]

    def picture() -> Any:
        images = [data.read(i) for i in range(len(shown))]
        return draw_detections(images, shown, data.objects[: len(shown)], data.classes)

    return EvaluationResult({**compute_precision(metric), **voc07.compute()}, {"detections": picture})


@torch.no_grad()
def predict(detector: nn.Module, images: Sequence[Tensor]) -> list[Detections]:
    """Detect objects.

    Args:
        detector: A detector in eval mode.
        images: ``(3, H, W)`` uint8 each, of any size.

    Returns:
        The detections of each image, on the CPU.
    """
    device = next(detector.parameters()).device
    outputs = detector([image.to(device) / 255 for image in images])
    return [
        {**{name: v.cpu() for name, v in output.items()}, "labels": output["labels"].cpu() - 1} for output in outputs
    ]


def create_metric() -> Any:
    """Create torchmetrics' MeanAveragePrecision.

    Raises:
        AutomixError: If torchmetrics or faster-coco-eval is not installed.
    """
    try:
        from torchmetrics.detection import MeanAveragePrecision

        # one process evaluates all images, beside others that have ended
        return MeanAveragePrecision(backend="faster_coco_eval", sync_on_compute=False)
    except ImportError:
        needed = "pip install 'automix[evaluate]'"
        raise AutomixError(f"average precision needs torchmetrics and faster-coco-eval: {needed}") from None


def update_metric(metric: Any, detections: Sequence[Detections], objects: Sequence[Objects]) -> None:
    """Add the images of a batch to the metric.

    Args:
        metric: From `create_metric`.
        detections: The detections of each image.
        objects: The annotated objects of each image.
    """
    expected = [{"boxes": o.boxes, "labels": o.labels, "iscrowd": o.ignored.long()} for o in objects]
    metric.update(list(detections), expected)


def compute_precision(metric: Any) -> dict[str, float]:
    """Compute mAP, AP50 and AP75.

    Args:
        metric: From `create_metric`, updated with all images.

    Returns:
        The values in percent by name; 0 if there was no object at all.
    """
    values = metric.compute()
    names = {"mAP": "map", "AP50": "map_50", "AP75": "map_75"}
    return {ours: 100 * max(0.0, float(values[theirs])) for ours, theirs in names.items()}
