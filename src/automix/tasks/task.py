"""A task: an nn.Module that owns whatever a method needs and turns a batch into a loss.

    task = automix.create_task("cutmix", model)
    out = task(x, y)                       # out.loss, out.logits, out.metrics
    out.loss.backward(); optimizer.step()
    task.update(progress)                  # momentum teacher, schedules
    classifier = task.deploy()             # a plain nn.Module

The loop knows nothing of the method, the method nothing of the loop.
"""

import copy
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from automix.core.distributed import rank_and_world
from automix.core.draws import step_generator
from automix.core.target import Mixed, MixedTarget
from automix.core.validation import check_batch, check_range
from automix.networks.teacher import follow, make_teacher, momentum_at
from automix.tasks.early_backward import backward_early

Criterion = Callable[[MixedTarget, Tensor], Tensor]
"""How a mixed target scores logits: a method of MixedTarget, with its options bound by functools.partial."""

_FORGOTTEN_UPDATE = 100  # calls without update() after which it was surely forgotten, not postponed


@dataclass
class StepOutput:
    """What a task returns for a batch.

    `loss` is what to back-propagate, `logits` the student's answer to the mixed batch, `metrics` detached scalars by
    name (loss terms, lam, the accuracy on the MIXED batch); they stay on the device, so that looking at them every step
    does not slow training down.
    """

    loss: Tensor
    logits: Tensor
    metrics: dict[str, Tensor]


class Task(nn.Module, ABC):
    """What all tasks share: the student, an optional momentum teacher, the step count and the randomness.

    Randomness is a function of (seed, step, rank): the state that makes a run resumable is the step count alone, which
    `state_dict` contains. With `momentum`, a teacher follows the student and is what `deploy` returns. From progress
    `mix_until` on nothing is mixed any more: the end of the training sees the images as they are, and so do the
    statistics of BatchNorm.
    """

    learns_to_mix: ClassVar[bool] = False  # whether there is something to `diagnose`

    def __init__(
        self,
        model: nn.Module,
        *,
        momentum: float | None,
        one_hot_loss: bool,
        mix_until: float,
        criterion: Criterion,
        seed: int,
    ) -> None:
        super().__init__()
        if momentum is not None and not 0 <= momentum < 1:
            raise ValueError(f"momentum={momentum}: accepted is None or a number in [0, 1)")
        check_range("mix_until", mix_until, 0, 1)
        self.student = model
        self.teacher = None if momentum is None else make_teacher(model)
        self.momentum = momentum
        self.one_hot_loss = one_hot_loss
        self.mix_until = mix_until
        self.criterion = criterion
        self.seed = seed
        self.step = 0
        self.progress = 0.0
        self._calls = 0  # since the last update

    # --- one training step

    def forward(self, x: Tensor, y: Tensor) -> StepOutput:
        check_batch(x, y)
        generator = self._next_generator()
        if self.progress >= self.mix_until and self.mix_until < 1:
            return self.clean_step(x, y)
        return self.training_step(x, y, generator)

    @abstractmethod
    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        """The method: one batch to a loss, all randomness from `generator`."""

    def clean_step(self, x: Tensor, y: Tensor) -> StepOutput:
        """Plain training, for the end of it."""
        target = MixedTarget.clean(y)
        with batch_norm_hint(x):
            logits = self.student(x)
        return step_output({"loss_clean": self.criterion(target, logits)}, logits, target)

    def update(self, progress: float = 0.0) -> None:
        """Call after every optimizer step; `progress` in [0, 1] is how much of the training lies behind."""
        if not 0 <= progress <= 1:
            raise ValueError(f"progress={progress}: accepted is a number in [0, 1], such as step / total_steps")
        if self.teacher is not None:
            follow(self.teacher, self.student, momentum_at(self.step, progress, self.momentum or 0.0))
        self.step += 1
        self.progress = progress
        self._calls = 0

    def classification_loss(self, x: Tensor, y: Tensor, mixed: Mixed) -> tuple[dict[str, Tensor], Tensor]:
        """The student's loss terms for a mixed batch, and its logits there."""
        with batch_norm_hint(x):
            logits = self.student(mixed.x)
        return self.student_losses(x, y, mixed.target, logits), logits

    def student_losses(self, x: Tensor, y: Tensor, target: MixedTarget, logits: Tensor) -> dict[str, Tensor]:
        """l_MCE of the mixed batch's `logits` and, where the task wants it, l_CE on the clean images."""
        losses = {"loss_mixed": self.criterion(target, logits)}
        if self.one_hot_loss:
            losses["loss_mixed"] = self.backward_early(losses["loss_mixed"])
            with batch_norm_hint(x):
                losses["loss_clean"] = self.criterion(MixedTarget.clean(y), self.student(x))
        return losses

    def backward_early(self, loss: Tensor) -> Tensor:
        """The loss term, before another one's forward pass: what it needed memory for is let go (see settle.py)."""
        return backward_early(loss, self.parameters())

    def _next_generator(self) -> torch.Generator:
        rank, world = rank_and_world()
        generator = step_generator(self.seed, self.step, part=self._calls * world + rank)
        self._calls += 1
        if self._calls == _FORGOTTEN_UPDATE:
            warnings.warn(
                f"task.update() was not called for {_FORGOTTEN_UPDATE} batches: the teacher stands still", stacklevel=5
            )
        return generator

    # --- what a training script asks for

    @property
    def classifier(self) -> nn.Module:
        """The network that counts: the teacher if there is one, else the student. Not a copy."""
        return self.student if self.teacher is None else self.teacher

    def param_groups(self, lr: float, **options: Any) -> list[dict[str, Any]]:
        """Parameter groups for an optimizer: what is trained, with its learning rate and further `options`."""
        return [{"name": "student", "params": list(self.student.parameters()), "lr": lr, **options}]

    def deploy(self) -> nn.Module:
        """A copy of the classifier as a plain module in eval mode; it loads and saves like the model passed in."""
        return copy.deepcopy(self.classifier).requires_grad_(True).eval()

    def mix(
        self, x: Tensor, y: Tensor | None = None, *, lam: float | Tensor | None = None, index: Tensor | None = None
    ) -> Mixed:
        """Mixed samples and their masks, for looking at: what the task would train on now.

        Without `y` the classes are the positions in the batch, so that ``target.y_b`` tells each sample's partner.
        """
        y = torch.arange(len(x), device=x.device) if y is None else y
        check_batch(x, y)
        with torch.no_grad():
            return self.make_mixed(x, y, lam=lam, index=index, generator=step_generator(self.seed, self.step))

    @abstractmethod
    def make_mixed(
        self, x: Tensor, y: Tensor, *, lam: float | Tensor | None, index: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        """The mixing alone; draws what is not given."""

    def diagnose(self, x: Tensor, y: Tensor) -> tuple[dict[str, float], dict[str, str]]:
        """What a learned mixer does to these images: numbers for the log and, by kind, what a person should know."""
        return {}, {}

    # --- what nn.Module would do otherwise

    def train(self, mode: bool = True) -> "Task":
        super().train(mode)
        if self.teacher is not None:
            self.teacher.eval()  # see networks/teacher.py
        return self

    def get_extra_state(self) -> Tensor:
        """Step and progress as a tensor, which every safe file format can hold."""
        return torch.tensor([float(self.step), self.progress], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        self.step, self.progress, self._calls = int(state[0]), float(state[1]), 0


@contextmanager
def batch_norm_hint(x: Tensor) -> Iterator[None]:
    """Say what to do where BatchNorm refuses to train on a single value per channel."""
    try:
        yield
    except ValueError as error:
        if not str(error).startswith("Expected more than 1 value per channel"):
            raise
        raise ValueError(
            f"a batch of {len(x)} at {x.shape[-2]} x {x.shape[-1]} px leaves BatchNorm one value per channel: "
            "accepted are batches of 2 or more (drop_last=True in the loader), or larger images"
        ) from None


def step_output(
    losses: dict[str, Tensor], logits: Tensor, target: MixedTarget, further: dict[str, Tensor] | None = None
) -> StepOutput:
    """The sum of the loss terms; each of them, lam, the accuracy on the mixed batch and `further` are the metrics."""
    metrics = {**losses, "lam": target.lam.mean(), "mixed_accuracy": target.accuracy(logits.detach())}
    metrics |= further or {}
    loss = torch.stack(list(losses.values())).sum()
    return StepOutput(loss, logits.detach(), {name: value.detach() for name, value in metrics.items()})
