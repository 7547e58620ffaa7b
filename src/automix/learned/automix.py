"""AutoMix (Liu et al., ECCV 2022): the Mix Block, trained by the classifier's own loss through a momentum teacher.

One step (Algorithm 1), with two draws of lam and of partners, one for the classifier (q), one for the Mix Block (k):

    z = f_k(x) up to layer l                                   no gradient
    x_q = h(x, z, lam_q, index_q)                              Eq. 4, no gradient
    x_k = h(x, z, lam_k, index_k)                              Eq. 4, gradient to phi
    L = l_CE(f_q(x)) + l_MCE(f_q(x_q))                         classification: gradient to theta_q
      + l_MCE(f_k(x_k)) + l_lambda(s_k)                        generation: gradient to phi       (Eq. 8)

Because x_q carries no graph and the teacher f_k takes no gradient, one backward pass of the sum is the alternating
optimisation of Eq. 10-11: each loss reaches its own parameters only, and the entanglement of Eq. 9 cannot arise.
`update` then moves the teacher (Eq. 12).
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from automix.checks import check_alpha, check_range
from automix.features import find_tap
from automix.learned.instruments import complaints, examine
from automix.learned.mix_block import MixBlock
from automix.mixing import Mixed, MixedTarget, as_map, blend, draw_index, draw_lam, draw_uniform, mask_spread
from automix.task import Criterion, StepOutput, Task, batch_norm_hint, step_output

SETTLED = 200  # steps after which masks that are flat, or ignore lam, are worth a word


@dataclass(frozen=True)
class Pairs:
    """Who is mixed with whom, and by how much."""

    lam: Tensor
    index: Tensor


class AutoMix(Task):
    """Train `model` with AutoMix; `deploy` returns the teacher.

    `layer` is the stage (1 to 4) whose map feeds the Mix Block, or the name of a submodule for networks that are not
    timm's. `alpha`, `gamma`, `epsilon` and `momentum` are the paper's. Where min(lam, 1 - lam) <= `lam_margin` there is
    nothing to select and the pair is mixed as by Mixup. ``per_sample=True`` draws a lam for every sample. The Mix Block
    learns `block_lr` times as fast as the student; too fast, and its masks become black and white and ignore lam.

    For the ablations: ``one_hot_loss=False`` drops l_CE, ``gamma=0`` drops l_lambda, ``momentum=0`` makes the teacher
    a copy of the student, and ``momentum=None`` trains student and Mix Block jointly on one loss without a teacher, as
    in the paper's row "none"; that one is known to collapse. Further keywords go to MixBlock, unless a `mix_block` is
    given ready.
    """

    def __init__(
        self,
        model: nn.Module,
        layer: int | str = 3,
        *,
        alpha: float = 2.0,
        momentum: float | None = 0.999,
        one_hot_loss: bool = True,
        gamma: float = 0.1,
        epsilon: float = 0.1,
        lam_margin: float = 0.08,
        block_lr: float = 1.0,
        per_sample: bool = False,
        second_loss: str | None = None,
        mixup_share: float = 0.0,
        label_from_mask: bool = False,
        block_decay: float | None = None,
        criterion: Criterion = MixedTarget.loss,
        seed: int = 0,
        channels: int | None = None,
        mix_block: MixBlock | None = None,
        **block_options: Any,
    ) -> None:
        check_alpha(alpha)
        check_range("gamma", gamma, 0, math.inf)
        check_range("epsilon", epsilon, 0, 1)
        check_range("lam_margin", lam_margin, 0, 0.5)
        check_range("block_lr", block_lr, 0, math.inf)
        tap = find_tap(model, layer, channels)
        if mix_block is not None and (block_options or mix_block.channels != tap.channels):
            raise ValueError(
                f"mix_block is for {mix_block.channels} channels, layer {layer} has {tap.channels}: "
                "accepted is a block for as many, and no further options for it"
            )
        super().__init__(model, momentum=momentum, one_hot_loss=one_hot_loss, criterion=criterion, seed=seed)
        self.tap = tap
        self.second_loss, self.mixup_share, self.label_from_mask = second_loss, mixup_share, label_from_mask
        self.block_decay = block_decay
        self.mix_block = mix_block if mix_block is not None else MixBlock(tap.channels, **block_options)
        self.alpha = alpha
        self.gamma = gamma
        self.epsilon = epsilon
        self.lam_margin = lam_margin
        self.block_lr = block_lr
        self.per_sample = per_sample

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        q, k = (self._draw(x, generator) for _ in "qk")
        if self.teacher is None:
            return self._joint_step(x, y, q, generator)
        return self._momentum_step(x, y, q, k, generator)

    def _momentum_step(self, x: Tensor, y: Tensor, q: Pairs, k: Pairs, generator: torch.Generator) -> StepOutput:
        assert self.teacher is not None
        with torch.no_grad():
            z = self.tap(self.teacher, x)
            mixed_q = self._mix(x, y, z, q, generator)
            if self.mixup_share:
                plain = draw_uniform(x, (len(x),), generator) < self.mixup_share
                mask = torch.where(as_map(plain), as_map(q.lam).to(mixed_q.mask), mixed_q.mask)
                mixed_q = Mixed(blend(x, q.index, mask), mixed_q.target, mask)
            if self.label_from_mask:
                lam = mixed_q.mask.mean(dim=(1, 2, 3)).clamp(0, 1)
                mixed_q = Mixed(mixed_q.x, MixedTarget(y, y[q.index], lam), mixed_q.mask)
        losses, logits = self.classification_loss(x, y, mixed_q)
        if self.second_loss == "mixup":
            m = self._draw(x, generator)
            other = MixedTarget(y, y[m.index], m.lam)
            losses["loss_mixup"] = self.criterion(other, self.student(blend(x, m.index, as_map(m.lam))))
        if any(parameter.requires_grad for parameter in self.mix_block.parameters()):
            mixed_k = self._mix(x, y, z, k, generator)
            losses["loss_generation"] = self.criterion(mixed_k.target, self.teacher(mixed_k.x))
            losses["loss_lambda"] = self._lambda_loss(mixed_k)
        return step_output(losses, logits, mixed_q.target, _mask_metrics(mixed_q))

    def _joint_step(self, x: Tensor, y: Tensor, pairs: Pairs, generator: torch.Generator) -> StepOutput:
        with batch_norm_hint(x):
            z = self.tap(self.student, x)
        mixed = self._mix(x, y, z, pairs, generator)
        losses, logits = self.classification_loss(x, y, mixed)
        losses["loss_lambda"] = self._lambda_loss(mixed)
        return step_output(losses, logits, mixed.target, _mask_metrics(mixed))

    def _lambda_loss(self, mixed: Mixed) -> Tensor:
        """l_lambda (Eq. 7), for each mask and then averaged; gamma falls linearly to 0 over the training."""
        gap = (mixed.target.lam - mixed.mask.mean(dim=(1, 2, 3))).abs()
        return self.gamma * (1 - self.progress) * (gap - self.epsilon).clamp(min=0).mean()

    def _mix(self, x: Tensor, y: Tensor, z: Tensor, pairs: Pairs, generator: torch.Generator) -> Mixed:
        """h_phi (Eq. 4): blend each image with its partner by the Mix Block's mask."""
        lam, index = pairs.lam, pairs.index
        height, width = x.shape[-2:]
        mask = self.mix_block(z, z[index], lam, (height, width), generator)
        extreme = torch.minimum(lam, 1 - lam) <= self.lam_margin
        # `where`, not a branch: no wait for the device, and under DDP every rank uses every parameter in every step
        mask = torch.where(as_map(extreme), as_map(lam).to(mask.dtype), mask)
        return Mixed(blend(x, index, mask), MixedTarget(y, y[index], lam), mask)

    def _draw(
        self,
        x: Tensor,
        generator: torch.Generator,
        lam: float | Tensor | None = None,
        index: Tensor | None = None,
    ) -> Pairs:
        lam = draw_lam(x, self.alpha, lam=lam, per_sample=self.per_sample, generator=generator)
        return Pairs(lam, draw_index(x, index=index, generator=generator))

    def make_mixed(
        self, x: Tensor, y: Tensor, *, lam: float | Tensor | None, index: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        pairs = self._draw(x, generator, lam, index)
        with _eval_mode(self.classifier):
            z = self.tap(self.classifier, x)
        return self._mix(x, y, z, pairs, generator)

    def examine(self, x: Tensor, y: Tensor) -> tuple[dict[str, float], dict[str, str]]:
        """Spread and mean of the masks, and how well the teacher recognises both images; see instruments.py."""
        if y.ndim != 1:  # more than one class in an image: nothing to count
            return {}, {}
        numbers = examine(self, x, y)
        return numbers, complaints(numbers) if self.step >= SETTLED else {}

    def param_groups(self, lr: float, **options: Any) -> list[dict[str, Any]]:
        """The student's group, and the Mix Block's with `block_lr` times its learning rate."""
        groups = super().param_groups(lr, **options)
        if parameters := list(self.mix_block.parameters()):
            if self.block_decay is not None:
                options = {**options, "weight_decay": self.block_decay}
            groups.append({"name": "mix_block", "params": parameters, "lr": self.block_lr * lr, **options})
        return groups


def _mask_metrics(mixed: Mixed) -> dict[str, Tensor]:
    """Over the batch: how much the masks vary over their pixels, and how far their means are from lam."""
    gap = (mixed.mask.float().mean(dim=(1, 2, 3)) - mixed.target.lam).abs()
    return {"mask_spread": mask_spread(mixed.mask).mean(), "lam_gap": gap.mean()}


@contextmanager
def _eval_mode(model: nn.Module) -> Iterator[None]:
    """Every module in eval mode for a while, so that looking at masks moves no statistics; then each as it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
