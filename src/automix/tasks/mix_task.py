"""The task of every method that mixes images before the network sees them."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.attention_labels import AttentionLabel, label_by_attention
from automix.core.criteria import Criterion
from automix.core.errors import AutomixError
from automix.core.objects import check_objects_rule, check_takes_objects
from automix.core.target import Mixed, MixedTarget, join_mixed
from automix.core.type_checks import check_type
from automix.core.validation import check_options, check_range
from automix.networks.attention import check_attention, watch_attention
from automix.networks.modes import eval_mode
from automix.networks.outputs import logits_of, run_uncompiled
from automix.tasks.step_output import StepOutput
from automix.tasks.task import Task
from automix.tasks.teacher_objects import ObjectsSource, TeacherObjects

TEACHER_MOMENTUM = 0.999  # the paper's


class MixTask(Task):
    """Train on images that a function mixes.

    Args:
        model: The network to train.
        mix: The method's function, ``mix(x, y, lam=..., index=..., generator=..., **options)``.
        look: For functions that need to know how the network sees the images (saliency, attention):
            ``look(task, x, y)`` returns further keywords for `mix`.
        ema: Add the momentum pipeline (the paper's +MP): a teacher follows the student and is deployed.
        momentum: Momentum of that teacher; 0.999 if not given. Only with ``ema=True``.
        one_hot_loss: Add the loss on the clean images (the paper's +CE).
        mix_until: Mix until this part of the training, in [0, 1]; the rest is plain training.
        mix_fade: From this part of the training on, the probability that a batch is mixed falls linearly, to 0 at
            `mix_until`.
        mix_share: Share of each batch that is mixed, in (0, 1]; the other images stay clean, in the same pass.
        prob: Probability that a batch is mixed at all, in [0, 1]; other steps are those of plain training. Drawn once
            for each step, alike in all processes.
        criterion: ``criterion(logits, target)``; chosen by the labels if not given.
        seed: Seed of all draws.
        total_steps: Number of optimizer steps of the whole training; if given, `update` needs no `progress`.
        low_memory: Back-propagate each loss term as soon as it is computed; see `Task`.
        objects: "teacher" labels by visible object (`automix.core.objects`): the object of an image is the class
            activation map of its own label, from the teacher with ``ema=True``, else from the student in eval mode.
            Options `objects_rule` and `objects_weight` go with it. Costs one more forward pass, without gradients.
        attention_label: Label by the student's attention on the mixed images (`automix.core.attention_labels`): "half"
            is TransMix's rule, "progressive" MixPro's. For timm's transformers with a class token, and Swin.
        **options: Options of `mix`.
    """

    image_functions = ("look", "teacher_objects")

    def __init__(
        self,
        model: nn.Module,
        mix: Callable[..., Mixed],
        *,
        look: Callable[["MixTask", Tensor, Tensor], dict[str, Any]] | None = None,
        ema: bool = False,
        momentum: float | None = None,
        one_hot_loss: bool = False,
        mix_until: float = 1.0,
        mix_fade: float | None = None,
        mix_share: float = 1.0,
        prob: float = 1.0,
        criterion: Criterion | None = None,
        seed: int = 0,
        total_steps: int | None = None,
        low_memory: bool = False,
        objects: ObjectsSource | None = None,
        attention_label: AttentionLabel | None = None,
        **options: Any,
    ) -> None:
        if momentum is not None and not ema:
            raise AutomixError(f"momentum must be None without ema=True, got {momentum}")
        if ema and momentum is None:
            momentum = TEACHER_MOMENTUM
        super().__init__(
            model,
            momentum=momentum,
            one_hot_loss=one_hot_loss,
            mix_until=mix_until,
            mix_fade=mix_fade,
            criterion=criterion,
            seed=seed,
            total_steps=total_steps,
            low_memory=low_memory,
        )
        check_options(mix, options)
        check_range("mix_share", mix_share, 0, 1, bounds="(]")
        if mix_share < 1 and type(self).training_step is not MixTask.training_step:
            raise AutomixError(f"mix_share must be 1 for methods that do not mix images alone, got {mix_share}")
        self.mix_share = mix_share
        check_range("prob", prob, 0, 1)
        self.prob = prob
        check_type("objects", objects, ObjectsSource | None)
        if objects is not None:
            check_takes_objects(mix)
            check_objects_rule(options.get("objects_rule", "absolute"), options.get("objects_weight", 1.0))
        elif idle := [name for name in ("objects_rule", "objects_weight") if name in options]:
            raise AutomixError(f"{idle[0]} has no effect without objects='teacher'")
        self.teacher_objects = None if objects is None else TeacherObjects()
        check_type("attention_label", attention_label, AttentionLabel | None)
        if attention_label is not None:
            self._check_attention_label(mix, objects)
        self.attention_label = attention_label
        self.mixer = mix
        self.look = look
        self.options = options

    def _check_attention_label(self, mix: Callable[..., Mixed], objects: ObjectsSource | None) -> None:
        """Check that mask, training step and network permit labels by attention."""
        if objects is not None:
            raise AutomixError(f"objects must be None with attention_label, got {objects!r}")
        has_mask = {"objects", "attention"} & inspect.signature(mix).parameters.keys()
        if not has_mask or type(self).training_step is not MixTask.training_step:
            raise AutomixError(
                f"attention_label must be None for {mix.__name__}: it needs a mask for each pair and no loss of the "
                "method's own"
            )
        check_attention(self.student)

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        count = math.ceil(self.mix_share * len(x))
        mixed = self.draw_mixed(x[:count], y[:count], generator)
        if count < len(x):
            mixed = join_mixed(mixed, Mixed.clean(x[count:], y[count:]))
        if self.attention_label is None:
            return self.student_step(x, y, self.run_student(mixed.x), mixed.target)
        with watch_attention(self.student, mixed.x) as attentions:
            logits = self.run_student(mixed.x, hooked=True)
        labeled = label_by_attention(mixed, attentions[0], self.attention_label, logits=logits)
        return self.student_step(x, y, logits, labeled.target)

    def draw_mixed(self, x: Tensor, y: Tensor, generator: torch.Generator) -> Mixed:
        """Mix a batch to train on.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            generator: Source of randomness.

        Returns:
            The mixed batch, without labels by attention.
        """
        return self.mix_images(x, y, lam=None, index=None, generator=generator)

    def student_step(self, x: Tensor, y: Tensor, logits: Tensor, target: MixedTarget) -> StepOutput:
        """Compute the student's loss on a mixed batch and, with `one_hot_loss`, on the clean one.

        Args:
            x: The clean images.
            y: Their labels.
            logits: The student's logits of the mixed batch.
            target: The label of the mixed batch.

        Returns:
            The step's output.
        """
        losses = {"loss_mixed": self.mixed_loss(logits, target)}
        if self.one_hot_loss:
            losses = self.release(losses) | self.clean_term(x, y)
        return self.output(losses, logits, target)

    def mixed_loss(self, logits: Tensor, target: MixedTarget) -> Tensor:
        """Apply the loss of mixed images: the task's criterion, unless a method has one of its own.

        Args:
            logits: ``(N, num_classes)``.
            target: The label of the mixed batch.

        Returns:
            The loss, a scalar.
        """
        return self.loss(logits, target)

    def make_mixed(
        self, x: Tensor, y: Tensor, *, lam: float | Tensor | None, index: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        mixed = self.mix_images(x, y, lam=lam, index=index, generator=generator)
        if self.attention_label is None:
            return mixed
        with torch.no_grad(), eval_mode(self.classifier), watch_attention(self.classifier, x) as attentions:
            logits = logits_of(run_uncompiled(self.classifier, mixed.x))
        if y.ndim == 1 and len(y) > logits.shape[1]:
            # `mix` without labels takes positions in the batch: those beyond the classes are predicted by no network
            logits = F.pad(logits, (0, len(y) - logits.shape[1]), value=-math.inf)
        return label_by_attention(mixed, attentions[0], self.attention_label, logits=logits)

    def mix_images(
        self, x: Tensor, y: Tensor, *, lam: float | Tensor | None, index: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        """Mix a batch by the method's function.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            lam: Share of the first image; drawn if None.
            index: Partners; drawn if None.
            generator: Source of randomness.

        Returns:
            The mixed batch, without labels by attention.
        """
        keywords = {} if self.look is None else self.look(self, x, y)
        if self.teacher_objects is not None:
            keywords = {**keywords, "objects": self.teacher_objects(self.classifier, x, y)}
        return self.mixer(x, y, lam=lam, index=index, generator=generator, **keywords, **self.options)
