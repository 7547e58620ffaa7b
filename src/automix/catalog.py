"""The methods by name. A method is a file in methods/ with a function of the file's name; nothing is registered."""

import pkgutil
from importlib import import_module
from typing import Any

from torch import nn

import automix.methods as _methods
from automix.checks import unknown_name
from automix.learned.automix import AutoMix
from automix.task import MixTask, Task


def methods() -> list[str]:
    """The names of all methods, for `create_task`."""
    return sorted(["automix", *(module.name for module in pkgutil.iter_modules(_methods.__path__))])


def check_method(name: str) -> None:
    if name not in methods():
        raise unknown_name("method", name, methods())


def create_task(name: str, model: nn.Module, **options: Any) -> Task:
    """The training task of method `name` around `model`; `options` are the method's own and its task's.

    A file in methods/ that needs more than its mixing function (gradients, a helper network) brings a `create_task` of
    its own; all others are wrapped in a `MixTask`.
    """
    check_method(name)
    if name == "automix":
        options.pop("ema", None)  # it has its momentum teacher anyway
        return AutoMix(model, **options)
    module = import_module(f"{_methods.__name__}.{name}")
    if hasattr(module, "create_task"):
        return module.create_task(model, **options)
    return MixTask(model, getattr(module, name), **options)
