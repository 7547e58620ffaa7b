"""Average precision by the program of the VOC challenge of 2007 (Everingham et al., 2010).

A detection belongs to the object of its class in its image that it overlaps most. At threshold t it is right if that
overlap is at least t and no better detection belongs to the same object; it is left out if that object is difficult,
and wrong otherwise. All detections of a class, best score first, give precision and recall, and

    AP = 1/11 * sum over r in 0, 0.1, ..., 1 of (the highest precision at a recall >= r)

The mean over the classes that occur is reported: `voc07_AP50` at t = 0.5, the challenge's own measure, `voc07_AP75` at
t = 0.75 and, as Detectron2 reports it, `voc07_mAP` as the mean over t = 0.5, 0.55, ..., 0.95. VOC counts the pixels of
a box with both ends; boxes here end before x1 and y1, so that an overlap is the same number. Detectron2 asks for an
overlap above t, VOC's program for at least t.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from automix.evaluation.regions import box_iou
from automix.studies.detection.data import Objects

THRESHOLDS = tuple(percent / 100 for percent in range(50, 100, 5))
RECALLS = tuple(tenth / 10 for tenth in range(11))


class Voc07Precision:
    """Collects detections image by image, and computes the average precisions of VOC 2007."""

    def __init__(self) -> None:
        self.images = 0
        self.found: list[
            Tensor
        ] = []  # of each detection: class, score, image, object, overlap, whether it is difficult
        self.objects: list[Tensor] = []  # classes of the objects that are not difficult

    def update(self, detections: Sequence[dict[str, Tensor]], objects: Sequence[Objects]) -> None:
        """Add the images of a batch.

        Args:
            detections: Of each image: ``boxes`` (M, 4), ``labels`` (M,) from 0 and ``scores`` (M,).
            objects: The annotated objects of each image.
        """
        for found, annotated in zip(detections, objects, strict=True):
            labels = found["labels"].cpu()
            overlaps = torch.zeros(len(labels), len(annotated.labels) + 1)  # the last one: no object
            if len(annotated.labels):
                overlaps[:, :-1] = box_iou(found["boxes"].cpu().float()[:, None], annotated.boxes[None])
                overlaps[:, :-1][labels[:, None] != annotated.labels[None]] = -1.0
            overlap, which = overlaps.max(dim=1)
            difficult = torch.cat([annotated.ignored, torch.tensor([False])])[which]
            image = torch.full_like(overlap, self.images)
            columns = (labels, found["scores"].cpu(), image, which, overlap, difficult)
            self.found.append(torch.stack([column.double() for column in columns], dim=1))
            self.objects.append(annotated.labels[~annotated.ignored])
            self.images += 1

    def compute(self) -> dict[str, float]:
        """Compute the three values in percent; 0 if there was no object at all."""
        classes = torch.cat(self.objects) if self.objects else torch.empty(0, dtype=torch.int64)
        found = torch.cat(self.found).numpy() if self.found else np.empty((0, 6))
        counts = {label: int((classes == label).sum()) for label in classes.unique().tolist()}
        of_class = {label: found[found[:, 0] == label] for label in counts}
        precisions = [
            sum(average_precision(of_class[label], counts[label], t) for label in counts) / max(1, len(counts))
            for t in THRESHOLDS
        ]
        at = dict(zip(THRESHOLDS, precisions, strict=True))
        values = {"voc07_mAP": sum(precisions) / len(precisions), "voc07_AP50": at[0.5], "voc07_AP75": at[0.75]}
        return {name: 100 * value for name, value in values.items()}


def average_precision(found: NDArray[np.float64], objects: int, threshold: float) -> float:
    """Compute the 11-point average precision of one class.

    Args:
        found: Its detections, with the columns of `Voc07Precision.found`.
        objects: How many objects there are, without difficult ones.
        threshold: The overlap that a right detection has at least.

    Returns:
        The average precision, from 0 to 1.
    """
    _, score, image, which, overlap, difficult = found[np.argsort(-found[:, 1], kind="stable")].T
    hits = overlap >= threshold
    right = np.zeros(len(score), dtype=bool)
    candidates = np.flatnonzero(hits & (difficult == 0))
    _, first = np.unique((image * (which.max(initial=0) + 1) + which)[candidates], return_index=True)
    right[candidates[first]] = True
    counted = ~(hits & (difficult == 1))
    right = right[counted].cumsum()
    precision, recall = right / np.arange(1, len(right) + 1), right / objects
    return float(np.mean([precision[recall >= r - 1e-9].max(initial=0.0) for r in RECALLS]))
