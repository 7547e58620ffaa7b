"""The networks of AutoMix: the Mix Block, student and teacher, the last two with a head for mixed images if asked for.

How they run, follow each other, rest, and are listed for an optimizer; task.py has the training step.
"""

from functools import partial
from typing import Any

from torch import Tensor, nn
from typing_extensions import Self

from automix.core.criteria import Criterion
from automix.methods.automix.block_checks import BlockChecks
from automix.methods.automix.mix_block import MixBlock
from automix.methods.automix.resting import RestingParameters
from automix.methods.automix.settings import AutoMixSettings
from automix.networks.feature_tap import FeatureTap
from automix.networks.head import SecondHead
from automix.networks.outputs import logits_of, run_network
from automix.networks.teacher import follow, make_teacher, momentum_at
from automix.tasks.step_output import StepOutput
from automix.tasks.task import Task


class MixBlockTask(Task):
    """A task whose Mix Block is trained beside the student.

    Args:
        model: The network to train.
        tap: Reads the feature maps for the Mix Block.
        mix_block: The Mix Block.
        settings: The settings.
        criterion: ``criterion(logits, target)``; chosen by the labels if not given.
        seed: Seed of all draws.
        total_steps: Number of optimizer steps of the whole training; if given, `update` needs no `progress`.
        low_memory: Back-propagate each loss term as soon as it is computed; see `Task`.
    """

    def __init__(
        self,
        model: nn.Module,
        tap: FeatureTap,
        mix_block: MixBlock,
        settings: AutoMixSettings,
        *,
        criterion: Criterion | None,
        seed: int,
        total_steps: int | None,
        low_memory: bool,
    ) -> None:
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
        self.settings = settings
        self.mixed_head = SecondHead(model) if settings.mixed_head else None
        self.teacher_mixed_head = (
            None if self.mixed_head is None or self.teacher is None else make_teacher(self.mixed_head)
        )
        if self.teacher is not None and settings.teacher_batch_norm == "train":
            self.teacher.train()
        self._resting = RestingParameters()
        self._block_checks = BlockChecks(settings.block_lr)

    # --- how they run

    def run_student_mixed(self, x: Tensor) -> Tensor:
        """Run the student on mixed images, with its head for mixed images if it has one.

        Args:
            x: Mixed images, ``(N, C, H, W)``.

        Returns:
            Logits, ``(N, num_classes)``.
        """
        return run_network(self.student if self.mixed_head is None else partial(self.mixed_head, self.student), x)

    def predict_mixed(self, x: Tensor) -> Tensor:
        """Run the classifier on mixed images, with its head for mixed images if it has one.

        Args:
            x: Mixed images, ``(N, C, H, W)``.

        Returns:
            Logits, ``(N, num_classes)``.
        """
        head = self.mixed_head if self.teacher is None else self.teacher_mixed_head
        return logits_of(self.classifier(x)) if head is None else head(self.classifier, x)

    # --- steps and updates

    def clean_step(self, x: Tensor, y: Tensor) -> StepOutput:
        """Compute the loss of plain training; the Mix Block and the head for mixed images rest.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.

        Returns:
            The step's output.
        """
        out = super().clean_step(x, y)
        of_head = [] if self.mixed_head is None else list(self.mixed_head.parameters())
        out["loss"] = self._resting.add_to(out.loss, self.trained_block() + of_head)
        return out

    def update(self, progress: float | None = None) -> None:
        self._resting.put_back()
        for kind, message in self._block_checks.warnings(self.step, self.mix_block, self._groups):
            self._checks.warn_once(kind, message)
        self._groups = []  # looked at once, after the first step
        super().update(progress)

    def move_teacher(self, progress: float) -> None:
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

    def train(self, mode: bool = True) -> Self:
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

    def trained_block(self) -> list[nn.Parameter]:
        """List the parameters of the Mix Block that are trained; none of random grids or a frozen block.

        Returns:
            The parameters.
        """
        return [parameter for parameter in self.mix_block.parameters() if parameter.requires_grad]

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
