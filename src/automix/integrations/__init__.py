"""Adapters for training loops that others own; each in its file, which imports its framework.

A loop of your own calls ``task.update`` itself. Where the loop belongs to a framework, the optimizer can do it.
"""

from typing import Any

from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from automix.tasks.task import Task


def update_after_step(task: Task, optimizer: Optimizer, total_steps: int) -> RemovableHandle:
    """Have every step of `optimizer` followed by ``task.update``, whoever calls it; `total_steps` is the training's.

    With gradient accumulation that is once for all its batches, and never for a step that a gradient scaler leaves out.
    A resumed task goes on where its state dict says. ``remove()`` of what is returned ends it.
    """
    if isinstance(total_steps, bool) or not isinstance(total_steps, int) or total_steps < 1:
        raise ValueError(f"total_steps={total_steps}: accepted is a whole number >= 1, the optimizer's steps in all")

    def update(*_: Any) -> None:
        task.update(min(1.0, task.step / total_steps))

    return optimizer.register_step_post_hook(update)


__all__ = ["update_after_step"]
