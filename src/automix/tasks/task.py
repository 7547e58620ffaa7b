"""A task: an `nn.Module` that owns whatever a method needs and turns a batch into a loss.

    task = automix.create_task("cutmix", model)
    out = task(x, y)                       # out.loss, out.logits, out.metrics
    out.loss.backward(); optimizer.step()
    task.update(progress)                  # momentum teacher, schedules
    classifier = task.deploy()             # a plain nn.Module

The loop knows nothing of the method, the method nothing of the loop.
"""

import copy
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from automix.core.criteria import Criterion, MixedLoss, mixed_loss
from automix.core.distributed import rank_and_world
from automix.core.draws import draw_decision, step_generator
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget, as_int64
from automix.core.tensor_checks import check_batch, check_soft_rows
from automix.core.validation import check_range, check_whole
from automix.networks.outputs import run_network, run_uncompiled, without_compile
from automix.tasks.early_backward import backward_early, without_graph
from automix.tasks.loop_checks import LoopChecks
from automix.tasks.step_output import StepOutput
from automix.tasks.student_teacher import StudentTeacher


class Task(StudentTeacher, ABC):
    """What all tasks share: the student, an optional momentum teacher, the step count and the randomness.

    Randomness is a function of (seed, step, rank), so that the step count in the state dict is all that resuming needs.

    In eval mode a task mixes nothing: ``task.eval()`` and ``task(x, y)`` give the loss of the deployed classifier on
    clean images.

    Args:
        model: The network to train, the student; put into training mode if it is in eval mode. It returns logits, a
            dict or object with `logits`, or a tuple that starts with them.
        momentum: Momentum of the teacher that follows the student, in [0, 1); None trains without a teacher.
        one_hot_loss: Add the loss on the clean images to the loss on the mixed ones.
        mix_until: Mix until this part of the training, in [0, 1]; the rest is plain training on clean images.
        mix_fade: From this part of the training on, in [0, mix_until), the probability that a batch is mixed falls
            linearly from 1 to 0 at `mix_until`. None mixes every batch until then.
        criterion: ``criterion(logits, target)``; chosen by the labels if not given.
        seed: Seed of all draws.
        total_steps: Number of optimizer steps of the whole training. If given, `update` needs no `progress`.
        low_memory: Back-propagate each loss term as soon as it is computed and keep its gradients instead of its
            activations; ``loss.backward()`` then hands out those gradients. Without effect, with a warning, where
            images require gradients or parameters have hooks, whose gradients would be wrong.
    """

    learns_to_mix: ClassVar[bool] = False
    """Whether the way of mixing is learned, so that `diagnose` has something to measure."""

    image_functions: ClassVar[tuple[str, ...]] = ()
    """Attributes ``f(network or task, x, ...)`` whose value does not depend on lam: features, saliency, attention."""

    prob: float = 1.0
    """Probability that a batch is mixed at all; `MixTask` takes it as an option."""

    def __init__(
        self,
        model: nn.Module,
        *,
        momentum: float | None,
        one_hot_loss: bool,
        mix_until: float,
        mix_fade: float | None = None,
        criterion: Criterion | None = None,
        seed: int = 0,
        total_steps: int | None = None,
        low_memory: bool = False,
    ) -> None:
        super().__init__(model, momentum)
        check_range("mix_until", mix_until, 0, 1)
        if mix_fade is not None:
            check_range("mix_fade", mix_fade, 0, mix_until, bounds="[)")
        check_whole("total_steps", total_steps, 1)
        self.one_hot_loss = one_hot_loss
        self.mix_until = mix_until
        self.mix_fade = mix_fade
        self.criterion: Criterion = MixedLoss() if criterion is None else criterion
        self.seed = seed
        self.total_steps = total_steps
        self.low_memory = low_memory
        self._early = low_memory  # whether terms are back-propagated early in this step
        self._checks = LoopChecks()
        self._groups: list[dict[str, Any]] = []  # those that were handed out last

    # --- one training step

    def forward(self, x: Tensor, y: Tensor) -> StepOutput:
        """Turn a batch into a loss.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).

        Returns:
            The loss to back-propagate, the logits and metrics. In eval mode: those of the classifier on clean images.
        """
        check_batch(x, y)
        y = as_int64(y)
        if not self.training:
            return self._clean_output(self.classifier, x, y)
        if self.step == self._calls == 0:
            check_soft_rows(y)  # once on any device; `check_batch` does it in every step on the CPU alone
        self._early = self.low_memory and self.may_release(x)
        rank, world = rank_and_world()
        generator = step_generator(self.seed, self.step, part=self._calls * world + rank)
        self._calls += 1
        self._checks.before_batch(self.student, self._calls)
        return self.training_step(x, y, generator) if self.mixes_now() else self.clean_step(x, y)

    @property
    def mixed_share(self) -> float:
        """The part of the training that mixes, in [0, 1]: `mix_until`, less what `mix_fade` and `prob` leave out."""
        return self.prob * (self.mix_until if self.mix_fade is None else (self.mix_fade + self.mix_until) / 2)

    def mixes_now(self) -> bool:
        """Decide whether this step mixes; all processes and all parts of a step's batch decide alike.

        Returns:
            Whether it does.
        """
        if self.progress >= self.mix_until and self.mix_until < 1:
            return False
        if self.prob < 1 and not draw_decision(self.prob, step_generator(self.seed, self.step, stream="prob")):
            return False
        if self.mix_fade is None or self.progress <= self.mix_fade:
            return True
        left = (self.mix_until - self.progress) / (self.mix_until - self.mix_fade)
        return bool(torch.rand((), generator=step_generator(self.seed, self.step, stream="fade")) < left)

    @abstractmethod
    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        """Compute the method's loss for one batch.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            generator: Source of all randomness of this step.

        Returns:
            The step's output.
        """

    def clean_step(self, x: Tensor, y: Tensor) -> StepOutput:
        """Compute the loss of plain training, which ends a training with ``mix_until < 1``.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.

        Returns:
            The step's output.
        """
        return self._clean_output(self.student, x, y)

    def update(self, progress: float | None = None) -> None:
        """Advance the teacher and the schedules; call after every optimizer step.

        Args:
            progress: Part of the training that is done, in [0, 1]; computed from the step count if the task knows its
                `total_steps`.
        """
        if progress is None:
            if self.total_steps is None:
                raise AutomixError(
                    "progress is missing: call update(progress=step / total_steps), or build the task with total_steps="
                )
            progress = min(1.0, self.step / self.total_steps)
        if not 0 <= progress <= 1:
            raise AutomixError(f"progress must be in [0, 1], such as step / total_steps; got {progress}")
        self._checks.before_update(self.step, self.progress, progress)
        if self.teacher is not None:
            self.move_teacher(progress)
        self.step += 1
        self.progress = progress
        self._calls = 0

    # --- what the methods build their steps from

    def release(self, losses: dict[str, Tensor]) -> dict[str, Tensor]:
        """Make room for another forward pass: with `low_memory`, back-propagate the loss terms so far.

        Args:
            losses: Terms by name. Two that share a part of their graph must not be released.

        Returns:
            The same numbers, whose ``backward`` hands out the gradients; without `low_memory` the terms as they are.
        """
        if not self._early:
            return losses
        return {name: backward_early(loss, self.parameters()) for name, loss in losses.items()}

    def may_release(self, x: Tensor) -> bool:
        """Tell whether early backward passes give the right gradients; warns once where they do not.

        Args:
            x: Images, ``(N, C, H, W)``.

        Returns:
            Whether they do.
        """
        if x.requires_grad:
            reason = "the images require gradients"
        elif any(parameter._backward_hooks for parameter in self.parameters()):
            reason = "a parameter has a hook"
        else:
            return True
        self._checks.warn_once("low_memory", f"low_memory has no effect: {reason}")
        return False

    def clean_term(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Compute l_CE on clean images.

        Args:
            x: The clean images.
            y: Their labels.

        Returns:
            The term, ``loss_clean``.
        """
        return {"loss_clean": self.loss(self.run_student(x), MixedTarget.clean(y))}

    def run_student(self, x: Tensor, *, hooked: bool = False) -> Tensor:
        """Run the student, with a readable error where BatchNorm cannot train on so small a batch.

        Args:
            x: Images, ``(N, C, H, W)``.
            hooked: Whether its layers have hooks for this pass, which compiled code would leave out.

        Returns:
            Logits, ``(N, num_classes)``.
        """
        return run_network(partial(run_uncompiled, self.student) if hooked else self.student, x)

    def loss(self, logits: Tensor, target: MixedTarget) -> Tensor:
        """Apply the task's criterion.

        Args:
            logits: ``(N, num_classes)``.
            target: The label of the batch.

        Returns:
            The loss, a scalar.
        """
        return mixed_loss(self.criterion, logits, target)

    def output(
        self,
        losses: dict[str, Tensor],
        logits: Tensor,
        target: MixedTarget,
        further_metrics: dict[str, Tensor] | None = None,
    ) -> StepOutput:
        """Sum the loss terms and collect the metrics of a step.

        Args:
            losses: Loss terms by name.
            logits: The student's logits of a batch.
            target: The label of that batch.
            further_metrics: More scalars for the log.

        Returns:
            The step's output.
        """
        metrics = {**losses, "lam": target.lam.mean(), "mixed_accuracy": target.accuracy(logits.detach())}
        metrics |= further_metrics or {}
        loss = torch.stack(list(losses.values())).sum()
        logits = without_graph(logits) if self._early and self.training else logits
        return StepOutput(loss=loss, logits=logits, metrics={name: value.detach() for name, value in metrics.items()})

    def _clean_output(self, network: nn.Module, x: Tensor, y: Tensor) -> StepOutput:
        target = MixedTarget.clean(y)
        logits = run_network(network, x)
        return self.output({"loss_clean": self.loss(logits, target)}, logits, target)

    # --- what a training script asks for

    def param_groups(self, lr: float, **options: Any) -> list[dict[str, Any]]:
        """List everything that is trained, for an optimizer.

        Args:
            lr: Learning rate of the student.
            **options: Further entries of each group, such as ``weight_decay``.

        Returns:
            Parameter groups, each with a ``name``.
        """
        groups = [{"name": "student", "params": list(self.student.parameters()), "lr": lr, **options}]
        if isinstance(self.criterion, nn.Module) and (learned := list(self.criterion.parameters())):
            groups.append({"name": "criterion", "params": learned, "lr": lr, **options})
        self._groups = groups  # an optimizer keeps these very dicts
        return groups

    def deploy(self) -> nn.Module:
        """Copy the trained classifier out of the task.

        Returns:
            A plain module in eval mode with the structure of the model passed in, without ``torch.compile`` around it;
            its parameters require gradients where those of that model do.
        """
        if self.teacher is not None and self.step == 0 and self._calls:
            self._checks.warn_once(
                "deploy", "task.update() was never called: the deployed teacher is the untrained network"
            )
        deployed = copy.deepcopy(without_compile(self.classifier))
        for parameter, original in zip(deployed.parameters(), self.student.parameters(), strict=True):
            parameter.requires_grad_(original.requires_grad)
        return deployed.eval()

    def mix(
        self, x: Tensor, y: Tensor | None = None, *, lam: float | Tensor | None = None, index: Tensor | None = None
    ) -> Mixed:
        """Mix a batch as the task would now, to look at it. The task stays as it is.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels. If not given, the label of an image is its position in the batch, so that ``target.y_b``
                names each sample's partner.
            lam: Share of the first image, a number or ``(N,)``; drawn if not given.
            index: Partners, a permutation of ``range(N)``; drawn if not given.

        Returns:
            The mixed images, their target and the mask that was applied.
        """
        y = torch.arange(len(x), device=x.device) if y is None else y
        check_batch(x, y)
        with torch.no_grad():
            return self.make_mixed(x, as_int64(y), lam=lam, index=index, generator=step_generator(self.seed, self.step))

    @abstractmethod
    def make_mixed(
        self, x: Tensor, y: Tensor, *, lam: float | Tensor | None, index: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        """Mix a batch without training on it.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            lam: Share of the first image; drawn if None.
            index: Partners; drawn if None.
            generator: Source of randomness.

        Returns:
            The mixed batch.
        """

    def diagnose(self, x: Tensor, y: Tensor) -> tuple[dict[str, float], dict[str, str]]:
        """Measure what a learned way of mixing does to images.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their class indices.

        Returns:
            Numbers for the log, and warnings for people by kind; nothing for methods that do not learn to mix.
        """
        return {}, {}
