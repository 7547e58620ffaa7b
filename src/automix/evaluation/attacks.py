"""Robustness to adversarial attacks: the error after FGSM and PGD (see adversarial.py).

    error = 100 * (images predicted wrongly) / (all images)

Images that are wrong before any attack count as well: the column FGSM of the paper's Table 6. Others report the share
of the correct predictions that an attack changes ("success rate"), which is another number.

An attack is only as good as its gradient. A model without one is refused; a note warns if the gradient vanishes, or if
twenty steps do less than one (a sign of masked gradients: Carlini et al., 2019).
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.draws import step_generator
from automix.core.errors import AutomixError
from automix.core.validation import check_range, check_whole
from automix.evaluation.adversarial import EPS, STEPS, pgd_steps, pixel_gradient, project
from automix.evaluation.plots import GREEN, RED, as_image, new_figure, shorten
from automix.evaluation.predictions import Predictions, check_predictions, predict_unless_given
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples
from automix.networks.modes import eval_mode

COLUMNS = 6  # of the picture
MAX_NAME = 16  # characters of a class name below an image


@dataclass(frozen=True)
class Example:
    """An image before and after the attacks: `images` (3, 3, S, S) and `predicted`, each clean, FGSM, PGD."""

    label: int
    images: Tensor
    predicted: list[int]


def evaluate_attacks(
    model: nn.Module,
    samples: Samples,
    *,
    eps: float = EPS,
    steps: int = STEPS,
    seed: int = 0,
    predictions: Predictions | None = None,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> EvaluationResult:
    """Measure the error without an attack, after FGSM and after PGD.

    Args:
        model: Classifier from pixels in [0, 1] to logits, differentiable.
        samples: Test images.
        eps: Largest change of a pixel, in [0, 1].
        steps: Steps of PGD, each of ``eps / 4``.
        seed: Seed of PGD's random starts, which do not depend on the batch size.
        predictions: Result of `predict_logits` on the same images, to share one pass between evaluators.
        batch_size: Images attacked at once.
        track: Progress display, such as `progress_bar`.

    Returns:
        ``clean_error``, ``fgsm_error`` and ``pgd_error`` in percent of all images; the picture shows examples.
    """
    check_range("eps", eps, 0, 1)
    check_whole("steps", steps, 1)
    check_whole("batch_size", batch_size, 1)
    if len(samples) == 0:
        raise AutomixError("samples must have at least 1 image, got 0")
    # first: it checks that the model fits the data
    logits, _ = predict_unless_given(predictions, model, samples, batch_size=batch_size, track=no_progress)
    device = next(model.parameters()).device
    generator = step_generator(seed, 0, stream="pgd")
    wrong, without_gradient = torch.zeros(3, dtype=torch.int64), 0
    examples: list[Example] = []
    answers = iter(logits.argmax(dim=1).to(device).split(batch_size))
    progress = _attack(model, samples.batches(batch_size, device), eps, steps, generator)
    for batch in track(progress, steps * math.ceil(len(samples) / batch_size), "attacks"):
        if batch is None:  # PGD is on its way
            continue
        without_gradient += batch.without_gradient
        attacked = (_predict(model, images, batch.y, len(samples.classes)) for images in batch.images[1:])
        predicted = torch.stack([next(answers), *attacked])
        wrong += (predicted != batch.y).sum(dim=1).cpu()
        _add_examples(examples, batch.y, batch.images, predicted)
    shares = (100 * wrong.double() / len(samples)).tolist()
    values = dict(zip(("clean_error", "fgsm_error", "pgd_error"), shares, strict=True))
    return EvaluationResult(
        values,
        {"attacks": lambda: draw_examples(examples, samples.classes, values, eps, steps)},
        _notes(values, len(samples), without_gradient, eps, steps),
    )


@dataclass(frozen=True)
class _AttackedBatch:
    """Images (3, N, 3, S, S), clean, after FGSM and after PGD, and how many of them have no gradient."""

    y: Tensor
    images: Tensor
    without_gradient: int


def _attack(
    model: nn.Module, batches: Iterable[tuple[Tensor, Tensor]], eps: float, steps: int, generator: torch.Generator
) -> Iterator[_AttackedBatch | None]:
    """Attack batches: None after each step of PGD but the last, then the batch."""
    for x, y in batches:
        gradient = pixel_gradient(model, x, y)
        attacked = pgd_steps(model, x, y, eps, eps / 4, steps, generator)
        for _ in range(steps - 1):
            next(attacked)
            yield None
        images = torch.stack([x, project(x + eps * gradient.sign(), x, eps), next(attacked)])
        yield _AttackedBatch(y, images, int((gradient == 0).flatten(1).all(dim=1).sum()))


@torch.no_grad()
def _predict(model: nn.Module, x: Tensor, y: Tensor, num_classes: int) -> Tensor:
    with eval_mode(model):
        logits = model(x)
    check_predictions((logits, y), num_classes)
    return logits.argmax(dim=1)


def _add_examples(examples: list[Example], y: Tensor, images: Tensor, predicted: Tensor) -> None:
    """Add the first image of each class, up to COLUMNS of them."""
    for position, label in enumerate(y.tolist()):
        if len(examples) < COLUMNS and all(label != example.label for example in examples):
            examples.append(Example(label, images[:, position].cpu(), predicted[:, position].tolist()))


def _notes(values: dict[str, float], count: int, without_gradient: int, eps: float, steps: int) -> tuple[str, ...]:
    notes = [
        f"attacks within {_of_255(eps)} in l_inf, PGD with {steps} steps of {_of_255(eps / 4)}; errors are over all "
        f"{count} images, those that are wrong without an attack included"
    ]
    if without_gradient:
        notes.append(
            f"warning: the gradient is zero for {100 * without_gradient / count:.3g} % of the images (probabilities of "
            "exactly 1, or a step function): no attack finds them, and the errors under attack are too low"
        )
    if values["pgd_error"] < values["fgsm_error"]:
        notes.append(
            f"warning: {steps} steps (PGD) do less than one (FGSM), a sign of masked gradients (Carlini et al., 2019): "
            "the errors under attack are probably too low"
        )
    return tuple(notes)


def draw_examples(
    examples: list[Example], classes: tuple[str, ...], values: dict[str, float], eps: float, steps: int
) -> Image.Image:
    """Draw images, the change each attack makes, and the attacked images, each with the predicted class below."""
    attacked = {"FGSM": 1, f"PGD-{steps}": 2}
    width = max(1.15 * len(examples) + 1.2, 6.5)  # at least as wide as the title
    figure, axes = new_figure(width, 7.2, nrows=5, ncols=len(examples), squeeze=False)
    for column, example in zip(axes.T, examples, strict=True):
        clean = example.images[0]
        _show(column[0], clean)
        _label(column[0], example, 0, classes)
        for row, place in enumerate(attacked.values()):
            _show(column[2 * row + 1], 0.5 + (example.images[place] - clean) / (2 * eps or 1))
            _show(column[2 * row + 2], example.images[place])
            _label(column[2 * row + 2], example, place, classes)
    names = ["image", *(text for name in attacked for text in (f"{name}:\nchange", f"after\n{name}"))]
    for axis, name in zip(axes[:, 0], names, strict=True):
        axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
    errors = [f"{error:.1f} %" for error in values.values()]
    figure.suptitle(f"errors: {errors[0]}, after FGSM {errors[1]}, after PGD-{steps} {errors[2]}", fontsize=11)
    legend = f"change: gray is none, black and white are {_of_255(eps)}; green predictions are correct"
    figure.supxlabel(legend, fontsize=8)
    return as_image(figure)


def _show(axis: Any, image: Tensor) -> None:
    axis.imshow(image.float().clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])


def _label(axis: Any, example: Example, place: int, classes: tuple[str, ...]) -> None:
    predicted = example.predicted[place]
    name = shorten(classes[predicted], MAX_NAME)
    axis.set_xlabel(name, fontsize=8, color=GREEN if predicted == example.label else RED, labelpad=2)


def _of_255(distance: float) -> str:
    return f"{distance * 255:.3g}/255"
