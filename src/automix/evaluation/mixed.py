"""Accuracy on mixed samples over lam (the right of the paper's Figure 4): can the two classes of a pair be recognized?

For a mixed sample of images x_i and x_j, of classes y_i and y_j, with lam the share of x_i,

    top-1 is right if the first answer is y_i or y_j
    top-2 is right if the first two answers are y_i and y_j, in whatever order

Counted over the pairs of two different classes, in percent; pairs of one class are left out, since their two classes
cannot be the first two answers. The paper does not say which pairs it takes. Here the test set is put in random order
and each image is mixed with the one before it in its batch: the same pairs for every mixer and every lam.

`lam` is the share that is asked for; what a method makes of it can differ (CutMix's box is cut off at the border). At
lam 1 most methods show x_i alone, at lam 0 x_j alone: top-1 is then about the accuracy on clean images, and top-2 can
only be guessed, since the other class is not there. The values are therefore means over the lams in between.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from automix.core.draws import step_generator
from automix.core.target import MixedTarget
from automix.core.validation import check_whole
from automix.evaluation.mixers import Mixer
from automix.evaluation.plots import as_image, new_figure
from automix.evaluation.predictions import check_predictions
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.samples import BATCH, Samples
from automix.methods.automix.diagnostics import recognized
from automix.networks.modes import eval_mode

LAMS = tuple(tenth / 10 for tenth in range(11))


@dataclass(frozen=True)
class Curve:
    """Accuracies in percent over `lams`, on `pairs` pairs of two classes."""

    lams: tuple[float, ...]
    top1: tuple[float, ...]
    top2: tuple[float, ...]
    pairs: int

    def between(self, accuracies: tuple[float, ...]) -> float:
        """The mean over the lams at which both images are there."""
        inside = [value for lam, value in zip(self.lams, accuracies, strict=True) if 0 < lam < 1]
        return sum(inside) / len(inside)


def evaluate_mixed(
    model: nn.Module,
    samples: Samples,
    mixers: Mapping[str, Mixer],
    *,
    lams: Sequence[float] = LAMS,
    seed: int = 0,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> EvaluationResult:
    """Top-1 and top-2 on the samples of each of `mixers`, averaged over 0 < lam < 1, and top-2 at lam 0.5.

    Who is mixed with whom depends on `seed` and `batch_size`. Whole curves are in the picture and in `mixed_curves`.
    """
    curves = mixed_curves(model, samples, mixers, lams=lams, seed=seed, batch_size=batch_size, track=track)
    values: dict[str, float] = {}
    for name, curve in curves.items():
        values |= {f"{name}_top1": curve.between(curve.top1), f"{name}_top2": curve.between(curve.top2)}
        if 0.5 in curve.lams:
            values[f"{name}_top2_at_0.5"] = curve.top2[curve.lams.index(0.5)]
    pairs = next(iter(curves.values())).pairs
    note = f"{pairs} pairs of two classes; {len(samples) - pairs} pairs of one class are left out"
    return EvaluationResult(values, {"mixed": lambda: draw_curves(curves)}, (note,))


def mixed_curves(
    model: nn.Module,
    samples: Samples,
    mixers: Mapping[str, Mixer],
    *,
    lams: Sequence[float] = LAMS,
    seed: int = 0,
    batch_size: int = BATCH,
    track: Track = no_progress,
) -> dict[str, Curve]:
    """For each of `mixers`, the accuracies at each of `lams`, in increasing order."""
    lams = sorted(set(lams))
    _check(samples, mixers, lams, batch_size)
    device = next(model.parameters()).device
    hits = {name: torch.zeros(len(lams), 2, dtype=torch.int64) for name in mixers}
    pairs = 0
    steps = _steps(samples, mixers, lams, seed, batch_size, device)
    total = math.ceil(len(samples) / batch_size) * len(mixers) * len(lams)
    for name, place, pixels, target in track(steps, total, "mixed samples"):
        with torch.no_grad(), eval_mode(model):
            logits = model(pixels)
        check_predictions((logits, target.y_a), len(samples.classes))
        top1, top2 = recognized(logits, target)
        hits[name][place] += torch.stack([top1.sum(), top2.sum()]).cpu()
        pairs += len(top1)
    pairs //= len(mixers) * len(lams)  # each was counted as often as it was mixed
    if not pairs:
        raise ValueError("all images are of one class: accepted are samples of two classes or more")
    shares = {name: (100 * counts.double() / pairs).T.tolist() for name, counts in hits.items()}
    return {name: Curve(tuple(lams), tuple(top1), tuple(top2), pairs) for name, (top1, top2) in shares.items()}


def _steps(
    samples: Samples, mixers: Mapping[str, Mixer], lams: Sequence[float], seed: int, batch_size: int, device: Any
) -> Iterator[tuple[str, int, Tensor, MixedTarget]]:
    """Each batch mixed by each mixer at each lam: the mixer's name, the place of lam, the samples and their classes."""
    order = torch.randperm(len(samples), generator=step_generator(seed, 0, stream="mixed samples"))
    for pixels, labels in samples.take(order).batches(batch_size, device):
        index = torch.arange(len(labels), device=device).roll(1)
        for name, mix in mixers.items():
            for place, lam in enumerate(lams):
                mixed = mix(pixels, labels, lam, index)
                if mixed.shape != pixels.shape:
                    shapes = f"{tuple(mixed.shape)}: accepted are as many as it gets, {tuple(pixels.shape)}"
                    raise ValueError(f"mixer {name!r} gives pixels {shapes}")
                yield name, place, mixed, MixedTarget(labels, labels[index], torch.tensor(lam))


def _check(samples: Samples, mixers: Mapping[str, Mixer], lams: Sequence[float], batch_size: int) -> None:
    check_whole("batch_size", batch_size, 2)
    if not mixers:
        raise ValueError("no mixers: accepted are one or more by name, such as {'mixup': method_mixer('mixup')}")
    if not all(0 <= lam <= 1 for lam in lams) or not any(0 < lam < 1 for lam in lams):
        raise ValueError(f"lams={tuple(lams)}: accepted are numbers from 0 to 1, at least one of them in between")
    if len(samples) < 2 or len(samples.classes) < 2:
        raise ValueError(
            f"{len(samples)} images of {len(samples.classes)} classes: accepted are two or more of two classes or more"
        )


def draw_curves(curves: Mapping[str, Curve]) -> Image.Image:
    """Two panels over lam, top-1 and top-2, with a line for each mixer."""
    figure, axes = new_figure(9.0, 4.0, ncols=2)
    titles = ("top-1: the first answer is one of the two", "top-2: the first two answers are the two")
    for axis, title, which in zip(axes, titles, ("top1", "top2"), strict=True):
        for number, (name, curve) in enumerate(curves.items()):
            style = {"color": f"C{number % 10}", "linestyle": ("-", "--", ":")[number // 10 % 3]}
            axis.plot(curve.lams, getattr(curve, which), marker="o", markersize=3.5, label=name, **style)
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("lam, the share of the first image")
        axis.set_ylabel("accuracy (%)")
        axis.set_ylim(-2, 102)
        axis.grid(alpha=0.3)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=min(len(names), 6), frameon=False)
    return as_image(figure)
