"""Features, saliency and attention of a pair, computed once for all lam."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from automix.tasks.task import Task

CACHED_PAIRS = 8


def with_cache(task: Task) -> Task:
    """The task in eval mode, with those of its functions cached that do not depend on lam."""
    for name in task.image_functions:
        if (function := getattr(task, name)) is not None:
            setattr(task, name, CachedFunction(function))
    return task.eval()


class CachedFunction:
    """A function ``f(network or task, x, ...)`` of the images of a pair, computed once for each of the last pairs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.cache: list[tuple[Tensor, Any]] = []

    def __call__(self, network: nn.Module, x: Tensor, *others: Any) -> Any:
        for cached_x, value in self.cache:
            if cached_x is x:
                return value
        value = self.function(network, x, *others)
        self.cache = [*self.cache[-CACHED_PAIRS + 1 :], (x, value)]
        return value
