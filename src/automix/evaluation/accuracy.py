"""Accuracy on the test images: top-1, top-5 and the mean over classes, and what is wrong.

top1, top1_low, top1_high
    Percent of the images whose label has the highest logit, and its 95 % interval (Wilson, 1927).
top5
    Percent of the images whose label is among the five highest logits. With five classes or fewer it is always 100.
mean_class_accuracy
    Top-1 of each class, averaged over the classes that have images: the mean per-class recall, which scikit-learn
    calls balanced accuracy. torchmetrics' macro average counts a class without images as 0 if it was ever predicted.

The accuracy of several runs, as papers report it, is computed in `automix.runs.protocol`.
"""

from collections.abc import Callable
from functools import partial

import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.accuracy import accuracy_interval, topk_accuracy, topk_correct
from automix.evaluation.mistakes import MATRIX_CLASSES, draw_confident_errors, draw_confusion_matrix, draw_confusions
from automix.evaluation.plots import BLUE, GRAY, as_image, new_figure, shorten
from automix.evaluation.predictions import Predictions, predict_unless_given
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples

MAX_BARS = 20  # classes in the picture
MAX_NAME = 28  # characters of a class name in the picture


def evaluate_accuracy(
    model: nn.Module,
    samples: Samples,
    *,
    predictions: Predictions | None = None,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> EvaluationResult:
    """Measure top-1, top-5 and mean per-class accuracy.

    Args:
        model: Classifier from pixels in [0, 1] to logits.
        samples: Test images.
        predictions: Result of `predict_logits` on the same images, to share one pass between evaluators.
        batch_size: Images per forward pass.
        track: Progress display, such as `progress_bar`.

    Returns:
        ``top1`` with its interval (``top1_low``, ``top1_high``), ``top5`` and ``mean_class_accuracy`` in percent. The
        pictures show the worst classes, the worst confusions, the most confident errors and, with up to 40 classes, the
        confusion matrix.
    """
    logits, labels = predict_unless_given(predictions, model, samples, batch_size=batch_size, track=track)
    predicted = logits.argmax(dim=1)
    by_class = per_class_accuracy(predicted, labels, len(samples.classes))
    present = by_class[~by_class.isnan()]
    top1 = topk_accuracy(logits, labels, 1)
    low, high = accuracy_interval(top1, len(labels))
    values = {
        "top1": top1,
        "top1_low": low,
        "top1_high": high,
        "top5": topk_accuracy(logits, labels, 5),
        "mean_class_accuracy": present.mean().item(),
    }
    notes = []
    if len(samples.classes) <= 5:
        notes.append(f"top5 is 100 by definition: there are {len(samples.classes)} classes")
    if len(present) < len(by_class):
        notes.append(f"{len(by_class) - len(present)} of {len(by_class)} classes have no images and do not count")
    pictures: dict[str, Callable[[], Image.Image]]
    pictures = {"accuracy-by-class": partial(draw_worst_classes, predicted, labels, samples.classes)}
    if not topk_correct(logits, labels)[0].all():
        pictures["confusions"] = partial(draw_confusions, logits, labels, samples)
        pictures["confident-errors"] = partial(draw_confident_errors, logits, labels, samples)
    if len(samples.classes) <= MATRIX_CLASSES:
        pictures["confusion-matrix"] = partial(draw_confusion_matrix, logits, labels, samples.classes)
    return EvaluationResult(values, pictures, tuple(notes))


def per_class_accuracy(predicted: Tensor, labels: Tensor, num_classes: int) -> Tensor:
    """Percent of each class's images that were predicted as it, (C,) float64; NaN for a class without images."""
    correct = labels[predicted == labels]
    return 100 * torch.bincount(correct, minlength=num_classes).double() / torch.bincount(labels, minlength=num_classes)


def most_frequent_error(predicted: Tensor, label: int) -> tuple[int, float]:
    """The wrong class that images of class `label` are most often predicted as, and their share in percent.

    `predicted` are the predictions for the images of that class. The share is 0 if none is wrong.
    """
    counts = torch.bincount(predicted, minlength=label + 1)
    counts[label] = 0
    return int(counts.argmax()), 100 * int(counts.max()) / len(predicted)


def draw_worst_classes(predicted: Tensor, labels: Tensor, classes: tuple[str, ...]) -> Image.Image:
    """Draw the accuracy of the worst classes as bars, with the class each is most often mistaken for."""
    by_class = per_class_accuracy(predicted, labels, len(classes))
    present = int((~by_class.isnan()).sum())
    worst = by_class.argsort(stable=True)[: min(MAX_BARS, present)].tolist()  # NaN comes last
    figure, axes = new_figure(9, 1.1 + 0.24 * len(worst))
    places = range(len(worst))
    axes.barh(places, by_class[worst].numpy(), color=BLUE)
    axes.axvline(by_class.nanmean().item(), color=GRAY, linestyle="--")
    axes.set_yticks(places, [shorten(classes[label], MAX_NAME) for label in worst])
    axes.set(xlim=(0, 100), ylim=(len(worst) - 0.4, -0.6), xlabel="top-1 accuracy, % (dashed: mean of all classes)")
    errors = axes.secondary_yaxis("right")
    errors.set_yticks(places, [_describe_error(predicted[labels == label], label, classes) for label in worst])
    errors.tick_params(length=0)
    heading = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom", "color": GRAY}
    axes.annotate("most often mistaken for", (1, 1), (6, 3), ha="left", **heading)
    axes.annotate("class", (0, 1), (-6, 3), ha="right", **heading)
    for side in (axes.spines["top"], axes.spines["right"], errors.spines["right"]):
        side.set_visible(False)
    some = f"the {len(worst)} worst of {present:,} classes" if len(worst) < present else f"all {present} classes"
    figure.suptitle(f"Accuracy by class, {some}", fontsize=11)
    return as_image(figure)


def _describe_error(predicted: Tensor, label: int, classes: tuple[str, ...]) -> str:
    wrong, share = most_frequent_error(predicted, label)
    return f"{share:.0f} %  {shorten(classes[wrong], MAX_NAME)}" if share else "never wrong"
