"""Attentive CutMix (Walawalkar et al., 2020): what a network attends to in x_i is pasted onto x_j.

The image is a grid of 7 x 7 cells. The k = 6 cells where a helper network's last map is strongest come from x_i, all
others from x_j:

    s = 1 on the k most attended cells of x_i, else 0        lam := mean(s), about k / 49

`plus` draws the number of cells instead: k = floor(49 * lam) with lam ~ Beta(alpha, 8). The helper is a network that
has been trained already; without one the classifier looks for itself (with ``ema=True`` its teacher does). Use it where
a pretrained helper is at hand and objects are small: a random box often shows background only. The label is the area to
the pixel, as cells differ by a pixel where 7 does not divide the image.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32, blend
from automix.core.draws import draw_index, draw_lam, draw_uniform
from automix.core.target import Mixed, MixedTarget
from automix.core.transform import MixTransform
from automix.core.validation import check_alpha, check_batch
from automix.networks.feature_tap import FeatureTap, find_tap, stage_modules
from automix.networks.modes import eval_mode
from automix.networks.teacher import make_teacher
from automix.tasks.mix_task import MixTask

GRID = 7  # cells a side
PLUS_BETA = 8  # lam ~ Beta(alpha, 8): a fifth of the image with alpha 2


def attentivemix(
    x: Tensor,
    y: Tensor,
    alpha: float = 2.0,
    *,
    attention: Tensor,
    k: int = 6,
    plus: bool = False,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix images `x` and labels `y` by the `attention` (N, h, w) that each image draws; `index` is drawn unless given.

    `k` cells of x_i are pasted. With ``plus=True`` their number is drawn (`alpha`, `per_sample`); a given `lam` sets it
    to ``round(49 * lam)``.
    """
    check_batch(x, y)
    check_alpha(alpha)
    _check_cells(k)
    if attention.ndim != 3 or len(attention) != len(x):
        raise ValueError(f"attention has shape {tuple(attention.shape)}: accepted is ({len(x)}, h, w)")
    cells = _count_cells(x, alpha, k, plus, lam, per_sample, generator)
    index = draw_index(x, index=index, generator=generator)
    chosen = strongest_cells(attention.to(x.device), cells).to(at_least_float32(x).dtype)
    mask = F.interpolate(chosen.unsqueeze(1), size=x.shape[-2:], mode="nearest")
    return Mixed(blend(x, index, mask), MixedTarget(y, y[index], mask.mean(dim=(1, 2, 3))), mask)


def _count_cells(
    x: Tensor,
    alpha: float,
    k: int,
    plus: bool,
    lam: float | Tensor | None,
    per_sample: bool,
    generator: torch.Generator | None,
) -> Tensor:
    """How many cells come from x_i: one number, or one per sample."""
    if lam is not None:
        return (draw_lam(x, alpha, lam=lam) * GRID**2).round()
    if not plus:
        return torch.tensor(float(k), device=x.device)
    # Beta(a, n) is the product of Beta(a, 1), ..., Beta(a + n - 1, 1), and Beta(a, 1) is a power of a uniform number.
    uniform = draw_uniform(x, (*((len(x),) if per_sample else ()), PLUS_BETA), generator)
    drawn = (uniform ** (1 / (alpha + torch.arange(PLUS_BETA, device=x.device)))).prod(dim=-1)
    return (drawn * GRID**2).floor()


def strongest_cells(attention: Tensor, cells: Tensor) -> Tensor:
    """True on the `cells` (one number, or one per sample) most attended of the 7 x 7 cells: (N, 7, 7)."""
    attention = at_least_float32(attention).unsqueeze(1)
    if min(attention.shape[-2:]) < GRID:  # pooling would repeat values: many cells of equal rank
        attention = F.interpolate(attention, size=(GRID, GRID), mode="bilinear")
    order = F.adaptive_avg_pool2d(attention, GRID).flatten(1).argsort(dim=1, descending=True, stable=True)
    rank = order.argsort(dim=1)
    return (rank < cells.reshape(-1, 1)).unflatten(1, (GRID, GRID))


def _check_cells(k: int) -> None:
    if not (isinstance(k, int) and 0 < k <= GRID**2):
        raise ValueError(f"k={k}: accepted is a whole number from 1 to {GRID**2}")


@dataclass
class Helper:
    """Looks at images through the `tap` of a frozen `network`, or of the task's classifier."""

    tap: FeatureTap
    network: nn.Module | None = None

    def __call__(self, task: MixTask, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"attention": self.attention(task.classifier if self.network is None else self.network, x)}

    def attention(self, network: nn.Module, x: Tensor) -> Tensor:
        """The mean over the channels of the map's magnitude: (N, h, w)."""
        if network is self.network:
            network.to(x.device)
        weight = next(network.parameters(), x)
        with torch.no_grad(), eval_mode(network):
            return self.tap(network, x.to(weight.dtype)).abs().mean(dim=1)


def find_helper(model: nn.Module, helper: nn.Module | None, layer: int | str | None) -> Helper:
    """Looks through a frozen copy of `helper`, or through the task's classifier, which is built like `model`."""
    network = model if helper is None else helper
    if layer is None:
        layer = len(stage_modules(network))
    if layer == 0:
        raise ValueError(
            f"{type(network).__name__} does not describe its stages: accepted is layer='...', the name of a submodule "
            "that gives maps (N, C, h, w)"
        )
    return Helper(find_tap(network, layer), None if helper is None else make_teacher(helper))


def create_task(
    model: nn.Module, *, helper: nn.Module | None = None, layer: int | str | None = None, **options: Any
) -> MixTask:
    """The task. `helper` is any trained classifier; it is copied and frozen, neither trained nor saved nor deployed.

    Without one the classifier itself looks. `layer` is the stage, or the submodule, whose map counts: the last stage
    unless given.
    """
    if "k" in options:
        _check_cells(options["k"])
    return MixTask(model, attentivemix, look=find_helper(model, helper, layer), **options)


class AttentiveMix(MixTransform):
    """``x, soft = AttentiveMix(helper, num_classes=100)(x, y)``: `helper` is any trained classifier.

    `layer` as for the task; further `options` are those of the function.
    """

    function = attentivemix

    def __init__(self, helper: nn.Module, *args: Any, layer: int | str | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        _check_cells(options.get("k", 1))
        self.look = find_helper(helper, helper, layer)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        check_batch(x, y)
        assert self.look.network is not None
        attention = self.look.attention(self.look.network, x)
        mixed = attentivemix(x, y, attention=attention, generator=self.generator, **self.options)
        return mixed.x, mixed.target.soft(self.num_classes, self.label_smoothing)
