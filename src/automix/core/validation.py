"""Checks of numbers, names and options that callers pass.

Every check raises an `AutomixError` of one line that names the argument, says what is accepted and shows the value.
"""

import difflib
import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from automix.core.errors import AutomixError
from automix.core.type_checks import annotations_of, check_type, format_bound, is_integer, is_number, show

NOT_OPTIONS = ("x", "y", "lam", "index", "generator")
"""Parameters of a method's function that the task or transform passes for each batch."""


def check_range(name: str, value: float, low: float, high: float = math.inf, *, bounds: str = "[]") -> None:
    """Raise an error unless `value` is a number between `low` and `high`.

    Args:
        name: Name of the argument, for the message.
        value: The value to check.
        low: Lower bound.
        high: Upper bound; none if not given.
        bounds: Which bounds belong to the interval: ``"[]"``, ``"(]"``, ``"[)"`` or ``"()"``.
    """
    if (
        (type(value) is float or is_number(value))  # a float needs no further call, in functions of every step
        and (low <= value if bounds[0] == "[" else low < value)
        and (value <= high if bounds[1] == "]" else value < high)
    ):
        return
    if high == math.inf:
        accepted = f"{'>=' if bounds[0] == '[' else '>'} {format_bound(low)}"
    else:
        accepted = f"in {bounds[0]}{format_bound(low)}, {format_bound(high)}{bounds[1]}"
    raise AutomixError(f"{name} must be {accepted}, got {show(value)}")


def check_alpha(alpha: float, name: str = "alpha") -> None:
    """Raise an error unless `alpha` can be the parameter of a Beta distribution.

    Args:
        alpha: The value to check.
        name: Name of the argument, for the message.
    """
    if not (type(alpha) is float and 0 < alpha < math.inf):  # of every step; other types are looked at further
        check_range(name, alpha, 0, bounds="()")


def check_smoothing(label_smoothing: float) -> None:
    """Raise an error unless `label_smoothing` is in [0, 1).

    Args:
        label_smoothing: The value to check.
    """
    check_range("label_smoothing", label_smoothing, 0, 1, bounds="[)")


def check_whole(name: str, value: int | None, low: int = 1, high: int | None = None) -> None:
    """Raise an error unless `value` is None (not given) or an integer between `low` and `high`.

    Args:
        name: Name of the argument, for the message.
        value: The value to check.
        low: Smallest accepted value.
        high: Largest accepted value; no limit if None.
    """
    if value is None:
        return
    if is_integer(value) and low <= value and (high is None or value <= high):
        return
    accepted = f">= {format_bound(low)}" if high is None else f"in [{format_bound(low)}, {format_bound(high)}]"
    raise AutomixError(f"{name} must be an integer {accepted}, got {show(value)}")


def check_choice(name: str, value: str, accepted: Collection[str]) -> None:
    """Raise an error unless `value` is one of `accepted`.

    Args:
        name: Name of the argument, for the message.
        value: The value to check.
        accepted: The accepted strings.
    """
    if not (isinstance(value, str) and value in accepted):
        raise AutomixError(f"{name} must be one of {', '.join(accepted)}; got {show(value)}")


def check_options(function: Callable[..., object], options: Mapping[str, object]) -> None:
    """Raise an error unless `options` are parameters of a method's function, each of its annotated type.

    Args:
        function: The function of a method.
        options: Keyword arguments for it. The batch, `lam`, `index`, `objects` and `generator` are passed by the task
            or transform and are not options.
    """
    passed = (*NOT_OPTIONS, "objects")
    accepted = [name for name in inspect.signature(function).parameters if name not in passed]
    annotations = annotations_of(function)
    for name, value in options.items():
        if name not in accepted:
            raise no_such_option(function.__name__, name, accepted)
        check_type(name, value, annotations.get(name, Any))


def no_such_option(method: str, name: str, accepted: Collection[str]) -> AutomixError:
    """Make the error for an option that a method does not have, with the closest one as a hint.

    Args:
        method: Name of the method.
        name: The unknown option.
        accepted: The options that it has.

    Returns:
        The error to raise.
    """
    available = ", ".join(accepted) or "none"
    return AutomixError(f"{method} has no option {name!r}{_closest(name, accepted)} Available: {available}")


def unknown_name(kind: str, name: str, accepted: Collection[str]) -> AutomixError:
    """Make the error for a name that is not among those available, with the closest one as a hint.

    Args:
        kind: What is named, such as ``"method"``.
        name: The unknown name.
        accepted: The available names.

    Returns:
        The error to raise.
    """
    return AutomixError(f"unknown {kind} {show(name)}{_closest(name, accepted)} Available: {', '.join(accepted)}")


def _closest(name: object, accepted: Collection[str]) -> str:
    close = difflib.get_close_matches(name, accepted, n=1) if isinstance(name, str) and len(name) < 100 else ()
    return f"; did you mean {close[0]!r}?" if close else "."
