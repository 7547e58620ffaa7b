"""Ways of mixing pixels, as evaluators of mixed samples take them: a method's, or a trained task's."""

import inspect
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.draws import step_generator
from automix.methods import check_method, create_task
from automix.networks.modes import eval_mode
from automix.tasks.task import Task

Mixer = Callable[[Tensor, Tensor, float, Tensor], Tensor]
"""From pixels in [0, 1] (N, 3, S, S), labels (N,), lam and the partners' positions (N,) to mixed pixels."""


def method_mixer(name: str, **options: Any) -> Mixer:
    """The mixer of a method that needs no network; `options` are those of the method.

    A method that mixes inside the network (Manifold Mixup) has its mixing of the input.
    """
    check_method(name)
    if _takes_normalization(name):  # they mean pixels, and get them
        options = {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0), **options}
    try:
        task = create_task(name, nn.Identity(), **options)
    except ValueError:
        if _needs_no_network(name):
            raise  # it is the options that are wrong
        task = None
    if task is None or getattr(task, "look", None) is not None:
        raise ValueError(f"method {name!r} needs a network: accepted is task_mixer with a task that has one")
    return task_mixer(task, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def task_mixer(task: Task, mean: Sequence[float] | Tensor, std: Sequence[float] | Tensor) -> Mixer:
    """What `task` mixes, trained or not; `mean` and `std` are the normalization of the images that it is used to.

    The random part of a method (a box, a coin) is drawn for each sample, from the labels and partners of the batch: the
    same batch is mixed alike whenever it is asked for, and with the same box over all lam.
    """
    center, width = (torch.as_tensor(numbers, dtype=torch.float32).view(-1, 1, 1) for numbers in (mean, std))
    if not width.min() > 0:
        raise ValueError(f"std={width.flatten().tolist()}: accepted are numbers > 0")

    def mix(pixels: Tensor, labels: Tensor, lam: float, index: Tensor) -> Tensor:
        shift, scale = center.to(pixels), width.to(pixels)
        per_sample = torch.full((len(pixels),), lam, device=pixels.device)
        generator = step_generator(0, 0, stream=f"mixed samples {labels.tolist()} {index.tolist()}")
        with torch.no_grad(), eval_mode(task):
            mixed = task.make_mixed((pixels - shift) / scale, labels, lam=per_sample, index=index, generator=generator)
        if mixed.target.y_a.ndim != 1:
            raise ValueError(f"{type(task).__name__} mixes more than two images: accepted are methods that mix pairs")
        return mixed.x * scale + shift

    return mix


def _takes_normalization(name: str) -> bool:
    if name == "automix":
        return False
    function = getattr(import_module(f"automix.methods.{name}"), name)
    return "mean" in inspect.signature(function).parameters


def _needs_no_network(name: str) -> bool:
    try:
        create_task(name, nn.Identity())
    except ValueError:
        return False
    return True
