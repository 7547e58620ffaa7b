"""Localization: MaxBoxAccV2 of a classifier's class activation maps (Choe et al., 2020).

The map of the TRUE class is enlarged to the image (bicubic), scaled to [0, 1] by its own extremes and rounded down to
8 bits. At threshold t, the pixels above t form connected regions (corners connect), and each region has a smallest
box. With the true box B, an image is localized if the best of these boxes reaches an intersection over union:

    BoxAcc(t, d) = share of images with max over regions R of IoU(box(R), B) >= d
    MaxBoxAccV2  = mean over d in 0.3, 0.5, 0.7 of (max over t of BoxAcc(t, d))

The best threshold is chosen on the evaluated images, for each d by itself: the number says how well the maps COULD
localize. The class is given, so classification plays no part. `top1_loc` requires both: the predicted class is the true
one, and an IoU of 0.5 is reached at the best threshold for 0.5.

Compared with the authors' code: enlarging, scaling and 8 bits are theirs, and their 1,000 thresholds fall onto the 255
used here (t / 255 for t from 0 to 254). Three details differ. They also try boxes around holes in a region. Their boxes
of regions that do not touch the border are one pixel wider and higher; ours are exact. They squeeze images into a
square (bilinear; bicubic here), as ``squeeze=True`` does; by default the center is cropped, as in all other
evaluations, and an image whose box is cropped away entirely is left out.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.accuracy import topk_correct
from automix.core.errors import AutomixError
from automix.core.validation import check_choice, check_whole
from automix.data.image_set import ImageSet
from automix.evaluation.heatmaps import METHODS, class_maps, resize_maps
from automix.evaluation.plots import BLUE, GREEN, ORANGE, as_image, new_figure
from automix.evaluation.predictions import check_predictions
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.regions import LEVELS, best_boxes, best_ious
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples, to_float
from automix.evaluation.tiles import draw_boxes, overlay_maps, to_tile_size
from automix.networks.modes import eval_mode
from automix.pictures.grid import Tile, tile_grid, to_image

DELTAS = (0.3, 0.5, 0.7)
EXAMPLES = 8  # images in the panel
TRUE_BOX, BEST_BOX = "#20d040", "#ff3030"


def evaluate_localization(
    model: nn.Module,
    samples: Samples,
    *,
    method: str = "cam",
    layer: int | str = 4,
    squeeze: bool = False,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> EvaluationResult:
    """Measure MaxBoxAccV2 and the top-1 localization accuracy.

    Args:
        model: Classifier from pixels in [0, 1] to logits.
        samples: Test images with boxes (datasets cub200, pets, tiny-imagenet, shapes).
        method: ``"cam"``, or ``"grad_cam"`` for networks without CAM.
        layer: Grad-CAM's layer: a stage 1 to 4, or the name of a submodule.
        squeeze: Squeeze images into a square instead of cropping the center, as Choe et al. do.
        batch_size: Images per forward pass.
        track: Progress display, such as `progress_bar`.

    Returns:
        ``max_box_acc``, ``max_box_acc_30``, ``_50``, ``_70`` and ``top1_loc`` in percent; pictures of the accuracy
        over the threshold, and of examples.
    """
    check_choice("method", method, METHODS)
    check_whole("batch_size", batch_size, 1)
    if not samples.has_boxes:
        raise AutomixError("samples must have boxes; datasets with boxes are cub200, pets, tiny-imagenet, shapes")
    _check_model(model, samples)
    samples = replace(samples.with_boxes(), squeeze=squeeze or samples.squeeze)
    localize = partial(_localize, model, method=method, layer=layer)
    counts = _Counts()
    total = math.ceil(len(samples) / batch_size)
    for part in track(samples.parts(batch_size), total, "localization"):
        batch = localize(part)
        if len(batch.boxes):
            counts.add(best_ious(batch.maps, batch.boxes), batch.correct)
        counts.left_out += len(part) - len(batch.boxes)
    if counts.images == 0:
        raise AutomixError("samples must have a box inside at least 1 image, got 0")
    examples = localize(next(samples.first(EXAMPLES).parts(EXAMPLES)))
    pictures: dict[str, Callable[[], Image.Image]] = {"localization_curve": partial(draw_curve, counts.accuracy())}
    if len(examples.boxes):
        level = int(counts.accuracy()[1].argmax())
        pictures["localization_panel"] = partial(draw_panel, examples, samples.classes, level)
    return EvaluationResult(counts.values(), pictures, counts.notes())


# --- one pass over the images ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalizedBatch:
    """Images (uint8) with a true box, their maps (N, H, W) in [0, 1], and whether the predicted class is correct."""

    images: Tensor
    labels: Tensor
    boxes: Tensor
    maps: Tensor
    correct: Tensor


def _check_model(model: nn.Module, samples: Samples) -> None:
    """Check on one image, before all the others, that the model has the classes of the samples."""
    x, y = next(iter(samples.batches(1, next(model.parameters()).device)))
    with eval_mode(model), torch.no_grad():
        check_predictions((model(x), y), len(samples.classes))


def _localize(model: nn.Module, part: ImageSet, method: str, layer: int | str) -> LocalizedBatch:
    """The maps of the images of `part` whose box has an area."""
    if part.boxes is None:
        raise AutomixError("samples must have boxes for all images; some have none")
    kept = (part.boxes[:, 2:] > part.boxes[:, :2]).all(dim=1)
    images, labels, boxes = part.images[kept], part.labels[kept], part.boxes[kept]
    if len(images) == 0:
        return LocalizedBatch(images, labels, boxes, images[:, 0].float(), labels.bool())
    x = to_float(images, next(model.parameters()).device)
    maps, logits = class_maps(model, x, labels.unsqueeze(1), method, layer)
    correct = topk_correct(logits.cpu(), labels)[0]
    return LocalizedBatch(images, labels, boxes, resize_maps(maps[:, 0], (x.shape[2], x.shape[3])).cpu(), correct)


class _Counts:
    """How many images are localized at each threshold."""

    def __init__(self) -> None:
        self.images = self.left_out = 0
        self.localized = torch.zeros(len(DELTAS), LEVELS, dtype=torch.long)
        self.localized_and_correct = torch.zeros(LEVELS, dtype=torch.long)

    def add(self, ious: Tensor, correct: Tensor) -> None:
        localized = torch.stack([ious >= delta for delta in DELTAS])
        self.images += len(ious)
        self.localized += localized.sum(dim=1)
        self.localized_and_correct += (localized[1] & correct.unsqueeze(1)).sum(dim=0)

    def accuracy(self) -> Tensor:
        """Percent, (3, 255)."""
        return 100 * self.localized.double() / self.images

    def values(self) -> dict[str, float]:
        best = self.accuracy().amax(dim=1)
        both = self.localized_and_correct[self.localized[1].argmax()]
        parts = {f"max_box_acc_{round(100 * delta)}": float(acc) for delta, acc in zip(DELTAS, best, strict=True)}
        return {"max_box_acc": float(best.mean()), **parts, "top1_loc": 100 * float(both) / self.images}

    def notes(self) -> tuple[str, ...]:
        best = self.accuracy().argmax(dim=1) / LEVELS
        named = ", ".join(f"{t:.2f} for IoU {delta}" for t, delta in zip(best.tolist(), DELTAS, strict=True))
        notes = [f"maps of the true class, best thresholds chosen on these {self.images} images: {named}"]
        if self.left_out:
            total = self.images + self.left_out
            notes.append(f"left out: {self.left_out} of {total} images, whose boxes are cropped away")
        return tuple(notes)


# --- pictures --------------------------------------------------------------------------------------------------------


def draw_curve(accuracy: Tensor) -> Image.Image:
    """Draw the accuracy (3, 255) over the threshold and mark the best thresholds."""
    figure, axes = new_figure(6.2, 3.8)
    thresholds = torch.arange(LEVELS) / LEVELS
    for curve, delta, color in zip(accuracy, DELTAS, (BLUE, ORANGE, GREEN), strict=True):
        best = int(curve.argmax())
        axes.plot(thresholds, curve, color=color, label=f"IoU >= {delta}: {curve[best]:.1f} % at {best / LEVELS:.2f}")
        axes.plot(thresholds[best], curve[best], "o", color=color, markersize=5)
    axes.set(xlim=(0, 1), ylim=(0, 100), xlabel="threshold on the map", ylabel="images localized, %")
    axes.set_title(f"MaxBoxAccV2 {accuracy.amax(dim=1).mean():.1f} %", fontsize=11)
    axes.grid(alpha=0.25)
    figure.legend(fontsize=8, ncols=3, loc="outside lower center", frameon=False)  # the curves fill the axes
    return as_image(figure)


def draw_panel(batch: LocalizedBatch, classes: tuple[str, ...], level: int) -> Image.Image:
    """Draw images and their heat maps, with the true box in green and the best one at `level` / 255 in red."""
    ious, best_box = (tensor[:, level] for tensor in best_boxes(batch.maps, batch.boxes))
    images, scale = to_tile_size(batch.images)
    overlays = overlay_maps(images, batch.maps)
    rows: list[list[Tile]] = [[], []]
    for number, label in enumerate(batch.labels.tolist()):
        true, best = (batch.boxes[number] * scale, TRUE_BOX), (best_box[number] * scale, BEST_BOX)
        rows[0].append(Tile(draw_boxes(to_image(images[number]), [true]), classes[label]))
        rows[1].append(Tile(draw_boxes(to_image(overlays[number]), [true, best]), f"IoU {ious[number]:.2f}"))
    note = f"green: the true box; red: the best box at threshold {level / LEVELS:.2f}, the best for IoU 0.5"
    return tile_grid(rows, ["image", "map of\nits class"], note=note)
