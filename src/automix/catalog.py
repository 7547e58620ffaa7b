"""The methods by name. A method is a file in methods/ with a function of the file's name; nothing is registered."""

import difflib
import pkgutil
from importlib import import_module
from typing import Any

from torch import nn

import automix.methods as _methods
from automix.learned.automix import AutoMix
from automix.task import MixTask, Task


def methods() -> list[str]:
    """The names of all methods, for `create_task`."""
    return sorted(["automix", *(module.name for module in pkgutil.iter_modules(_methods.__path__))])


def create_task(name: str, model: nn.Module, **options: Any) -> Task:
    """The training task of method `name` around `model`; `options` are the method's own and its task's.

    A file in methods/ that needs more than its mixing function (gradients, a helper network) brings a `create_task` of
    its own; all others are wrapped in a `MixTask`.
    """
    if name not in methods():
        close = difflib.get_close_matches(name, methods(), n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise ValueError(f"method {name!r} is unknown: accepted are {', '.join(methods())}{hint}")
    if name == "automix":
        return AutoMix(model, **options)
    module = import_module(f"{_methods.__name__}.{name}")
    if hasattr(module, "create_task"):
        return module.create_task(model, **options)
    return MixTask(model, getattr(module, name), **options)
