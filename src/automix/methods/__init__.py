"""The mixing methods, one module each, and the registry that finds them by name.

A method is a module (or package) in this folder with a function of the same name, a `create_task`, or both. There is
nothing to register: `methods` lists the folder. Modules whose name starts with an underscore are helpers.
"""

import inspect
import pkgutil
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from automix.core.validation import NOT_OPTIONS, no_such_option, unknown_name

if TYPE_CHECKING:
    from torch import nn

    from automix.tasks.task import Task

__all__ = [
    "check_method",
    "create_task",
    "find_method",
    "has_own_teacher",
    "methods",
    "option_sources",
    "presets_of",
    "settings_of",
    "takes_normalization",
]


def methods() -> list[str]:
    """List the names that `create_task` accepts.

    Returns:
        The names, in alphabetical order.
    """
    return sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))


def check_method(name: str) -> None:
    """Raise an error that lists the methods unless `name` is one of them.

    Args:
        name: Name of a method.
    """
    if name not in methods():
        raise unknown_name("method", name, methods())


def find_method(name: str) -> ModuleType:
    """Import the module of a method.

    Args:
        name: One of `methods()`.

    Returns:
        The module, with a function called `name`, a `create_task`, or both.
    """
    check_method(name)
    return import_module(f"{__name__}.{name}")


def create_task(name: str, model: "nn.Module", **options: Any) -> "Task":
    """Build the training task of a method around a model.

    A method that needs more than its mixing function (gradients, attention, a helper network) has a `create_task` of
    its own; every other function is wrapped in a `MixTask`.

    Args:
        name: One of `methods()`.
        model: The network to train.
        **options: Options of the method and of its task.

    Returns:
        The task.
    """
    accepted = dict.fromkeys(option for options in option_sources(name).values() for option in options)
    for option in options:
        if option not in accepted:
            raise no_such_option(name, option, accepted)
    module = find_method(name)
    if hasattr(module, "create_task"):
        return module.create_task(model, **options)
    from automix.tasks.mix_task import MixTask

    return MixTask(model, getattr(module, name), **options)


def option_sources(name: str) -> dict[Callable[..., Any], list[str]]:
    """Find the options of a method in the signatures that define them.

    Args:
        name: One of `methods()`.

    Returns:
        Names of options by the function or class whose parameters they are: the method's function, its `create_task`,
        and the task.
    """
    from automix.tasks.mix_task import MixTask

    module = find_method(name)
    sources = [getattr(module, key) for key in (name, "create_task") if hasattr(module, key)]
    sources += getattr(module, "OPTION_SOURCES", (MixTask,))
    return {source: _keywords(source) for source in sources}


def _keywords(source: Callable[..., Any]) -> list[str]:
    """The parameters that are options, and not the network, the batch or `**options`."""
    parameters = inspect.signature(source).parameters.values()
    named = [one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]
    return [one for one in named if one not in (*NOT_OPTIONS, "model", "mix", "look")]


def presets_of(name: str) -> tuple[str, ...]:
    """List the presets of a method.

    Args:
        name: One of `methods()`.

    Returns:
        The values of its option ``preset``, from `PRESETS` in its module; none for most methods.
    """
    return tuple(getattr(find_method(name), "PRESETS", ()))


def has_own_teacher(name: str) -> bool:
    """Tell whether a method trains with a momentum teacher of its own, whether ``ema`` is given or not.

    Args:
        name: One of `methods()`.

    Returns:
        `OWN_TEACHER` of its module; False for most methods.
    """
    return bool(getattr(find_method(name), "OWN_TEACHER", False))


def settings_of(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Resolve the preset of a method into all its settings.

    Args:
        name: One of `methods()`.
        options: Options of the method, ``preset`` among them.

    Returns:
        All settings by name, from `resolve_settings` in its module; nothing for methods without presets.
    """
    module = find_method(name)
    return module.resolve_settings(options) if hasattr(module, "resolve_settings") else {}


def takes_normalization(name: str) -> bool:
    """Tell whether a method works on pixels and so has to know how images were normalized.

    Args:
        name: One of `methods()`.

    Returns:
        True if its function or its `create_task` has the options ``mean`` and ``std``.
    """
    module = find_method(name)
    functions = (getattr(module, attribute, None) for attribute in (name, "create_task"))
    return any(callable(each) and "mean" in inspect.signature(each).parameters for each in functions)


class _CallableModule(ModuleType):
    """`automix.methods` is this package, and calling it lists the methods."""

    def __call__(self) -> list[str]:
        return methods()


sys.modules[__name__].__class__ = _CallableModule
