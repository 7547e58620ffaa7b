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
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.criteria import Criterion
from automix.core.draws import draw_index, draw_lam, draw_weights, step_generator
from automix.core.objects import label_by_objects
from automix.core.target import Mixed, MixedTarget, join_mixed
from automix.core.tensor_checks import check_batch
from automix.core.validation import check_whole
from automix.methods.automix.diagnostics import diagnose, mask_warnings
from automix.methods.automix.make_block import make_block
from automix.methods.automix.mask_loss import lambda_loss, mask_metrics
from automix.methods.automix.mix_block import MixBlock
from automix.methods.automix.mix_block_task import MixBlockTask
from automix.methods.automix.mixing import blend_again, mix_images
from automix.methods.automix.pairs import Pairs, draw_pairs
from automix.methods.automix.settings import AutoMixSettings
from automix.methods.mixup import mixup
from automix.networks.feature_tap import find_tap
from automix.networks.modes import eval_mode
from automix.networks.outputs import logits_of, run_network
from automix.tasks.step_output import StepOutput
from automix.tasks.teacher_objects import TeacherObjects

LOWEST_ALPHA = 0.02  # Beta(0.02, 0.02) is 0 or 1 but for one draw in twenty: images as good as clean
WARMUP_STEPS = 200  # before that, flat masks are no reason for a warning

DEFAULT_LAYER = 3

StudentLosses = tuple[dict[str, Tensor], Tensor, MixedTarget]
"""Loss terms by name, and logits and target of the batch whose accuracy is logged."""


class AutoMix(MixBlockTask):
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
        block = make_block(
            mix_block, model, layer, tap.channels, settings=settings, overrides=overrides, num_classes=num_classes
        )
        super().__init__(
            model, tap, block, settings, criterion=criterion, seed=seed, total_steps=total_steps, low_memory=low_memory
        )
        self.preset = preset
        self.teacher_objects = None if settings.objects is None else TeacherObjects()

    def extra_repr(self) -> str:
        """Return the preset and all settings, for ``repr``."""
        fields = ", ".join(f"{name}={value!r}" for name, value in self.settings.to_dict().items())
        return f"preset={self.preset!r}, {fields}"

    # --- one training step: Algorithm 1

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        settings = self.settings
        student_share = settings.block_share if settings.aux_loss == "joined" else settings.mix_share
        q = self._draw_of(x, student_share, generator)
        if self.teacher is None:
            return self._joint_step(x, y, q, generator)
        k = self._draw_of(x, settings.block_share, generator)
        with torch.no_grad():
            z = self.tap(self.teacher, x[: max(len(q.index), len(k.index))])
            mixed_q = mix_images(self.mix_block, x, y, z, q, margin=settings.lam_margin, generator=generator)  # Eq. 4
            labeled_q = self._label_by_objects(mixed_q, x, y)
        if x.requires_grad:
            labeled_q = blend_again(labeled_q, x, q.index)
        losses, logits, target = self.student_losses(x, y, labeled_q, generator)  # gradient to theta_q
        if self.trained_block():
            losses = self.release(losses) | self.generation_losses(x, y, z, k, generator)  # gradient to phi
        return self.output(losses, logits, target, mask_metrics(mixed_q))

    def student_losses(self, x: Tensor, y: Tensor, mixed: Mixed, generator: torch.Generator) -> StudentLosses:
        """Compute the student's terms: l_MCE on the Mix Block's samples, and l_aux.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            mixed: The Mix Block's samples of the first images.
            generator: Source of randomness.

        Returns:
            The terms by name, logits and their target.
        """
        aux_loss = self.settings.aux_loss
        if aux_loss == "joined":
            plain = self._mixup_samples(x, y, generator)
            both = join_mixed(mixed, plain)
            logits = self.run_student(both.x)
            return {"loss_mixed": self.loss(logits, both.target)}, logits[len(mixed.x) :], plain.target
        losses, logits, target = self.mixed_losses(x, y, mixed, generator)
        if aux_loss == "clean":
            losses = self.release(losses) | self.clean_term(x, y)
        elif aux_loss != "none":
            losses = self.release(losses)
            plain = self._mixup_samples(x, y, generator)
            losses["loss_mixup"] = self.loss(self.run_student(plain.x), plain.target)
        return losses, logits, target

    def mixed_losses(self, x: Tensor, y: Tensor, mixed: Mixed, generator: torch.Generator) -> StudentLosses:
        """Compute l_MCE of the student on the Mix Block's samples and the rest of the batch, in one pass.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            mixed: The Mix Block's samples of the first images.
            generator: Source of randomness.

        Returns:
            The term, logits and their target.
        """
        count = len(mixed.x)
        if count < len(x):
            mixed = join_mixed(mixed, self._rest(x[count:], y[count:], generator))
        logits = self.run_student_mixed(mixed.x)
        return {"loss_mixed": self.loss(logits, mixed.target)}, logits, mixed.target

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
        mixed = mix_images(self.mix_block, x, y, z, pairs, margin=self.settings.block_margin, generator=generator)
        return {"loss_generation": self.loss(self.predict_mixed(mixed.x), mixed.target), **self._lambda_loss(mixed)}

    def _joint_step(self, x: Tensor, y: Tensor, pairs: Pairs, generator: torch.Generator) -> StepOutput:
        """Student and Mix Block on one loss, without a teacher."""
        z = run_network(partial(self.tap, self.student), x[: len(pairs.index)])
        mixed = mix_images(self.mix_block, x, y, z, pairs, margin=self.settings.lam_margin, generator=generator)
        losses, logits, target = self.student_losses(x, y, mixed, generator)
        return self.output({**losses, **self._lambda_loss(mixed)}, logits, target, mask_metrics(mixed))

    def may_release(self, x: Tensor) -> bool:
        return self.teacher is not None and super().may_release(x)  # the terms of a joint step share a graph

    def _lambda_loss(self, mixed: Mixed) -> dict[str, Tensor]:
        """l_lambda; there is none where the mean of a mask is lam by construction."""
        return {} if self.mix_block.exact_mean else {"loss_lambda": lambda_loss(mixed, self.settings, self.progress)}

    def _label_by_objects(self, mixed: Mixed, x: Tensor, classes: Tensor) -> Mixed:
        """The student's samples with labels by visible object; as they are without `objects`.

        Samples of the Mix Block's own loss keep lam. With a label that follows the mask, hiding one of the two images
        would cost nothing: the easiest sample shows one object alone and is labeled so.
        """
        if self.teacher_objects is None:
            return mixed
        count = len(mixed.x)
        objects = self.teacher_objects(self.classifier, x[:count], classes[:count])
        return label_by_objects(mixed, objects, self.settings.objects_rule, self.settings.objects_weight)

    def _rest(self, x: Tensor, y: Tensor, generator: torch.Generator) -> Mixed:
        """The images that the Mix Block does not mix, as the student sees them."""
        return Mixed.clean(x, y) if self.settings.rest == "clean" else self._mixup_samples(x, y, generator)

    def _mixup_samples(self, x: Tensor, y: Tensor, generator: torch.Generator) -> Mixed:
        """The samples of l_aux; a ramp of alpha goes from (nearly) 0, where images stay clean, to 1."""
        settings = self.settings
        alpha = settings.alpha if settings.aux_loss == "mixup" else max(self.progress, LOWEST_ALPHA)
        return mixup(x, y, alpha, per_sample=settings.per_sample, generator=generator)

    # --- draws

    def draw(self, x: Tensor, generator: torch.Generator, *, distinct: bool = False) -> Pairs:
        """Draw lam and partners for the images that the Mix Block mixes; with `images`, weights and partners.

        Args:
            x: The images to pair.
            generator: Source of randomness.
            distinct: Pair no image with itself.

        Returns:
            The pairs.
        """
        return draw_pairs(x, self.settings, self.draw_weights, generator, distinct=distinct)

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

    def _draw_of(self, x: Tensor, share: float, generator: torch.Generator) -> Pairs:
        """Pairs of the first images, a share of the batch.

        In a part of a batch no image is paired with itself: a permutation of 4 images leaves one in place on average,
        from which the Mix Block would learn nothing.
        """
        part = x[: math.ceil(share * len(x))]
        return self.draw(part, generator, distinct=self.settings.distinct_pairs or len(part) < len(x))

    # --- what a training script asks for

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
            margin = self.settings.lam_margin
            mixed = mix_images(self.mix_block, x, y, z, pairs, margin=margin, classes=classes, generator=generator)
        return self._label_by_objects(mixed, x, y if classes is None else classes)

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
