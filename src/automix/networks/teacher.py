"""The momentum pipeline: teacher encoder k follows student encoder q (Eq. 12).

    theta_k <- m * theta_k + (1 - m) * theta_q

m starts at its base value and rises to 1 along a cosine. With a warm-up it is limited to (1 + t) / (10 + t), which
decides until step 9,000 if the base is 0.999; otherwise a run of a few hundred steps would end with a teacher that is
still mostly its random initialization. The paper does not have this limit.

BatchNorm, on which the paper says nothing: the teacher runs in eval mode, and its running statistics follow the
student's by the same average as its weights. The teacher's output for an image thus depends on no other image, and
dropout and stochastic depth are off. docs/results/teacher-batchnorm.md has the measurement behind this choice. In the
authors' code the teacher is in training mode, and its running statistics are its own (``buffers=False``).
"""

import copy
import math

import torch
from torch import Tensor, nn


def momentum_at(step: int, progress: float, base: float = 0.999, *, hold: float = 0.0, warmup: bool = True) -> float:
    """Compute the momentum m of one update.

    Args:
        step: Number of updates before this one.
        progress: Part of the training that is done, in [0, 1].
        base: Momentum at the beginning, in [0, 1); 0 makes the teacher a plain copy and stays 0.
        hold: Part of the training, in [0, 1), in which m keeps its base value. Then m follows the same cosine as
            without it, that of the whole training.
        warmup: Limit m to ``(1 + step) / (10 + step)``.

    Returns:
        m, in [0, 1].
    """
    if base == 0:
        return 0.0
    risen = 0.0 if progress < hold else progress
    cosine = 1 - (1 - base) * (1 + math.cos(math.pi * risen)) / 2
    return min(cosine, (1 + step) / (10 + step)) if warmup else cosine


def make_teacher(student: nn.Module) -> nn.Module:
    """Copy the student into a teacher in eval mode, without gradients.

    Args:
        student: The network to copy.

    Returns:
        The teacher.
    """
    return copy.deepcopy(student).requires_grad_(False).eval()


@torch.no_grad()
def follow(teacher: nn.Module, student: nn.Module, m: float, *, buffers: bool = True) -> None:
    """Move the teacher towards the student (Eq. 12): all weights and running statistics; counters are copied.

    Args:
        teacher: The teacher; changed in place.
        student: The student.
        m: Momentum, in [0, 1].
        buffers: False leaves the teacher's running statistics to itself.
    """
    pairs = list(zip(_state(teacher, buffers), _state(student, buffers), strict=True))
    averaged = [(k, q.detach()) for k, q in pairs if k.is_floating_point()]
    if averaged:
        ks, qs = map(list, zip(*averaged, strict=True))
        torch._foreach_lerp_(ks, qs, 1 - m)
    for k, q in pairs:
        if not k.is_floating_point():
            k.copy_(q)


def _state(model: nn.Module, with_buffers: bool) -> list[Tensor]:
    """Parameters and persistent buffers; other buffers are constants, some of them infinite.

    ``model.state_dict()`` would give the same, but takes milliseconds in every step.
    """
    if not with_buffers:
        return list(model.parameters())
    buffers = {
        id(buffer): buffer  # once, where modules share it
        for module in model.modules()
        for name, buffer in module._buffers.items()
        if buffer is not None and name not in module._non_persistent_buffers_set
    }
    return [*model.parameters(), *buffers.values()]
