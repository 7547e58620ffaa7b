"""Mixers of pixels, as the evaluations of mixed samples take them: from a method's name or from a trained task."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.draws import step_generator
from automix.core.errors import AutomixError
from automix.core.normalization import denormalize, normalize
from automix.methods import check_method, create_task, takes_normalization
from automix.networks.modes import eval_mode
from automix.tasks.task import Task

Mixer = Callable[[Tensor, Tensor, float, Tensor], Tensor]
"""From pixels in [0, 1] (N, 3, S, S), labels (N,), lam and the partners' positions (N,) to mixed pixels."""

IDENTITY = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}  # the normalization that leaves pixels as they are


def method_mixer(name: str, **options: Any) -> Mixer:
    """Create the mixer of a method that needs no network.

    A method that mixes inside the network (Manifold Mixup) mixes the input here.

    Args:
        name: Name of the method, as in `automix.methods()`.
        **options: Options of the method.

    Returns:
        The mixer.

    Raises:
        AutomixError: The method needs a network; use `task_mixer`.
    """
    check_method(name)
    if takes_normalization(name):
        options = {**IDENTITY, **options}
    try:
        task = create_task(name, nn.Identity(), **options)
    except ValueError:
        if _needs_no_network(name):
            raise  # the options are wrong
        task = None
    if task is None or getattr(task, "look", None) is not None:
        raise AutomixError(f"method {name!r} needs a network; use task_mixer with a task that has one")
    return task_mixer(task, **IDENTITY)


def task_mixer(task: Task, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> Mixer:
    """Create the mixer of a task, trained or not.

    The random part of a method (a box, a coin) is drawn for each sample from the labels and partners of the batch: the
    same batch is mixed alike in every call, and with the same box for every lam.

    Args:
        task: A task that mixes pairs.
        mean: Normalization of the images that the task was trained on, one number per channel.
        std: The same, numbers > 0.

    Returns:
        The mixer.
    """
    smallest = float(torch.as_tensor(std).min())
    if not smallest > 0:
        raise AutomixError(f"std must be > 0, got {smallest:g}")

    last: list[tuple[Tensor, Tensor]] = []  # pixels, normalized: one tensor for all lams of a batch

    def mix(pixels: Tensor, labels: Tensor, lam: float, index: Tensor) -> Tensor:
        per_sample = torch.full((len(pixels),), lam, device=pixels.device)
        generator = step_generator(0, 0, stream=f"mixed samples {labels.tolist()} {index.tolist()}")
        if not last or last[0][0] is not pixels:
            last[:] = [(pixels, normalize(pixels, mean, std))]
        x = last[0][1]
        with torch.no_grad(), eval_mode(task):
            mixed = task.make_mixed(x, labels, lam=per_sample, index=index, generator=generator)
        if mixed.target.y_a.ndim != 1 or mixed.target.more:
            raise AutomixError(f"task must mix pairs; {type(task).__name__} mixes more than two images")
        return denormalize(mixed.x, mean, std)

    return mix


def mixes_pairs(task: Task, x: Tensor) -> bool:
    """Whether a task mixes two images into one with both their labels.

    AugMix, PixMix and plain training keep one image and its label; Co-Mixup and SuperMix may mix more than two.

    Args:
        task: The task, in whatever mode.
        x: Two normalized images or more, ``(N, 3, S, S)``.

    Returns:
        True if the label of each mixed sample is that of its image and of its partner.
    """
    index = torch.tensor([1, 0], device=x.device)
    with eval_mode(task):
        target = task.mix(x[:2], lam=0.5, index=index).target
    return target.y_a.ndim == 1 and not target.more and torch.equal(target.y_b, index)


def _needs_no_network(name: str) -> bool:
    try:
        create_task(name, nn.Identity())
    except ValueError:
        return False
    return True
