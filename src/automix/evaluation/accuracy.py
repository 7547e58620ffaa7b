"""Accuracy on the test images: top-1, top-5, and the mean over classes.

top1
    The share of images whose label has the highest logit.
top5
    The share of images whose label is among the five highest logits; among all of them where there are fewer than five
    classes, which is then 100 by definition.
mean_class_accuracy
    Top-1 of every class by itself, averaged over the classes that have images: classes count alike, however many images
    they have (the mean per-class recall; scikit-learn's balanced accuracy). torchmetrics' macro average counts a class
    without images as 0 where it is answered, and leaves it out otherwise.

One weight file, one number. What a paper reports of several runs is in protocol.py.
"""

from functools import partial

import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.accuracy import topk_accuracy
from automix.evaluation.plots import BLUE, GRAY, as_image, new_figure
from automix.evaluation.predictions import Predictions, answers_of
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples

SHOWN = 20  # classes in the picture
LONGEST_NAME = 28  # characters of a class in the picture


def evaluate_accuracy(
    model: nn.Module,
    samples: Samples,
    *,
    answers: Predictions | None = None,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> EvaluationResult:
    """Top-1, top-5 and mean per-class accuracy in percent; the picture shows the classes that are worst.

    Where `predict_logits` has run already, its `answers` spare a second pass.
    """
    logits, labels = answers_of(model, samples, answers, batch_size=batch_size, track=track)
    answered = logits.argmax(dim=1)
    by_class = per_class_accuracy(answered, labels, len(samples.classes))
    present = by_class[~by_class.isnan()]
    values = {
        "top1": topk_accuracy(logits, labels, 1),
        "top5": topk_accuracy(logits, labels, 5),
        "mean_class_accuracy": present.mean().item(),
    }
    notes = []
    if len(samples.classes) <= 5:
        notes.append(f"top5 is 100 by definition: there are {len(samples.classes)} classes")
    if len(present) < len(by_class):
        notes.append(f"{len(by_class) - len(present)} of {len(by_class)} classes have no images and count nowhere")
    picture = partial(draw_worst_classes, answered, labels, samples.classes)
    return EvaluationResult(values, {"accuracy-by-class": picture}, tuple(notes))


def per_class_accuracy(answered: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Of each class the images that were given it, in percent, (C,) float64; NaN for a class without images."""
    right = labels[answered == labels]
    return 100 * torch.bincount(right, minlength=classes).double() / torch.bincount(labels, minlength=classes)


def most_frequent_mistake(answered: Tensor, label: int) -> tuple[int, float]:
    """The wrong class that images of class `label` most often got, and their share in percent.

    `answered` are the classes given to the images of that class. Where none is wrong, the share is 0.
    """
    counts = torch.bincount(answered, minlength=label + 1)
    counts[label] = 0
    return int(counts.argmax()), 100 * int(counts.max()) / len(answered)


def draw_worst_classes(answered: Tensor, labels: Tensor, classes: tuple[str, ...]) -> Image.Image:
    """The accuracy of the worst classes as bars, worst on top, and what they are most often taken for."""
    by_class = per_class_accuracy(answered, labels, len(classes))
    present = int((~by_class.isnan()).sum())
    worst = by_class.argsort(stable=True)[: min(SHOWN, present)].tolist()  # NaN comes last
    figure, axes = new_figure(9, 1.1 + 0.24 * len(worst))
    places = range(len(worst))
    axes.barh(places, by_class[worst].numpy(), color=BLUE)
    axes.axvline(by_class.nanmean().item(), color=GRAY, linestyle="--")
    axes.set_yticks(places, [_short(classes[label]) for label in worst])
    axes.set(xlim=(0, 100), ylim=(len(worst) - 0.4, -0.6), xlabel="top-1 accuracy, % (dashed: mean of all classes)")
    mistakes = axes.secondary_yaxis("right")
    mistakes.set_yticks(places, [_mistake(answered[labels == label], label, classes) for label in worst])
    mistakes.tick_params(length=0)
    heading = {"xycoords": "axes fraction", "textcoords": "offset points", "va": "bottom", "color": GRAY}
    axes.annotate("most often taken for", (1, 1), (6, 3), ha="left", **heading)
    axes.annotate("class", (0, 1), (-6, 3), ha="right", **heading)
    for side in (axes.spines["top"], axes.spines["right"], mistakes.spines["right"]):
        side.set_visible(False)
    some = f"the {len(worst)} worst of {present:,} classes" if len(worst) < present else f"all {present} classes"
    figure.suptitle(f"Accuracy by class, {some}", fontsize=11)
    return as_image(figure)


def _mistake(answered: Tensor, label: int, classes: tuple[str, ...]) -> str:
    wrong, share = most_frequent_mistake(answered, label)
    return f"{share:.0f} %  {_short(classes[wrong])}" if share else "never wrong"


def _short(name: str) -> str:
    shown = name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"
    return shown.replace("$", r"\$")  # matplotlib would read a formula
