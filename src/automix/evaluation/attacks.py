"""Attacks that know the network: how often it errs when each pixel may be changed a little, in the worst direction.

Pixels are in [0, 1] and the normalization is inside the model, so `eps` is a distance between pixels: 8/255 is eight
gray levels of an 8-bit image. Within the ball of radius eps in l_inf around an image x of true class y,

    FGSM   (Goodfellow et al., 2015)   x' = clamp(x + eps * sign(g(x)), 0, 1)
    PGD-n  (Madry et al., 2018)        x_0 uniform in the ball, then n times
                                       x_t+1 = project(x_t + step * sign(g(x_t)))        step = eps / 4

with g(x) the gradient of the cross-entropy CE(x, y) with respect to the pixels, sign(0) = 0, and `project` the clamping
to [x - eps, x + eps] and to [0, 1]. PGD has one random start, and its last point counts, not the worst on the way.

    error = 100 * (images answered wrongly) / (all images)

counts images that are wrong before any attack as well: the column FGSM of the paper's Table 6. Others report the share
of those answered rightly that an attack turns ("success rate"), which is another number.

An attack can only be trusted as far as the gradient. Where there is none, the evaluation refuses; where it vanishes, or
where twenty steps do less than one (a sign of masked gradients: Carlini et al., 2019), a note says so.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.draws import draw_uniform, step_generator
from automix.core.validation import check_batch, check_classes, check_whole
from automix.evaluation.plots import GREEN, RED, as_image, new_figure
from automix.evaluation.predictions import check_predictions
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples
from automix.networks.modes import eval_mode

EPS = 8 / 255
STEP = 2 / 255
COLUMNS = 6  # of the picture
LONGEST = 16  # letters of a class's name below an image


# --- the attacks -----------------------------------------------------------------------------------------------------


def fgsm(model: nn.Module, x: Tensor, y: Tensor, eps: float = EPS) -> Tensor:
    """Images `x` in [0, 1] of classes `y`, each pixel moved by `eps` to where the loss grows."""
    _check_images(x, y)
    _check_eps(eps)
    return _project(x + eps * pixel_gradient(model, x, y).sign(), x, eps)


def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float = EPS,
    step: float = STEP,
    steps: int = 20,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Images `x` in [0, 1] of classes `y` after `steps` steps uphill from a random point of the ball.

    The start comes from `generator`; without one it is the same in every call.
    """
    _check_images(x, y)
    _check_eps(eps)
    check_whole("steps", steps, 1)
    if not 0 <= step < math.inf:
        raise ValueError(f"step={step}: accepted is a number >= 0")
    generator = step_generator(0, 0, stream="pgd") if generator is None else generator
    attacked = _project(x + eps * (2 * draw_uniform(x, x.shape, generator) - 1), x, eps)
    for _ in range(steps):
        attacked = _project(attacked + step * pixel_gradient(model, attacked, y).sign(), x, eps)
    return attacked


def pixel_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of each image's cross-entropy with respect to its pixels, in eval mode; nothing of `model` changes.

    Works wherever it is called, also below no_grad and inference_mode, and with frozen parameters.
    """
    if any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers())):
        raise ValueError("the model was built under torch.inference_mode: accepted is one built outside of it")
    with torch.inference_mode(False), torch.enable_grad(), eval_mode(model):
        # Copies: tensors of inference mode cannot take part in a gradient.
        pixels, y = x.detach().clone().requires_grad_(), y.clone()
        logits = at_least_float32(model(pixels))
        check_classes(y, logits.shape[1])
        # The sum, not the mean: an image's gradient does not depend on how many others there are.
        loss = F.cross_entropy(logits, y, reduction="sum")
        gradient = torch.autograd.grad(loss, pixels, allow_unused=True)[0] if loss.requires_grad else None
    if gradient is None:
        raise ValueError(
            "the model's answers have no gradient with respect to the pixels (no_grad, detach or whole numbers on the "
            "way): accepted is a model that is differentiable from pixels to logits"
        )
    finite = gradient.flatten(1).isfinite().all(dim=1)
    if not finite.all():
        raise ValueError(
            f"the gradient with respect to the pixels is not finite for {int((~finite).sum())} of {len(x)} images: "
            "accepted is a model with finite answers and gradients"
        )
    return gradient


def _project(attacked: Tensor, x: Tensor, eps: float) -> Tensor:
    """The nearest point that is in the ball around `x` and an image."""
    return torch.minimum(torch.maximum(attacked, x - eps), x + eps).clamp(0, 1)


def _check_images(x: Tensor, y: Tensor) -> None:
    check_batch(x, y)
    if y.ndim != 1:
        raise ValueError(f"y has shape {tuple(y.shape)}: accepted are class indices ({len(x)},)")
    low, high = (float(bound) for bound in torch.aminmax(x))
    if not (low >= 0 and high <= 1):
        raise ValueError(
            f"x reaches from {low:.3g} to {high:.3g}: accepted are pixels in [0, 1], normalized inside the model"
        )


def _check_eps(eps: float) -> None:
    if not 0 <= eps <= 1:
        raise ValueError(f"eps={eps}: accepted is a number from 0 to 1 on the scale of pixels in [0, 1], such as 8/255")


# --- the evaluation --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Example:
    """An image, and what the attacks made of it: `images` (3, 3, S, S) and `answers`, each clean, FGSM, PGD."""

    label: int
    images: Tensor
    answers: list[int]


def evaluate_attacks(
    model: nn.Module,
    samples: Samples,
    *,
    eps: float = EPS,
    steps: int = 20,
    seed: int = 0,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> EvaluationResult:
    """Errors in percent of all images: clean, after FGSM, and after PGD with `steps` steps of a quarter of `eps`.

    `seed` is for the random starts of PGD, which do not depend on the size of the batches.
    """
    _check_eps(eps)
    check_whole("steps", steps, 1)
    check_whole("batch_size", batch_size, 1)
    if len(samples) == 0:
        raise ValueError("no images: accepted are samples of one or more")
    device = next(model.parameters()).device
    generator = step_generator(seed, 0, stream="pgd")
    wrong, without_gradient = torch.zeros(3, dtype=torch.int64), 0
    examples: list[Example] = []
    batches = samples.batches(batch_size, device)
    for x, y in track(batches, math.ceil(len(samples) / batch_size), "attacks"):
        clean = _answers(model, x, y, len(samples.classes))  # first: it says whether the model fits the data
        gradient = pixel_gradient(model, x, y)
        without_gradient += int((gradient == 0).flatten(1).all(dim=1).sum())
        attacked = [_project(x + eps * gradient.sign(), x, eps), pgd(model, x, y, eps, eps / 4, steps, generator)]
        answers = torch.stack([clean, *(_answers(model, images, y, len(samples.classes)) for images in attacked)])
        wrong += (answers != y).sum(dim=1).cpu()
        _add_examples(examples, y, torch.stack([x, *attacked]), answers)
    shares = (100 * wrong.double() / len(samples)).tolist()
    values = dict(zip(("clean_error", "fgsm_error", "pgd_error"), shares, strict=True))
    return EvaluationResult(
        values,
        {"attacks": lambda: draw_examples(examples, samples.classes, values, eps, steps)},
        _notes(values, len(samples), without_gradient, eps, steps),
    )


@torch.no_grad()
def _answers(model: nn.Module, x: Tensor, y: Tensor, classes: int) -> Tensor:
    with eval_mode(model):
        logits = model(x)
    check_predictions((logits, y), classes)
    return logits.argmax(dim=1)


def _add_examples(examples: list[Example], y: Tensor, images: Tensor, answers: Tensor) -> None:
    """The first image of each class, until there are enough."""
    if len(examples) == COLUMNS:
        return
    for position, label in enumerate(y.tolist()):
        if len(examples) < COLUMNS and all(label != example.label for example in examples):
            examples.append(Example(label, images[:, position].cpu(), answers[:, position].tolist()))


def _notes(values: dict[str, float], count: int, without_gradient: int, eps: float, steps: int) -> tuple[str, ...]:
    notes = [
        f"attacks within {_of_255(eps)} in l_inf, PGD with {steps} steps of {_of_255(eps / 4)}; errors are over all "
        f"{count} images, those that are wrong without an attack included"
    ]
    if without_gradient:
        notes.append(
            f"warning: the gradient is zero for {100 * without_gradient / count:.3g} % of the images (answers that are "
            "too certain, or a step without slope): no attack finds them, and the errors under attack are too low"
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
    """Images, what the attacks add, and the attacked images, each with the model's answer below it."""
    attacked = {"FGSM": 1, f"PGD-{steps}": 2}
    width = max(1.15 * len(examples) + 1.2, 6.5)  # at least as wide as the title
    figure, axes = new_figure(width, 7.2, nrows=5, ncols=len(examples), squeeze=False)
    for column, example in zip(axes.T, examples, strict=True):
        clean = example.images[0]
        _show(column[0], clean)
        _say(column[0], example, 0, classes)
        for row, place in enumerate(attacked.values()):
            _show(column[2 * row + 1], 0.5 + (example.images[place] - clean) / (2 * eps or 1))
            _show(column[2 * row + 2], example.images[place])
            _say(column[2 * row + 2], example, place, classes)
    names = ["image", *(text for name in attacked for text in (f"{name}:\nchange", f"after\n{name}"))]
    for axis, name in zip(axes[:, 0], names, strict=True):
        axis.set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
    errors = [f"{error:.1f} %" for error in values.values()]
    figure.suptitle(f"wrong: {errors[0]}, after FGSM {errors[1]}, after PGD-{steps} {errors[2]}", fontsize=11)
    figure.supxlabel(f"change: gray is none, black and white are {_of_255(eps)}; green answers are right", fontsize=8)
    return as_image(figure)


def _show(axis: Any, image: Tensor) -> None:
    axis.imshow(image.float().clamp(0, 1).permute(1, 2, 0).numpy(), interpolation="nearest")
    axis.set_xticks([])
    axis.set_yticks([])


def _say(axis: Any, example: Example, place: int, classes: tuple[str, ...]) -> None:
    answer = example.answers[place]
    name = classes[answer] if len(classes[answer]) <= LONGEST else classes[answer][: LONGEST - 1] + "…"
    axis.set_xlabel(name, fontsize=8, color=GREEN if answer == example.label else RED, labelpad=2)


def _of_255(distance: float) -> str:
    return f"{distance * 255:.3g}/255"
