"""AutoMix (Liu et al., ECCV 2022): the Mix Block, trained by the classifier's own loss through a momentum teacher.

One step (Algorithm 1), with two draws of lam and of partners, one for the classifier (q), one for the Mix Block (k):

    z = f_k(x) up to layer l                                   no gradient
    x_q = h(x, z, lam_q, index_q)                              Eq. 4, no gradient
    x_k = h(x, z, lam_k, index_k)                              Eq. 4, gradient to phi
    L = l_2(f_q(x)) + l_MCE(f_q(x_q))                          classification: gradient to theta_q
      + l_MCE(f_k(x_k)) [+ l_lambda(s_k)]                      generation: gradient to phi       (Eq. 8)

Because x_q carries no graph and the teacher f_k takes no gradient, one backward pass of the sum is the alternating
optimization of Eq. 10-11: each loss reaches its own parameters only, and the entanglement of Eq. 9 cannot arise.
`update` then moves the teacher (Eq. 12). h sees labels too, where the Mix Block goes by them.

The student's second loss l_2 is l_CE on the clean images in the paper. That learns fast and over-fits small data; ours
begins as it and becomes Mixup's: the images are mixed with lam ~ Beta(a, a), and a rises from 0 over the training. The
end of the training is on clean images alone: what mixing has taught stays, and the network settles on what it will see.

l_lambda is there without the Mix Block's `exact_mean` only; with it, the mean of a mask is lam by construction.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from automix.core.blend import as_map, blend, mask_spread
from automix.core.distributed import is_distributed
from automix.core.draws import draw_index, draw_lam, step_generator
from automix.core.target import Mixed, MixedTarget
from automix.core.validation import check_alpha, check_batch, check_choice, check_range, check_whole
from automix.methods.automix.block_file import load_mix_block
from automix.methods.automix.diagnostics import diagnose, mask_warnings
from automix.methods.automix.mix_block import MixBlock
from automix.methods.mixup import mixup
from automix.networks.feature_tap import count_classes, find_tap
from automix.networks.modes import eval_mode
from automix.tasks.task import Criterion, StepOutput, Task, batch_norm_hint, step_output

SECOND_LOSSES = ("rising", "joined", "clean", "mixup", "none")
LOWEST_ALPHA = 0.02  # Beta(0.02, 0.02) is 0 or 1 but for one draw in twenty: images as good as clean
BLOCK_LR = 0.3  # at 1 masks become sharper than the block knows, at 0.1 they stay soft: docs/results/mix-block.md
WARMUP_STEPS = 200  # steps after which masks that are flat, or ignore lam, are worth a word


class Effort(NamedTuple):
    """What `effort` decides where it is not said."""

    second_loss: str
    block_share: float
    mix_until: float


EFFORTS = {
    "exact": Effort("clean", 1.0, 1.0),
    "usual": Effort("rising", 0.25, 0.7),
    "fast": Effort("joined", 0.15, 0.7),
}


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
    learns `block_lr` times as fast as the student, 0.3 unless said, and goes by the labels too (`by_label`); how many
    classes there are is found by itself, or is `num_classes`.

    ``paper=True`` is the paper's own form: the Mix Block without our additions (mix_block.py), ``effort="exact"``, and
    ``block_lr=1``.

    `second_loss` is what the student learns beside the mixed samples: the images mixed by Mixup with an alpha "rising"
    with the progress, from 0, so that they are clean at first; "clean" images throughout (l_CE); by "mixup" with the
    same alpha as the mixed samples; or "none". "joined" is "rising" without a pass of its own: the Mix Block mixes only
    the images that it learns from, and these samples join the pass of the others. What rises follows the progress that
    `update` is told; never told, images stay clean. From progress `mix_until` on, 0.7 unless said, training is plain:
    cheap steps on clean images, and the Mix Block stays as it is then.

    `effort` is "usual", "exact" (the algorithm as published: `second_loss` "clean", the Mix Block learns from the whole
    batch, mixing to the end) or "fast" (`second_loss` "joined", up to half more than Mixup's cost:
    docs/results/automix-cost.md). Without "exact" the Mix Block learns from a quarter of each batch, in "fast" from
    15 % (`block_share`).

    For the ablations:
    ``gamma=0`` drops l_lambda (which there is with ``exact_mean=False`` only), ``momentum=0`` makes the teacher a copy
    of the student, and ``momentum=None`` trains student and Mix Block jointly on one loss without a teacher, as in the
    paper's row "none" of Table 10, which the paper finds to collapse.

    Further keywords go to MixBlock, unless a `mix_block` is given ready, or as the file of one that was trained before
    (`save_mix_block`, or a run's folder); it is of use to a network that comes from the same training.
    """

    learns_to_mix = True

    def __init__(
        self,
        model: nn.Module,
        layer: int | str = 3,
        *,
        paper: bool = False,
        effort: str | None = None,
        second_loss: str | None = None,
        alpha: float = 2.0,
        momentum: float | None = 0.999,
        gamma: float = 0.1,
        epsilon: float = 0.1,
        lam_margin: float = 0.08,
        block_lr: float | None = None,
        block_share: float | None = None,
        mix_until: float | None = None,
        per_sample: bool = False,
        criterion: Criterion = MixedTarget.loss,
        seed: int = 0,
        channels: int | None = None,
        num_classes: int | None = None,
        by_label: bool | None = None,
        mix_block: MixBlock | Path | str | None = None,
        **block_options: Any,
    ) -> None:
        if effort is None:
            effort = "exact" if paper else "usual"
        check_choice("effort", effort, EFFORTS)
        usual = EFFORTS[effort]
        second_loss = usual.second_loss if second_loss is None else second_loss
        block_share = usual.block_share if block_share is None else block_share
        mix_until = usual.mix_until if mix_until is None else mix_until
        block_lr = (1.0 if paper else BLOCK_LR) if block_lr is None else block_lr
        by_label = not paper if by_label is None else by_label
        check_choice("second_loss", second_loss, SECOND_LOSSES)
        check_alpha(alpha)
        check_range("gamma", gamma, 0, math.inf)
        check_range("epsilon", epsilon, 0, 1)
        check_range("lam_margin", lam_margin, 0, 0.5)
        check_range("block_lr", block_lr, 0, math.inf)
        check_range("block_share", block_share, 0, 1)
        check_whole("num_classes", num_classes, 1)
        tap = find_tap(model, layer, channels)
        if isinstance(mix_block, str | Path):
            mix_block = load_mix_block(Path(mix_block))
        if mix_block is None:
            classes = (num_classes or count_classes(model)) if by_label else None
            mix_block = MixBlock(tap.channels, paper=paper, classes=classes, **block_options)
        elif block_options or mix_block.channels != tap.channels:
            raise ValueError(
                f"mix_block is for {mix_block.channels} channels, layer {layer} has {tap.channels}: "
                "accepted is a block for as many, and no further options for it"
            )
        elif mix_block.classes is not None and mix_block.classes != (known := num_classes or count_classes(model)):
            raise ValueError(
                f"mix_block is for {mix_block.classes} classes, there are {known}: accepted is a block for as many"
            )
        clean = second_loss == "clean"
        super().__init__(
            model, momentum=momentum, one_hot_loss=clean, mix_until=mix_until, criterion=criterion, seed=seed
        )
        self.tap = tap
        self.mix_block = mix_block
        self.second_loss = second_loss
        self.alpha = alpha
        self.gamma = gamma
        self.epsilon = epsilon
        self.lam_margin = lam_margin
        self.block_lr = block_lr
        self.block_share = block_share
        self.per_sample = per_sample

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        some = x[: math.ceil(self.block_share * len(x))]
        q = self.draw(some if self.second_loss == "joined" else x, generator)
        if self.teacher is None:
            return self._joint_step(x, y, q, generator)
        return self._momentum_step(x, y, q, self.draw(some, generator), generator)

    def _momentum_step(self, x: Tensor, y: Tensor, q: Pairs, k: Pairs, generator: torch.Generator) -> StepOutput:
        assert self.teacher is not None
        with torch.no_grad():
            z = self.tap(self.teacher, x[: len(q.index)])
            mixed_q = self._mix(x, y, z, q, generator)
        losses, logits, target = self._classification_losses(x, y, mixed_q, generator)
        losses = {name: self.backward_early(loss) for name, loss in losses.items()}
        if any(parameter.requires_grad for parameter in self.mix_block.parameters()):
            losses |= self.generation_losses(x, y, z, k, generator)
        return step_output(losses, logits, target, _mask_metrics(mixed_q))

    def generation_losses(
        self, x: Tensor, y: Tensor, z: Tensor, pairs: Pairs, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """The Mix Block's terms (Eq. 8): l_MCE of the teacher on its samples, and l_lambda."""
        assert self.teacher is not None
        mixed = self._mix(x, y, z, pairs, generator)
        return {"loss_generation": self.criterion(mixed.target, self.teacher(mixed.x)), **self._lambda_loss(mixed)}

    def _joint_step(self, x: Tensor, y: Tensor, pairs: Pairs, generator: torch.Generator) -> StepOutput:
        with batch_norm_hint(x):
            z = self.tap(self.student, x[: len(pairs.index)])
        mixed = self._mix(x, y, z, pairs, generator)
        losses, logits, target = self._classification_losses(x, y, mixed, generator)
        losses |= self._lambda_loss(mixed)
        return step_output(losses, logits, target, _mask_metrics(mixed))

    def _classification_losses(
        self, x: Tensor, y: Tensor, mixed: Mixed, generator: torch.Generator
    ) -> tuple[dict[str, Tensor], Tensor, MixedTarget]:
        """The student's terms: l_MCE on the Mix Block's samples and its second loss; logits of a batch, its label."""
        if self.second_loss == "joined":
            plain = self._by_mixup(x, y, generator)
            losses, logits = self.classification_loss(x, y, _joined(mixed, plain))
            return losses, logits[len(mixed.x) :], plain.target
        losses, logits = self.classification_loss(x, y, mixed)
        if self.second_loss in ("rising", "mixup"):
            losses["loss_mixed"] = self.backward_early(losses["loss_mixed"])
            plain = self._by_mixup(x, y, generator)
            losses["loss_mixup"] = self.criterion(plain.target, self.student(plain.x))
        return losses, logits, mixed.target

    def clean_step(self, x: Tensor, y: Tensor) -> StepOutput:
        out = super().clean_step(x, y)
        if is_distributed():  # where every parameter has to take part in every step
            idle = [parameter.sum() for parameter in self.mix_block.parameters() if parameter.requires_grad]
            out.loss = torch.stack([out.loss, *(0 * number for number in idle)]).sum()
        return out

    def backward_early(self, loss: Tensor) -> Tensor:
        return (
            loss if self.teacher is None else super().backward_early(loss)
        )  # trained jointly, the terms share a graph

    def _lambda_loss(self, mixed: Mixed) -> dict[str, Tensor]:
        """l_lambda (Eq. 7), for each mask and then averaged; gamma falls linearly to 0 over the training.

        There is none where the mean of a mask is lam by construction.
        """
        if self.mix_block.exact_mean:
            return {}
        gap = (mixed.target.lam - mixed.mask.mean(dim=(1, 2, 3))).abs()
        return {"loss_lambda": self.gamma * (1 - self.progress) * (gap - self.epsilon).clamp(min=0).mean()}

    def _mix(
        self, x: Tensor, y: Tensor, z: Tensor, pairs: Pairs, generator: torch.Generator, seen: Tensor | None = None
    ) -> Mixed:
        """h_phi (Eq. 4): blend each image with its partner by the Mix Block's mask; the first images, one a pair.

        The masks go by the labels `y`, or by `seen` in their place.
        """
        lam, index = pairs.lam, pairs.index
        x, y, z = (part[: len(index)] for part in (x, y, z))
        seen = y if seen is None else seen
        size = (x.shape[-2], x.shape[-1])
        mask = self.mix_block(z, z[index], lam, size, labels=(seen, seen[index]), generator=generator)
        flat = torch.minimum(lam, 1 - lam) <= self.lam_margin
        # `where`, not a branch: no wait for the device, and under DDP every rank uses every parameter in every step
        mask = torch.where(as_map(flat), as_map(lam).to(mask.dtype), mask)
        return Mixed(blend(x, index, mask), MixedTarget(y, y[index], lam), mask)

    def draw(
        self,
        x: Tensor,
        generator: torch.Generator,
        lam: float | Tensor | None = None,
        index: Tensor | None = None,
    ) -> Pairs:
        """Partners and lam for a batch; what is given stays."""
        lam = draw_lam(x, self.alpha, lam=lam, per_sample=self.per_sample, generator=generator)
        return Pairs(lam, draw_index(x, index=index, generator=generator))

    def _by_mixup(self, x: Tensor, y: Tensor, generator: torch.Generator) -> Mixed:
        """The second loss's samples; an alpha that rises goes from (nearly) 0, where images stay clean, to 1."""
        alpha = self.alpha if self.second_loss == "mixup" else max(self.progress, LOWEST_ALPHA)
        return mixup(x, y, alpha, per_sample=self.per_sample, generator=generator)

    def mix(
        self, x: Tensor, y: Tensor | None = None, *, lam: float | Tensor | None = None, index: Tensor | None = None
    ) -> Mixed:
        """As for any task; without `y` the masks go by the classes that the classifier sees."""
        if y is not None:
            return super().mix(x, y, lam=lam, index=index)
        positions = torch.arange(len(x), device=x.device)
        check_batch(x, positions)
        with torch.no_grad(), eval_mode(self.classifier):
            seen = self.classifier(x).argmax(dim=1)
            generator = step_generator(self.seed, self.step)
            return self.make_mixed(x, positions, lam=lam, index=index, generator=generator, seen=seen)

    def make_mixed(
        self,
        x: Tensor,
        y: Tensor,
        *,
        lam: float | Tensor | None,
        index: Tensor | None,
        generator: torch.Generator,
        seen: Tensor | None = None,
    ) -> Mixed:
        pairs = self.draw(x, generator, lam, index)
        with eval_mode(self.classifier):
            z = self.tap(self.classifier, x)
        return self._mix(x, y, z, pairs, generator, seen)

    def diagnose(self, x: Tensor, y: Tensor) -> tuple[dict[str, float], dict[str, str]]:
        """Spread and mean of the masks, and how well the teacher recognizes both images; see instruments.py."""
        if y.ndim != 1:  # more than one class in an image: nothing to count
            return {}, {}
        numbers = diagnose(self, x, y)
        return numbers, mask_warnings(numbers) if self.step >= WARMUP_STEPS else {}

    def param_groups(self, lr: float, **options: Any) -> list[dict[str, Any]]:
        """The student's group, and the Mix Block's with `block_lr` times its learning rate."""
        groups = super().param_groups(lr, **options)
        if parameters := list(self.mix_block.parameters()):
            groups.append({"name": "mix_block", "params": parameters, "lr": self.block_lr * lr, **options})
        return groups


def _joined(first: Mixed, second: Mixed) -> Mixed:
    """The two batches as one, for one pass."""
    a, b = first.target, second.target
    lam = torch.cat([one.target.lam.expand(len(one.x)) for one in (first, second)])
    target = MixedTarget(torch.cat([a.y_a, b.y_a]), torch.cat([a.y_b, b.y_b]), lam, a.multi_label)
    return Mixed(torch.cat([first.x, second.x]), target, torch.cat([first.mask, second.mask]))


def _mask_metrics(mixed: Mixed) -> dict[str, Tensor]:
    """Over the batch: how much the masks vary over their pixels, and how far their means are from lam."""
    gap = (mixed.mask.float().mean(dim=(1, 2, 3)) - mixed.target.lam).abs()
    return {"mask_spread": mask_spread(mixed.mask).mean(), "lam_gap": gap.mean()}
