"""AugMix (Hendrycks et al., ICLR 2020): an image and a mixture of augmented copies of it, and a loss that makes the
network answer alike.

    x_aug = sum_i w_i chain_i(x)                   w ~ Dirichlet(alpha), `width` chains of 1 to 3 operations
    x_mix = lam * x + (1 - lam) * x_aug            lam ~ Beta(alpha, alpha), one for each image
    loss  = l_CE(p(x), y) + 12 * JS(p(x), p(x_mix), p(x_mix'))

with two mixtures of the same image and the Jensen-Shannon divergence of the three answers. That loss is the method:
timm, torchvision and the usual toolboxes have the transform alone. `augmix` is the transform, `create_task` the method.
For robustness to corruptions and calibrated answers; a step costs three forward passes.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import as_map, at_least_float32, full_mask
from automix.core.draws import draw_lam, draw_uniform
from automix.core.target import Mixed, MixedTarget, is_multi_label
from automix.core.transform import MixTransform
from automix.core.validation import check_at_least, check_batch, check_index, check_whole
from automix.methods._shared.pixels import Operations, augment, draw_operations, pixel_range
from automix.tasks.mix_task import MixTask
from automix.tasks.task import StepOutput

DEEPEST = 3  # operations in a chain, where their number is drawn


def augmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    width: int = 3,
    depth: int | None = None,
    severity: float = 3.0,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    weights: Tensor | None = None,
    chains: Operations | None = None,
    generator: torch.Generator | None = None,
) -> Mixed:
    """One augmented view of images `x`; labels and mask stay those of `x`.

    Each of `width` chains has `depth` operations; without it their number is drawn from 1 to 3. `lam` is the share of
    the image itself, `weights` (N, width) are those of the chains, `chains` (N, width, depth) their operations; all are
    drawn from `generator` unless given. `mean` and `std` are what `x` was normalized by; without them pixels are told
    from the range of the batch (pixels.py). Nobody is paired: `index` changes nothing.
    """
    check_batch(x, y)
    check_whole("width", width, 1)
    check_whole("depth", depth, 1)
    lam = as_map(draw_lam(x, alpha, lam=lam, per_sample=True, generator=generator))
    if index is not None:
        check_index(index, len(x))
    if weights is None:
        weights = _draw_weights(len(x), width, alpha, generator)
    if chains is None:
        chains = _draw_chains(len(x), width, depth, severity, generator)
    scale = pixel_range(x, mean, std)
    pixels = scale.to_pixels(x)
    mixture = scale.from_pixels(_mixture(pixels, weights.to(pixels), chains), like=x)
    return Mixed(torch.lerp(mixture, x, lam.to(x.dtype)), MixedTarget.clean(y), full_mask(x.new_ones(1, 1, 1, 1), x))


def _draw_weights(count: int, width: int, alpha: float, generator: torch.Generator | None) -> Tensor:
    """Dirichlet(alpha, ..., alpha), one for each image: (count, width)."""
    device = None if generator is None else generator.device
    return torch._sample_dirichlet(torch.full((count, width), float(alpha), device=device), generator)


def _draw_chains(
    count: int, width: int, depth: int | None, severity: float, generator: torch.Generator | None
) -> Operations:
    """The operations (count, width, depth); a chain that is shorter than others ends with NOTHING."""
    operations = draw_operations((count, width, depth or DEEPEST), severity, generator)
    if depth is not None:
        return operations
    length = 1 + (draw_uniform(torch.empty(0), (count, width, 1), generator) * DEEPEST).long()
    return operations.where(torch.arange(DEEPEST) < length)


def _mixture(pixels: Tensor, weights: Tensor, chains: Operations) -> Tensor:
    """The weighted sum of each image's chains; the chains of all images are one large batch."""
    count, width, depth = chains.kind.shape
    copies = pixels.repeat_interleave(width, dim=0)
    for number in range(depth):
        copies = augment(copies, chains[:, :, number].flatten())
    return (weights.view(-1, 1, 1, 1) * copies).unflatten(0, (count, width)).sum(dim=1)


def js_divergence(logits: Sequence[Tensor], multi_label: bool = False) -> Tensor:
    """The Jensen-Shannon divergence of several answers (N, C) to the same images, averaged over the images.

    The mean of KL(p || m) over the answers p, m being their mean. Several labels at once are so many yes-or-no answers:
    their divergences are averaged over the classes too.
    """
    answers = at_least_float32(torch.stack(list(logits)))
    if multi_label:
        answers = torch.stack([answers, torch.zeros_like(answers)], dim=-1)  # softmax of (l, 0) is sigmoid of l
    log_p = F.log_softmax(answers, dim=-1)
    log_m = log_p.logsumexp(dim=0) - math.log(len(answers))
    return (log_p.exp() * (log_p - log_m)).sum(dim=-1).mean()


def create_task(model: nn.Module, **options: Any) -> "AugMixTask":
    """The method: `options` are those of `augmix`, of `MixTask`, and `js_weight`."""
    return AugMixTask(model, **options)


class AugMixTask(MixTask):
    """Cross-entropy on the clean images and `js_weight` times the divergence of clean and two augmented views.

    The three views are one forward pass. The loss on clean images, which ``one_hot_loss=True`` adds to other methods,
    is part of this one with or without it. `StepOutput.logits` are the answers to the first augmented view.
    """

    def __init__(self, model: nn.Module, *, js_weight: float = 12.0, **options: Any) -> None:
        check_at_least("js_weight", js_weight, 0)
        super().__init__(model, augmix, **options)
        self.js_weight = js_weight

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        mixed = [self.make_mixed(x, y, lam=None, index=None, generator=generator) for _ in range(2)]
        answers = self.run_student(torch.cat([x, *(view.x for view in mixed)])).chunk(3)
        clean = MixedTarget.clean(y)
        divergence = js_divergence(answers, is_multi_label(y))
        losses = {"loss_clean": self.loss(answers[0], clean), "loss_consistency": self.js_weight * divergence}
        return self.output(losses, answers[1], clean)


class AugMix(MixTransform):
    """``x, soft = AugMix(num_classes=100)(x, y)``: one view, without the loss."""

    function = augmix
