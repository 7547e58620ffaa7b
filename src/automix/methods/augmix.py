"""AugMix (Hendrycks et al., 2020): an image is mixed with augmented copies of itself, and predictions are kept alike.

    x_aug = sum_i w_i chain_i(x)                   w ~ Dirichlet(alpha), `width` chains of 1 to 3 operations
    x_mix = lam * x + (1 - lam) * x_aug            lam ~ Beta(alpha, alpha), one for each image
    loss  = l_CE(p(x), y) + 12 * JS(p(x), p(x_mix), p(x_mix'))

with two mixtures of the same image and the Jensen-Shannon divergence of the three predictions. The loss is the method:
timm and torchvision have the transform alone. `augmix` is the transform, `create_task` the method. For robustness to
corruptions and calibrated predictions; a step costs three forward passes.
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
from automix.core.tensor_checks import check_batch, check_index
from automix.core.transform import MixTransform
from automix.core.validation import check_range, check_whole
from automix.methods._shared.pixels import Operations, augment, draw_operations, pixel_range
from automix.tasks.mix_task import MixTask
from automix.tasks.step_output import StepOutput

__all__ = ["AugMix", "AugMixTask", "augmix", "create_task"]

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
    """Mix each image with augmented copies of itself (Hendrycks et al., 2020).

    Labels and mask stay those of `x`; images are not paired.

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)`` and chain weights ``~ Dirichlet(alpha)``, for each image.
        width: Number of chains of operations, >= 1.
        depth: Operations in each chain, >= 1; drawn from 1 to 3 if not given.
        severity: Strength of the operations, in [0.1, 10].
        mean: Mean that normalized `x`, one number per channel; without `mean` and `std` the range of the batch stands
            for black and white.
        std: Standard deviation that normalized `x`, one number per channel, > 0.
        lam: Share of the image itself, a number or ``(N,)``; drawn if not given.
        index: Has no effect; accepted as by every method.
        weights: Weights of the chains, ``(N, width)``; drawn if not given.
        chains: Operations of the chains, ``(N, width, depth)``; drawn if not given.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The augmented images, their labels and a mask of ones.
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
    """Draw Dirichlet(alpha, ..., alpha) weights for each image: (count, width)."""
    device = None if generator is None else generator.device
    return torch._sample_dirichlet(torch.full((count, width), float(alpha), device=device), generator)


def _draw_chains(
    count: int, width: int, depth: int | None, severity: float, generator: torch.Generator | None
) -> Operations:
    """Draw the operations (count, width, depth); a chain that is shorter than others ends with NOTHING."""
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
    """Compute the Jensen-Shannon divergence of several predictions for the same images.

    The mean of KL(p || m) over the predictions p, m being their mean. Multi-label predictions are yes-or-no predictions
    for each class, and their divergences are averaged over the classes too.

    Args:
        logits: Logits, each ``(N, num_classes)``.
        multi_label: Whether the labels are multi-label rows.

    Returns:
        The mean over the images, a scalar.
    """
    answers = at_least_float32(torch.stack(list(logits)))
    if multi_label:
        answers = torch.stack([answers, torch.zeros_like(answers)], dim=-1)  # softmax of (l, 0) is sigmoid of l
    log_p = F.log_softmax(answers, dim=-1)
    log_m = log_p.logsumexp(dim=0) - math.log(len(answers))
    return (log_p.exp() * (log_p - log_m)).sum(dim=-1).mean()


def create_task(model: nn.Module, *, js_weight: float = 12.0, **options: Any) -> "AugMixTask":
    """Build the training task, with the consistency loss.

    Args:
        model: The network to train.
        js_weight: Weight of the divergence, >= 0.
        **options: Options of `augmix` and of `MixTask`.

    Returns:
        The task.
    """
    return AugMixTask(model, js_weight=js_weight, **options)


class AugMixTask(MixTask):
    """Cross-entropy on the clean images plus the divergence of clean and two augmented views.

    The three views are one forward pass. The loss on clean images, which ``one_hot_loss=True`` adds to other methods,
    is always part of this one. `StepOutput.logits` are those of the first augmented view.

    Args:
        model: The network to train.
        js_weight: Weight of the divergence, >= 0.
        **options: Options of `augmix` and of `MixTask`.
    """

    def __init__(self, model: nn.Module, *, js_weight: float = 12.0, **options: Any) -> None:
        check_range("js_weight", js_weight, 0)
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
    """Mix each image with augmented copies of itself (Hendrycks et al., 2020), without the consistency loss.

    Call it as ``x, soft = mix(x, y)``.

    Args:
        alpha: ``lam ~ Beta(alpha, alpha)`` and chain weights ``~ Dirichlet(alpha)``, for each image; 1 if not given.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        prob: Probability that a batch is mixed at all, in [0, 1]; 1 if not given.
        generator: Source of randomness; torch's default generator if not given.
        width: Number of chains of operations, >= 1.
        depth: Operations in each chain, >= 1; drawn from 1 to 3 if not given.
        severity: Strength of the operations, in [0.1, 10].
        mean: Mean that normalized `x`, one number per channel; without `mean` and `std` the range of the batch stands
            for black and white.
        std: Standard deviation that normalized `x`, one number per channel, > 0.
        weights: Weights of the chains, ``(N, width)``; drawn if not given.
        chains: Operations of the chains, ``(N, width, depth)``; drawn if not given.
    """

    function = augmix
    takes_video = False
