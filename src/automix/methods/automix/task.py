"""AutoMix (Liu et al., ECCV 2022): the Mix Block, trained by the classifier's own loss through a momentum teacher.

One step (Algorithm 1), with two draws of lam and of partners, one for the classifier (q), one for the Mix Block (k):

    z = f_k(x) up to layer l                                   no gradient
    x_q = h(x, z, lam_q, index_q)                              Eq. 4, no gradient
    x_k = h(x, z, lam_k, index_k)                              Eq. 4, gradient to phi
    L = l_aux(f_q(x)) + l_MCE(f_q(x_q))                        classification: gradient to theta_q
      + l_MCE(f_k(x_k)) [+ l_lambda(s_k)]                      generation: gradient to phi       (Eq. 8)

x_q carries no graph and the teacher f_k takes no gradient. One backward pass of the sum is therefore the alternating
optimization of Eq. 10-11: each loss reaches its own parameters only, and the entanglement of Eq. 9 cannot arise.
`update` then moves the teacher (Eq. 12).

l_aux, the student's loss beside the mixed samples, is l_CE on the clean images in the paper. That learns fast and
overfits small data. In the preset "tuned" it turns into Mixup's loss during the training, and the end of the training
is on clean images alone.

In the presets "paper" and "reference" f_q and f_k have two heads, one for clean images and one for mixed ones
(`mixed_head`). The text of the paper names one, but the parameters of its Table 11 are those of two, and the authors'
code has two. Test images are clean: `deploy` returns the teacher with the head for clean images. The authors' code uses
the same head where features are extracted; its test reports all of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.blend import as_map, blend, blend_many, chain_members, mask_spread
from automix.core.criteria import Criterion
from automix.core.distributed import is_distributed
from automix.core.draws import draw_cycle, draw_index, draw_lam, draw_one, draw_weights, step_generator
from automix.core.errors import AutomixError
from automix.core.objects import label_by_objects
from automix.core.target import Mixed, MixedTarget, join_mixed
from automix.core.tensor_checks import check_batch
from automix.core.validation import check_whole
from automix.methods.automix.block_file import without_classes
from automix.methods.automix.diagnostics import diagnose, mask_warnings
from automix.methods.automix.many_images import LOWEST_WEIGHT, masks_of_many
from automix.methods.automix.mix_block import MixBlock, flatten_within
from automix.methods.automix.settings import DECIDED_BY_BLOCK, AutoMixSettings
from automix.methods.automix.trained_block import open_block
from automix.methods.mixup import mixup
from automix.networks.feature_tap import count_classes, find_tap
from automix.networks.head import SecondHead
from automix.networks.modes import eval_mode
from automix.networks.outputs import logits_of
from automix.networks.teacher import follow, make_teacher, momentum_at
from automix.tasks.task import LossTerms, StepOutput, Task, batch_norm_hint
from automix.tasks.teacher_objects import TeacherObjects

LOWEST_ALPHA = 0.02  # Beta(0.02, 0.02) is 0 or 1 but for one draw in twenty: images as good as clean
CHECKED_STEP = 20  # by then the Mix Block must have moved
WARMUP_STEPS = 200  # before that, flat masks are no reason for a warning

DEFAULT_LAYER = 3


@dataclass(frozen=True)
class Pairs:
    """Which images are mixed, and how much of each.

    Attributes:
        lam: Share of the first image, ``()`` or ``(N,)``.
        index: Position of each image's partner, ``(N,)``.
        weights: Weights of the images in mixtures of K images, ``(K,)`` or ``(N, K)``; the first one is `lam`. None for
            pairs.
    """

    lam: Tensor
    index: Tensor
    weights: Tensor | None = None


class AutoMix(Task):
    """Train a network with AutoMix; `deploy` returns the teacher.

    ``preset="tuned"`` is the form that experiments chose. ``preset="fast"`` costs about as much as plain Mixup
    (docs/results/automix-cost.md). ``preset="finetune"`` is for pretrained networks: half of each batch is mixed, the
    other half stays clean. ``preset="paper"`` is the algorithm and the Mix Block as published, ``preset="reference"``
    adds what the authors' code has where the paper is silent. ``preset="samix"`` is the successor SAMix (Li et al.,
    2021): the same algorithm with another block and mask loss. Every field of `AutoMixSettings` can be changed by
    keyword: ``AutoMix(model, preset="paper", gamma=0)``.

    Args:
        model: The network to train.
        layer: The stage, 1 to 4, whose feature map feeds the Mix Block, or the name of a submodule.
        preset: "tuned", "fast", "finetune", "paper", "reference" or "samix".
        mix_block: A Mix Block that was trained before: the module, its file, the folder of a run, or "zoo:NAME", one
            that comes with the package; `automix models` lists these. It fits networks that start from the same weights
            as the one it was trained with. ``class_vectors=False`` drops its class vectors, for other classes.
        num_classes: Number of classes; found by looking at the network if not given.
        channels: Channels of the feature map; found by a trial run if not given.
        criterion: ``criterion(logits, target)``; chosen by the labels if not given.
        seed: Seed of all draws.
        total_steps: Number of optimizer steps of the whole training; if given, `update` needs no `progress`.
        low_memory: Back-propagate each loss term as soon as it is computed; see `Task`.
        **overrides: Fields of `AutoMixSettings` with other values than the preset's.
    """

    learns_to_mix = True
    image_functions = ("tap", "teacher_objects")

    def __init__(
        self,
        model: nn.Module,
        layer: int | str = DEFAULT_LAYER,
        *,
        preset: str = "tuned",
        mix_block: MixBlock | Path | str | None = None,
        num_classes: int | None = None,
        channels: int | None = None,
        criterion: Criterion | None = None,
        seed: int = 0,
        total_steps: int | None = None,
        low_memory: bool = False,
        **overrides: Any,
    ) -> None:
        settings = AutoMixSettings.from_preset(preset, **overrides)
        check_whole("num_classes", num_classes, 1)
        tap = find_tap(model, layer, channels)
        if mix_block is None:
            classes = (num_classes or count_classes(model)) if settings.class_vectors else None
            mix_block = MixBlock(tap.channels, classes, **settings.block_options())
        else:
            given = [name for name in DECIDED_BY_BLOCK if name in overrides]
            if drop_classes := overrides.get("class_vectors") is False:
                given.remove("class_vectors")
            if given:
                raise AutomixError(f"{given[0]} must not be given with a mix_block, which has its own")
            mix_block = open_block(mix_block, model, layer, tap.channels)
            if drop_classes:
                mix_block = without_classes(mix_block)
            _check_classes(mix_block, lambda: num_classes or count_classes(model))
        super().__init__(
            model,
            momentum=settings.momentum,
            one_hot_loss=settings.aux_loss == "clean",
            mix_until=settings.mix_until,
            mix_fade=settings.mix_fade,
            criterion=criterion,
            seed=seed,
            total_steps=total_steps,
            low_memory=low_memory,
        )
        self.tap = tap
        self.mix_block = mix_block
        if settings.block_lr == 0:
            mix_block.requires_grad_(False)  # so that its loss is not computed
        self.preset = preset
        self.settings = settings
        self.mixed_head = SecondHead(model) if settings.mixed_head else None
        self.teacher_mixed_head = (
            None if self.mixed_head is None or self.teacher is None else make_teacher(self.mixed_head)
        )
        if self.teacher is not None and settings.teacher_batch_norm == "train":
            self.teacher.train()
        self.teacher_objects = None if settings.objects is None else TeacherObjects()
        self._resting: list[Tensor] | None = None
        self._first_weight: Tensor | None = None

    def extra_repr(self) -> str:
        """Return the preset and all settings, for ``repr``."""
        fields = ", ".join(f"{name}={value!r}" for name, value in self.settings.to_dict().items())
        return f"preset={self.preset!r}, {fields}"

    # --- one training step

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        settings = self.settings
        mix_share = settings.block_share if settings.aux_loss == "joined" else settings.mix_share
        learned, mixed = (x[: math.ceil(share * len(x))] for share in (settings.block_share, mix_share))
        q = self.draw(mixed, generator, distinct=settings.distinct_pairs or len(mixed) < len(x))
        if self.teacher is None:
            return self._joint_step(x, y, q, generator)
        k = self.draw(learned, generator, distinct=settings.distinct_pairs or len(learned) < len(x))
        return self._momentum_step(x, y, q, k, generator)

    def _momentum_step(self, x: Tensor, y: Tensor, q: Pairs, k: Pairs, generator: torch.Generator) -> StepOutput:
        assert self.teacher is not None
        with torch.no_grad():
            z = self.tap(self.teacher, x[: max(len(q.index), len(k.index))])
            mixed_q = self._mix(x, y, z, q, generator)
            labeled_q = self._label_by_objects(mixed_q, x, y)
        if x.requires_grad and labeled_q.index is not None:  # the mask is a constant, the images are not
            labeled_q = replace(labeled_q, x=blend(x[: len(q.index)], labeled_q.index, labeled_q.mask))
        if x.requires_grad and labeled_q.masks is not None:
            members = chain_members(q.index, labeled_q.masks.shape[1])
            labeled_q = replace(labeled_q, x=blend_many(x[: len(q.index)], members, labeled_q.masks))
        answers, terms = self._classification_terms(x, y, labeled_q, generator)
        if self._trained_block():
            terms.append(partial(self.generation_losses, x, y, z, k, generator))
        losses = self.compute_terms(*terms)
        return self.output(losses, *answers[0], _mask_metrics(mixed_q))

    def generation_losses(
        self, x: Tensor, y: Tensor, z: Tensor, pairs: Pairs, generator: torch.Generator
    ) -> dict[str, Tensor]:
        """Compute the Mix Block's terms (Eq. 8): l_MCE of the teacher on its samples, and l_lambda.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            z: Their feature maps.
            pairs: The pairs to mix.
            generator: Source of randomness.

        Returns:
            The terms by name.
        """
        mixed = self._mix(x, y, z, pairs, generator, margin=self.settings.block_margin)
        return {"loss_generation": self.loss(self.predict_mixed(mixed.x), mixed.target), **self._lambda_loss(mixed)}

    def predict_mixed(self, x: Tensor) -> Tensor:
        """Run the classifier on mixed images, with its head for mixed images if it has one.

        Args:
            x: Mixed images, ``(N, C, H, W)``.

        Returns:
            Logits, ``(N, num_classes)``.
        """
        head = self.mixed_head if self.teacher is None else self.teacher_mixed_head
        return logits_of(self.classifier(x)) if head is None else head(self.classifier, x)

    def _joint_step(self, x: Tensor, y: Tensor, pairs: Pairs, generator: torch.Generator) -> StepOutput:
        """Student and Mix Block on one loss; the terms share a graph, so that none is back-propagated early."""
        with batch_norm_hint(x):
            z = self.tap(self.student, x[: len(pairs.index)])
        mixed = self._mix(x, y, z, pairs, generator)
        answers, terms = self._classification_terms(x, y, mixed, generator)
        losses = {name: loss for term in terms for name, loss in term().items()}
        return self.output({**losses, **self._lambda_loss(mixed)}, *answers[0], _mask_metrics(mixed))

    def _classification_terms(
        self, x: Tensor, y: Tensor, mixed: Mixed, generator: torch.Generator
    ) -> tuple[list[tuple[Tensor, MixedTarget]], list[LossTerms]]:
        """The student's terms, l_MCE on the Mix Block's samples and l_aux, and where their logits will be."""
        answers: list[tuple[Tensor, MixedTarget]] = []

        def joined_term() -> dict[str, Tensor]:
            plain = self._mixup_samples(x, y, generator)
            both = join_mixed(mixed, plain)
            logits = self.run_student(both.x)
            answers.append((logits[len(mixed.x) :], plain.target))
            return {"loss_mixed": self.loss(logits, both.target)}

        def mixup_term() -> dict[str, Tensor]:
            plain = self._mixup_samples(x, y, generator)
            return {"loss_mixup": self.loss(self.run_student(plain.x), plain.target)}

        mixed_term = partial(self._mixed_term, x, y, mixed, generator, answers)
        aux: dict[str, list[LossTerms]] = {
            "joined": [joined_term],
            "clean": [mixed_term, partial(self.clean_term, x, y)],
            "mixup": [mixed_term, mixup_term],
            "mixup-ramp": [mixed_term, mixup_term],
            "none": [mixed_term],
        }
        return answers, aux[self.settings.aux_loss]

    def _mixed_term(
        self, x: Tensor, y: Tensor, mixed: Mixed, generator: torch.Generator, answers: list[tuple[Tensor, MixedTarget]]
    ) -> dict[str, Tensor]:
        """l_MCE of the student on the samples and the rest of the batch; logits and target join `answers`."""
        count = len(mixed.x)
        batch = join_mixed(mixed, self._rest(x[count:], y[count:], generator)) if count < len(x) else mixed
        answers.append((self._run_student_mixed(batch.x), batch.target))
        return {"loss_mixed": self.loss(*answers[0])}

    def _run_student_mixed(self, x: Tensor) -> Tensor:
        if self.mixed_head is None:
            return self.run_student(x)
        with batch_norm_hint(x):
            return self.mixed_head(self.student, x)

    def clean_step(self, x: Tensor, y: Tensor) -> StepOutput:
        """Compute the loss of plain training; the Mix Block and the head for mixed images rest.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.

        Returns:
            The step's output.
        """
        out = super().clean_step(x, y)
        if is_distributed():
            # DistributedDataParallel wants every parameter in every step. The zero gradients would still feed the
            # optimizer's momentum and weight decay, so that `update` puts the weights back.
            trained = self._resting_parameters()
            out["loss"] = torch.stack([out.loss, *(0 * parameter.sum() for parameter in trained)]).sum()
            if self._resting is None:
                self._resting = [parameter.detach().clone() for parameter in trained]
        return out

    def update(self, progress: float | None = None) -> None:
        """Advance the teacher and the schedules; call after every optimizer step.

        Args:
            progress: Part of the training that is done, in [0, 1]; computed from the step count if the task knows its
                `total_steps`.
        """
        if self._resting is not None:
            with torch.no_grad():
                for parameter, saved in zip(self._resting_parameters(), self._resting, strict=True):
                    parameter.copy_(saved)
            self._resting = None
        self._check_optimizer()
        self._check_learning_rate()
        super().update(progress)

    def move_teacher(self, progress: float) -> None:
        """Let the teacher follow the student (Eq. 12), its head for mixed images too.

        Args:
            progress: Part of the training that is done, in [0, 1].
        """
        assert self.teacher is not None
        settings = self.settings
        hold, warmup = settings.momentum_hold, settings.momentum_warmup
        m = momentum_at(self.step, progress, self.momentum or 0.0, hold=hold, warmup=warmup)
        follow(self.teacher, self.student, m, buffers=settings.teacher_batch_norm == "eval")
        if self.mixed_head is not None and self.teacher_mixed_head is not None:
            follow(self.teacher_mixed_head, self.mixed_head, m)

    def networks(self) -> list[nn.Module]:
        """List the networks that `compile` compiles: student, teacher and Mix Block.

        Returns:
            The networks.
        """
        return [*super().networks(), self.mix_block]

    def train(self, mode: bool = True) -> "AutoMix":
        """Set the training mode; the teacher stays in eval mode, unless ``teacher_batch_norm="train"``.

        Args:
            mode: True to train, False to evaluate.

        Returns:
            The task.
        """
        super().train(mode)
        if self.teacher is not None and self.settings.teacher_batch_norm == "train":
            self.teacher.train(mode)
        return self

    def _resting_parameters(self) -> list[nn.Parameter]:
        """The parameters that a step on clean images does not train, besides frozen ones."""
        return self._trained_block() + ([] if self.mixed_head is None else list(self.mixed_head.parameters()))

    def _trained_block(self) -> list[nn.Parameter]:
        """The parameters of the Mix Block that are trained; none of random grids or a frozen block."""
        return [parameter for parameter in self.mix_block.parameters() if parameter.requires_grad]

    def _check_optimizer(self) -> None:
        """Warn if the optimizer does not know the Mix Block, whose weights then never change."""
        if self.step not in (0, CHECKED_STEP) or self.settings.block_lr == 0 or not self.mix_block.attention:
            return
        weight = self.mix_block.value_weight
        if not weight.requires_grad:
            return
        if self.step == 0:
            self._first_weight = weight.detach().clone()
        elif self._first_weight is not None and torch.equal(weight, self._first_weight):
            self._warn_once(
                "optimizer", "the Mix Block is not trained: build the optimizer from task.param_groups(lr=...)"
            )

    def _check_learning_rate(self) -> None:
        """Warn if a scheduler gave all groups one learning rate, as OneCycleLR does with a single `max_lr`."""
        rates = {group["name"]: group.get("initial_lr") for group in self._groups if "name" in group}
        self._groups = []  # looked at once, after the first step
        student, block = rates.get("student"), rates.get("mix_block")
        if student and block is not None and not math.isclose(block, self.settings.block_lr * student, rel_tol=1e-3):
            self._warn_once(
                "learning rate",
                f"the scheduler set the Mix Block's learning rate to {block / student:g} times the student's instead "
                f"of {self.settings.block_lr:g}: give it a list, such as OneCycleLR(optimizer, "
                "max_lr=[group['lr'] for group in optimizer.param_groups], ...)",
            )

    def _lambda_loss(self, mixed: Mixed) -> dict[str, Tensor]:
        """l_lambda (Eq. 7), for each mask and then averaged; gamma falls linearly to 0 over the training.

        There is none where the mean of a mask is lam by construction.
        """
        if self.mix_block.exact_mean:
            return {}
        if mixed.masks is None:
            gap = (mixed.target.lam - mixed.mask.mean(dim=(1, 2, 3))).abs()
            variance = mixed.mask.var(dim=(1, 2, 3), correction=0)
        else:
            gap = (mixed.target.weights - mixed.masks.mean(dim=(2, 3))).abs()
            variance = mixed.masks.var(dim=(2, 3), correction=0)
        gamma = self.settings.gamma * (1 - self.progress)
        loss = (gap - self.settings.epsilon).clamp(min=0).mean()
        if self.settings.variance_reward:  # SAMix
            loss = loss - self.settings.variance_reward * variance.mean()
        return {"loss_lambda": gamma * loss}

    # --- mixing

    def _mix(
        self,
        x: Tensor,
        y: Tensor,
        z: Tensor,
        pairs: Pairs,
        generator: torch.Generator,
        *,
        classes: Tensor | None = None,
        margin: float | None = None,
    ) -> Mixed:
        """h_phi (Eq. 4): blend each image with its partner by the Mix Block's mask.

        Only the first images are mixed, as many as there are pairs. The masks follow the labels `y`, or `classes`. They
        are flat within the `margin`, `lam_margin` if not given.
        """
        lam, index = pairs.lam, pairs.index
        x, y, z = (part[: len(index)] for part in (x, y, z))
        classes = y if classes is None else classes
        margin = self.settings.lam_margin if margin is None else margin
        if pairs.weights is not None:
            return self._mix_many(x, y, z, pairs.weights, index, classes, margin)
        size = (x.shape[-2], x.shape[-1])
        mask = self.mix_block(z, z[index], lam, size, labels=(classes, classes[index]), generator=generator)
        mask = flatten_within(margin, mask, lam)
        return Mixed(blend(x, index, mask), MixedTarget(y, y[index], lam), mask, index)

    def _mix_many(
        self, x: Tensor, y: Tensor, z: Tensor, weights: Tensor, index: Tensor, classes: Tensor, margin: float
    ) -> Mixed:
        """`_mix` for K images: i, index[i], index[index[i]], ...

        With `exact_mean`, masks are also flat where a weight is too small for a mask of that mean.
        """
        members = chain_members(index, weights.shape[-1])
        masks = self.masks_of_many(z, members, weights, (x.shape[-2], x.shape[-1]), classes)
        flat = 1 - weights.amax(dim=-1) <= margin
        if self.mix_block.exact_mean:
            flat = flat | (weights.amin(dim=-1) < LOWEST_WEIGHT)
        masks = torch.where(as_map(flat), weights.reshape(-1, len(members), 1, 1).to(masks.dtype), masks)
        target = MixedTarget.of([y[of_image] for of_image in members], weights)
        mixed = blend_many(x, members, masks)
        if len(members) == 2:
            return Mixed(mixed, target, masks[:, :1], index)
        return Mixed(mixed, target, masks[:, :1], masks=masks)

    def masks_of_many(
        self, z: Tensor, members: Tensor, weights: Tensor, size: tuple[int, int], labels: Tensor
    ) -> Tensor:
        """Compute the masks of mixtures of K images (many_images.py).

        Args:
            z: Feature maps of the batch, ``(N, C, h, w)``.
            members: Positions of the images of each mixture, ``(K, N)``.
            weights: Weights of the images, ``(K,)`` or ``(N, K)``.
            size: Height and width of the images.
            labels: Labels of the batch.

        Returns:
            The masks, ``(N, K, *size)``.
        """
        return masks_of_many(self.mix_block, z, members, weights, size, labels)

    def _label_by_objects(self, mixed: Mixed, x: Tensor, classes: Tensor) -> Mixed:
        """The student's samples with labels by visible object; as they are without `objects`.

        Samples of the Mix Block's own loss keep lam. With a label that follows the mask, hiding one of the two images
        would cost nothing: the easiest sample shows one object alone and is labeled so.
        """
        if self.teacher_objects is None:
            return mixed
        x, classes = (part[: len(mixed.x)] for part in (x, classes))
        objects = self.teacher_objects(self.classifier, x, classes)
        return label_by_objects(mixed, objects, self.settings.objects_rule, self.settings.objects_weight)

    def draw(self, x: Tensor, generator: torch.Generator, *, distinct: bool = False) -> Pairs:
        """Draw lam and partners for the images that the Mix Block mixes; with `images`, weights and partners.

        Args:
            x: The images to pair.
            generator: Source of randomness.
            distinct: Pair no image with itself, which matters for a small part of a batch: a permutation of 4 images
                leaves one in place on average, from which the Mix Block would learn nothing.

        Returns:
            The pairs.
        """
        settings = self.settings
        draw_partners = draw_cycle if distinct else draw_index
        images = settings.images if isinstance(settings.images, int) else draw_one(settings.images, generator)
        if images == 2:
            lam = draw_lam(x, settings.alpha, per_sample=settings.per_sample, generator=generator)
            return Pairs(lam, draw_partners(x, generator=generator))
        weights = self.draw_weights(x, images, generator)
        return Pairs(weights[..., 0], draw_partners(x, generator=generator), weights)

    def draw_weights(self, x: Tensor, images: int, generator: torch.Generator) -> Tensor:
        """Draw the weights of the images in mixtures of more than two.

        Args:
            x: The images to mix.
            images: Number of images in a mixture.
            generator: Source of randomness.

        Returns:
            Weights with sum 1, ``(K,)`` or ``(N, K)``.
        """
        settings = self.settings
        return draw_weights(x, settings.alpha, images, per_sample=settings.per_sample, generator=generator)

    def _rest(self, x: Tensor, y: Tensor, generator: torch.Generator) -> Mixed:
        """The images that the Mix Block does not mix, as the student sees them."""
        return Mixed.clean(x, y) if self.settings.rest == "clean" else self._mixup_samples(x, y, generator)

    def _mixup_samples(self, x: Tensor, y: Tensor, generator: torch.Generator) -> Mixed:
        """The samples of l_aux; a ramp of alpha goes from (nearly) 0, where images stay clean, to 1."""
        settings = self.settings
        alpha = settings.alpha if settings.aux_loss == "mixup" else max(self.progress, LOWEST_ALPHA)
        return mixup(x, y, alpha, per_sample=settings.per_sample, generator=generator)

    def mix(
        self, x: Tensor, y: Tensor | None = None, *, lam: float | Tensor | None = None, index: Tensor | None = None
    ) -> Mixed:
        """Mix a batch as the task would now, to look at it. The task stays as it is.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels. If not given, the label of an image is its position in the batch, and the masks follow the
                classes that the classifier predicts.
            lam: Share of the first image, a number or ``(N,)``; drawn if not given.
            index: Partners, a permutation of ``range(N)``; drawn if not given.

        Returns:
            The mixed images, their target and the mask that was applied.
        """
        if y is not None:
            return super().mix(x, y, lam=lam, index=index)
        positions = torch.arange(len(x), device=x.device)
        check_batch(x, positions)
        with torch.no_grad(), eval_mode(self.classifier):
            classes = logits_of(self.classifier(x)).argmax(dim=1)
            generator = step_generator(self.seed, self.step)
            return self.make_mixed(x, positions, lam=lam, index=index, generator=generator, classes=classes)

    def make_mixed(
        self,
        x: Tensor,
        y: Tensor,
        *,
        lam: float | Tensor | None,
        index: Tensor | None,
        generator: torch.Generator,
        classes: Tensor | None = None,
    ) -> Mixed:
        """Mix a batch without training on it: pairs if `lam` or `index` is given, else as many images as `images` says.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            lam: Share of the first image; drawn if None.
            index: Partners; drawn if None.
            generator: Source of randomness.
            classes: Classes for the masks to follow instead of `y`.

        Returns:
            The mixed batch.
        """
        if lam is None and index is None:
            pairs = self.draw(x, generator)
        else:
            lam = draw_lam(x, self.settings.alpha, lam=lam, per_sample=self.settings.per_sample, generator=generator)
            pairs = Pairs(lam, draw_index(x, index=index, generator=generator))
        with eval_mode(self.classifier):
            z = self.tap(self.classifier, x)
        with eval_mode(self.mix_block):  # its BatchNorm, if it has one
            mixed = self._mix(x, y, z, pairs, generator, classes=classes)
        return self._label_by_objects(mixed, x, y if classes is None else classes)

    # --- what a training script asks for

    def diagnose(self, x: Tensor, y: Tensor) -> tuple[dict[str, float], dict[str, str]]:
        """Measure the masks: spread, mean, and how often the teacher recognizes both images (diagnostics.py).

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their class indices; nothing is measured for multi-label rows.

        Returns:
            Numbers for the log, and warnings for people by kind.
        """
        if y.ndim != 1:
            return {}, {}
        numbers = diagnose(self, x, y, self.predict_mixed)
        return numbers, mask_warnings(numbers) if self.step >= WARMUP_STEPS else {}

    def param_groups(self, lr: float, **options: Any) -> list[dict[str, Any]]:
        """List everything that is trained: the student with its heads, and the Mix Block at `block_lr` times the rate.

        Args:
            lr: Learning rate of the student.
            **options: Further entries of each group, such as ``weight_decay``.

        Returns:
            Parameter groups, each with a ``name``.
        """
        groups = super().param_groups(lr, **options)
        if self.mixed_head is not None:
            groups.append({"name": "mixed_head", "params": list(self.mixed_head.parameters()), "lr": lr, **options})
        if parameters := list(self.mix_block.parameters()):
            block = {"name": "mix_block", "params": parameters, "lr": self.settings.block_lr * lr, **options}
            if self.settings.block_lr_floor is not None:
                block["lr_floor"] = self.settings.block_lr_floor * lr  # for schedules that know it, as `automix train`
            groups.append(block)
        return groups


def _check_classes(block: MixBlock, num_classes: Callable[[], int]) -> None:
    """Raise an error if a Mix Block that was trained before knows other classes than the network."""
    if block.num_classes is not None and block.num_classes != (known := num_classes()):
        raise AutomixError(
            f"mix_block must be for {known} classes, those of the network; got {block.num_classes} "
            "(class_vectors=False uses it without its classes)"
        )


def _mask_metrics(mixed: Mixed) -> dict[str, Tensor]:
    """Over the batch: how much the masks vary over their pixels, and how far their means are from lam."""
    gap = (mixed.mask.float().mean(dim=(1, 2, 3)) - mixed.target.lam).abs()
    return {"mask_spread": mask_spread(mixed.mask).mean(), "lam_gap": gap.mean()}
