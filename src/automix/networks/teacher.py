"""The momentum pipeline: teacher encoder k follows student encoder q (Eq. 12).

    theta_k <- m * theta_k + (1 - m) * theta_q

m starts at its base value and rises to 1 along a cosine. Early on it is held down to (1 + t) / (10 + t), or a run of a
few hundred steps would end with a teacher that is still mostly its random initialization.

BatchNorm, where the paper is silent: the teacher always runs in eval mode, and its running statistics follow the
student's by the same average as its weights. A teacher's answer for an image thus depends on no other image, and
dropout and stochastic depth are off. docs/results/teacher-batchnorm.md has the measurement behind this choice.
"""

import copy
import math

import torch
from torch import Tensor, nn


def momentum_at(step: int, progress: float, base: float = 0.999) -> float:
    """m for the update after step 0, 1, ... at `progress` in [0, 1]; base 0 means "a plain copy" and stays 0."""
    if base == 0:
        return 0.0
    cosine = 1 - (1 - base) * (1 + math.cos(math.pi * progress)) / 2
    return min(cosine, (1 + step) / (10 + step))


def make_teacher(student: nn.Module) -> nn.Module:
    """A copy of the student that never asks for a gradient, in eval mode."""
    return copy.deepcopy(student).requires_grad_(False).eval()


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, m: float) -> None:
    """Eq. 12 for all weights and running statistics at once; whole-number buffers (counters) are copied."""
    pairs = list(zip(_state(teacher), _state(student), strict=True))
    averaged = [(k, q.detach()) for k, q in pairs if k.is_floating_point()]
    if averaged:
        ks, qs = (list(tensors) for tensors in zip(*averaged, strict=True))
        torch._foreach_lerp_(ks, qs, 1 - m)
    for k, q in pairs:
        if not k.is_floating_point():
            k.copy_(q)


def _state(model: nn.Module) -> list[Tensor]:
    """Parameters and persistent buffers; other buffers are constants, some of them infinite.

    ``model.state_dict()`` would give the same, but takes milliseconds in every step.
    """
    buffers = {
        id(buffer): buffer  # once, where modules share it
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    }
    return [*model.parameters(), *buffers.values()]
