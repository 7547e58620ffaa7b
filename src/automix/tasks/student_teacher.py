"""The networks of a task, student and momentum teacher, as one `nn.Module`: modes, compilation and saved state."""

from typing import Any

import torch
from torch import Tensor, nn
from typing_extensions import Self

from automix.core.errors import AutomixError
from automix.networks.freeze import rest_batch_norms
from automix.networks.outputs import check_not_parallel
from automix.networks.teacher import follow, make_teacher, momentum_at


class StudentTeacher(nn.Module):
    """A student and an optional teacher that follows it; what of both goes into a state dict, with the step count.

    Args:
        model: The network to train, the student; put into training mode if it is in eval mode.
        momentum: Momentum of the teacher, in [0, 1); None trains without a teacher.
    """

    def __init__(self, model: nn.Module, momentum: float | None) -> None:
        super().__init__()
        if momentum is not None and not 0 <= momentum < 1:
            raise AutomixError(f"momentum must be None or in [0, 1), got {momentum}")
        check_not_parallel(model)
        # A pretrained network often comes in eval mode, in which its BatchNorm would never train.
        self.student = model if model.training else model.train()
        rest_batch_norms(self.student)
        self.teacher = None if momentum is None else make_teacher(model)
        self.momentum = momentum
        self.step = 0
        self.progress = 0.0
        self._calls = 0  # batches since the last update

    @property
    def classifier(self) -> nn.Module:
        """The network to evaluate and deploy: the teacher if there is one, else the student. Not a copy."""
        return self.student if self.teacher is None else self.teacher

    def move_teacher(self, progress: float) -> None:
        """Let the teacher follow the student (Eq. 12).

        Args:
            progress: Part of the training that is done, in [0, 1].
        """
        assert self.teacher is not None
        follow(self.teacher, self.student, momentum_at(self.step, progress, self.momentum or 0.0))

    def networks(self) -> list[nn.Module]:
        """List the networks that `compile` compiles: student and teacher.

        Returns:
            The networks.
        """
        return [self.student] if self.teacher is None else [self.student, self.teacher]

    def compile(self, **options: Any) -> None:
        """Compile the networks of the task in place, as ``nn.Module.compile`` does, each as a whole.

        Mixing stays as it is: its numbers come from a generator, which `torch.compile` does not take. Passes in which a
        method reads or changes a layer run without compiled code. Names of parameters and what `deploy` returns do not
        change.

        Args:
            **options: Options of `torch.compile`, such as ``backend``, ``mode`` and ``fullgraph``.
        """
        for network in self.networks():
            network.compile(**options)

    def train(self, mode: bool = True) -> Self:
        """Set the training mode; the teacher (see networks/teacher.py) and frozen BatchNorms stay in eval mode.

        Args:
            mode: True to train, False to evaluate.

        Returns:
            The task.
        """
        super().train(mode)
        if mode:
            rest_batch_norms(self.student)
        if self.teacher is not None:
            self.teacher.eval()
        return self

    def get_extra_state(self) -> Tensor:
        """Return step and progress as a tensor, which every safe file format can hold."""
        return torch.tensor([float(self.step), self.progress], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Restore step and progress.

        Args:
            state: What `get_extra_state` returned.
        """
        self.step, self.progress, self._calls = int(state[0]), float(state[1]), 0
