"""Let the optimizer call ``task.update``, for loops that a framework owns."""

from typing import Any

from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from automix.core.errors import AutomixError
from automix.tasks.task import Task

__all__ = ["update_after_step"]


def update_after_step(task: Task, optimizer: Optimizer, total_steps: int) -> RemovableHandle:
    """Call ``task.update`` after every step of an optimizer.

    With gradient accumulation this is once for all the batches of a step. A step that a gradient scaler skips is not
    counted. A task that was resumed from its state dict continues from its own step.

    Args:
        task: The task to update.
        optimizer: The optimizer whose steps count.
        total_steps: Steps of the optimizer in the whole training; at least 1.

    Returns:
        A handle; its ``remove()`` ends the updates.

    Raises:
        AutomixError: If `total_steps` is not an integer >= 1.
    """
    if isinstance(total_steps, bool) or not isinstance(total_steps, int) or total_steps < 1:
        raise AutomixError(f"total_steps must be an integer >= 1, got {total_steps!r}")

    def update(*_: Any) -> None:
        task.update(min(1.0, task.step / total_steps))

    return optimizer.register_step_post_hook(update)
