"""Features, saliency and attention of images, computed once for all lam."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from automix.tasks.task import Task


def with_cache(task: Task, batches: int) -> Task:
    """Put a task into eval mode and cache those of its functions that do not depend on lam.

    Args:
        task: The task; changed in place, to mix and not to train.
        batches: How many batches are kept. A batch is recognized as the same tensor.

    Returns:
        The task.
    """
    for name in task.image_functions:
        if (function := getattr(task, name)) is not None:
            setattr(task, name, CachedFunction(function, batches))
    return task.eval()


class CachedFunction:
    """A function ``f(network or task, x, ...)`` of images, computed once for each of the last batches.

    Args:
        function: The function.
        batches: How many batches are kept.
    """

    def __init__(self, function: Callable[..., Any], batches: int) -> None:
        self.function = function
        self.batches = batches
        self.cache: list[tuple[Tensor, Any]] = []

    def __call__(self, network: nn.Module, x: Tensor, *others: Any) -> Any:
        for cached_x, value in self.cache:
            if cached_x is x:
                return value
        value = self.function(network, x, *others)
        self.cache = [*self.cache, (x, value)][-self.batches :]
        return value
