"""Accuracy on mixed samples over lam (right of the paper's Figure 4): are both classes of a pair recognized?

For a mixed sample of images x_i and x_j, of classes y_i and y_j, with lam the share of x_i,

    top-1 is correct if the first prediction is y_i or y_j
    top-2 is correct if the first two predictions are y_i and y_j, in either order

Percent of the pairs of two different classes; pairs of one class are left out, since one class cannot be two
predictions. The paper does not say which pairs it takes. Here the test set is shuffled and each image is mixed with the
one before it in its batch: the same pairs for every mixer and every lam.

`lam` is the requested share; a method may apply another one (CutMix's box is clipped at the border). At lam 1 most
methods show x_i alone, at lam 0 x_j alone: top-1 is then about the accuracy on clean images, and top-2 a guess, since
the other class is not there. The values are therefore means over the lams in between.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.accuracy import pair_correct
from automix.core.draws import step_generator
from automix.core.errors import AutomixError
from automix.core.target import MixedTarget
from automix.core.validation import check_whole
from automix.evaluation.mixers import Mixer
from automix.evaluation.plots import as_image, new_figure
from automix.evaluation.predictions import Predictions, check_predictions
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples
from automix.networks.modes import eval_mode

LAMS = tuple(tenth / 10 for tenth in range(11))


@dataclass(frozen=True)
class Curve:
    """Accuracies of one mixer over lam.

    Attributes:
        lams: In increasing order.
        top1: Percent of the pairs at each lam.
        top2: Percent of the pairs at each lam.
        pairs: How many pairs of two classes there are.
    """

    lams: tuple[float, ...]
    top1: tuple[float, ...]
    top2: tuple[float, ...]
    pairs: int

    def mean_between(self, accuracies: tuple[float, ...]) -> float:
        """Average accuracies over 0 < lam < 1.

        Args:
            accuracies: `top1` or `top2`.

        Returns:
            The mean, in percent.
        """
        inside = [value for lam, value in zip(self.lams, accuracies, strict=True) if 0 < lam < 1]
        return sum(inside) / len(inside)


@dataclass(frozen=True)
class MixedResult(EvaluationResult):
    """The result of `evaluate_mixed`.

    Attributes:
        curves: Accuracies over lam, by mixer.
    """

    curves: dict[str, Curve] = field(default_factory=dict)


def evaluate_mixed(
    model: nn.Module,
    samples: Samples,
    mixers: Mapping[str, Mixer],
    *,
    lams: Sequence[float] = LAMS,
    seed: int = 0,
    predictions: Predictions | None = None,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> MixedResult:
    """Measure how often one or both classes of a mixed sample are recognized, over lam.

    Args:
        model: Classifier from pixels in [0, 1] to logits.
        samples: Test images, 2 or more, of 2 or more classes.
        mixers: Mixers by name; see `method_mixer` and `task_mixer`.
        lams: Shares of the first image, in [0, 1], at least one of them strictly between.
        seed: Decides, with `batch_size`, which images are paired.
        predictions: Result of `predict_logits` on the same images. Where a mixer returns them unchanged, at lam 0 and
            1, they need no further pass.
        batch_size: Images mixed at once, 2 or more.
        track: Progress display, such as `progress_bar`.

    Returns:
        ``<mixer>_top1`` and ``<mixer>_top2``, means over 0 < lam < 1, and ``<mixer>_top2_at_0.5``, in percent; all lams
        are in `curves`, in the series and in the picture.
    """
    curves = _measure(model, samples, mixers, sorted(set(lams)), seed, predictions, batch_size, track)
    values: dict[str, float] = {}
    for name, curve in curves.items():
        values |= {f"{name}_top1": curve.mean_between(curve.top1), f"{name}_top2": curve.mean_between(curve.top2)}
        if 0.5 in curve.lams:
            values[f"{name}_top2_at_0.5"] = curve.top2[curve.lams.index(0.5)]
    pairs = next(iter(curves.values())).pairs
    note = f"{pairs} pairs of two classes; {len(samples) - pairs} pairs of one class are left out"
    series: dict[str, list[float | None]] = {"lams": [*sorted(set(lams))]}
    for name, curve in curves.items():
        series |= {f"{name}_top1": list(curve.top1), f"{name}_top2": list(curve.top2)}
    return MixedResult(values, {"mixed": lambda: draw_curves(curves)}, (note,), series, curves)


def _measure(
    model: nn.Module,
    samples: Samples,
    mixers: Mapping[str, Mixer],
    lams: Sequence[float],
    seed: int,
    predictions: Predictions | None,
    batch_size: int,
    track: Track,
) -> dict[str, Curve]:
    _check(samples, mixers, lams, batch_size)
    device = next(model.parameters()).device
    hits = {name: torch.zeros(len(lams), 2, dtype=torch.int64) for name in mixers}
    pairs = 0
    steps = _steps(samples, mixers, lams, seed, predictions, batch_size, device)
    total = math.ceil(len(samples) / batch_size) * len(mixers) * len(lams)
    for name, place, pixels, target, known in track(steps, total, "mixed samples"):
        with torch.no_grad(), eval_mode(model):
            logits = model(pixels) if known is None else known
        check_predictions((logits, target.y_a), len(samples.classes))
        top1, top2 = pair_correct(logits, target.y_a, target.y_b)
        hits[name][place] += torch.stack([top1.sum(), top2.sum()]).cpu()
        pairs += len(top1)
    pairs //= len(mixers) * len(lams)  # each was counted as often as it was mixed
    if not pairs:
        raise AutomixError("samples must have images of at least 2 classes, got 1")
    shares = {name: (100 * counts.double() / pairs).T.tolist() for name, counts in hits.items()}
    return {name: Curve(tuple(lams), tuple(top1), tuple(top2), pairs) for name, (top1, top2) in shares.items()}


def _steps(
    samples: Samples,
    mixers: Mapping[str, Mixer],
    lams: Sequence[float],
    seed: int,
    predictions: Predictions | None,
    batch_size: int,
    device: Any,
) -> Iterator[tuple[str, int, Tensor, MixedTarget, Tensor | None]]:
    """Each batch mixed by each mixer at each lam: the mixer's name, the position of lam, the samples, their target.

    The last are the logits of the samples, where they are images of the batch whose logits are known.
    """
    order = torch.randperm(len(samples), generator=step_generator(seed, 0, stream="mixed samples"))
    batches = samples.take(order).batches(batch_size, device)
    for (pixels, labels), places in zip(batches, order.split(batch_size), strict=True):
        clean = None if predictions is None else predictions[0][places].to(device)
        index = torch.arange(len(labels), device=device).roll(1)
        for name, mix in mixers.items():
            for place, lam in enumerate(lams):
                mixed = mix(pixels, labels, lam, index)
                if mixed.shape != pixels.shape:
                    shapes = f"{tuple(pixels.shape)}, got {tuple(mixed.shape)}"
                    raise AutomixError(f"mixer {name!r} must return pixels of shape {shapes}")
                known = None if clean is None else _known_logits(mixed, pixels, clean, lam, index)
                yield name, place, mixed, MixedTarget(labels, labels[index], torch.tensor(lam)), known


def _known_logits(mixed: Tensor, pixels: Tensor, clean: Tensor, lam: float, index: Tensor) -> Tensor | None:
    """The logits of samples that are one of their two images, pixel by pixel; None for all others."""
    if lam == 1 and torch.equal(mixed, pixels):
        return clean
    return clean[index] if lam == 0 and torch.equal(mixed, pixels[index]) else None


def _check(samples: Samples, mixers: Mapping[str, Mixer], lams: Sequence[float], batch_size: int) -> None:
    check_whole("batch_size", batch_size, 2)
    if not mixers:
        raise AutomixError("mixers must have at least 1 mixer, such as {'mixup': method_mixer('mixup')}; got none")
    if not all(0 <= lam <= 1 for lam in lams) or not any(0 < lam < 1 for lam in lams):
        raise AutomixError(f"lams must be in [0, 1], at least one of them in (0, 1); got {tuple(lams)}")
    if len(samples) < 2 or len(samples.classes) < 2:
        raise AutomixError(
            f"samples must have at least 2 images and 2 classes, got {len(samples)} and {len(samples.classes)}"
        )


def draw_curves(curves: Mapping[str, Curve]) -> Image.Image:
    """Draw top-1 and top-2 over lam, with a line for each mixer."""
    return draw_accuracies({name: vars(curve) for name, curve in curves.items()})


def draw_accuracies(lines: Mapping[str, Mapping[str, Sequence[float]]]) -> Image.Image:
    """Draw top-1 and top-2 on mixed samples over lam.

    Args:
        lines: By name, ``lams``, ``top1`` and ``top2``.

    Returns:
        The picture, with a line for each name.
    """
    figure, axes = new_figure(9.0, 4.0, ncols=2)
    titles = ("top-1: the prediction is one of the two", "top-2: the first two predictions are the two")
    for axis, title, which in zip(axes, titles, ("top1", "top2"), strict=True):
        for number, (name, line) in enumerate(lines.items()):
            style = {"color": f"C{number % 10}", "linestyle": ("-", "--", ":")[number // 10 % 3]}
            axis.plot(line["lams"], line[which], marker="o", markersize=3.5, label=name, **style)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("lam, the share of the first image")
        axis.set_ylabel("accuracy (%)")
        axis.set_ylim(-2, 102)
        axis.grid(alpha=0.3)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 6), frameon=False)
    return as_image(figure)
