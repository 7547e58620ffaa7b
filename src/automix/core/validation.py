"""Checks of the arguments that callers pass.

Every check raises an `AutomixError` of one line that names the argument, says what is accepted and shows the value.
Types are checked by pydantic, in the form that files and command lines need: an int passes for a float and a list for a
tuple, but a bool is not a number.
"""

import difflib
import functools
import inspect
import math
import reprlib
import sys
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import is_dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor

from automix.core.errors import AutomixError

if TYPE_CHECKING:
    import pydantic

_TYPE_NAMES: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a string",
    type(None): "null",
}
_TYPE_ERRORS = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "int_type": "an integer",
    "int_parsing": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "finite",
    "string_type": "a string",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "NAME: VALUE pairs",
    "none_required": "null",
}
_BOUND_ERRORS = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}

_short = reprlib.Repr()
_short.maxlevel, _short.maxstring, _short.maxother = 2, 60, 60


def show(value: object) -> str:
    """Return ``repr(value)``, shortened to fit an error message.

    Args:
        value: Any value.

    Returns:
        At most about 60 characters for strings and numbers.
    """
    return _short.repr(value)


def check_type(name: str, value: object, annotation: Any) -> None:
    """Raise an error unless `value` is of the annotated type.

    Args:
        name: Name of the argument, for the message.
        value: The value to check.
        annotation: A type annotation. Ints pass for floats and lists for tuples; a bool is not a number.
    """
    from pydantic import ValidationError  # here and not above: it takes time to import

    try:
        _adapter(annotation).validate_python(value)
    except ValidationError:
        raise _type_error(name, value, annotation) from None


def config_error(error: "pydantic.ValidationError", config: type | None = None) -> AutomixError:
    """Turn pydantic's error into an `AutomixError` of one line, such as ``lr must be > 0, got -1``.

    Only the first problem is reported, under the dotted name of its field.

    Args:
        error: What pydantic raised.
        config: The dataclass that was validated. If given, a wrong type is described by the whole annotation of the
            field (``an integer or null``) instead of by the part that pydantic tried first.

    Returns:
        The error to raise.
    """
    first = error.errors(include_url=False)[0]
    kind, path, value = str(first["type"]), [str(part) for part in first["loc"]], first["input"]
    context = first.get("ctx", {})
    if isinstance(context.get("error"), AutomixError):
        return AutomixError(str(context["error"]))  # from a validator of ours: a complete message already
    name = ".".join(path)
    if kind in ("missing", "missing_argument"):
        return AutomixError(f"{name} is missing")
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        return AutomixError(f"unknown option {name!r}")
    if kind in (*_BOUND_ERRORS, "finite_number") and (accepted := _range_of(config, path)):
        return AutomixError(f"{path[0]} must be {accepted}, got {show(value)}")
    if kind in _BOUND_ERRORS:
        return AutomixError(
            f"{name} must be {_BOUND_ERRORS[kind]} {_bound(next(iter(context.values())))}, got {show(value)}"
        )
    depth, annotation = _find_field(config, path)
    if annotation is not None:
        return _type_error(".".join(path[:depth]), value, annotation)  # what follows the field are members of a union
    if kind in _TYPE_ERRORS:
        return AutomixError(f"{name} must be {_TYPE_ERRORS[kind]}, got {show(value)}")
    return AutomixError(f"{name}: {first['msg']}" if name else first["msg"])


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
        _is_number(value)
        and (low <= value if bounds[0] == "[" else low < value)
        and (value <= high if bounds[1] == "]" else value < high)
    ):
        return
    if high == math.inf:
        accepted = f"{'>=' if bounds[0] == '[' else '>'} {_bound(low)}"
    else:
        accepted = f"in {bounds[0]}{_bound(low)}, {_bound(high)}{bounds[1]}"
    raise AutomixError(f"{name} must be {accepted}, got {show(value)}")


def check_alpha(alpha: float, name: str = "alpha") -> None:
    """Raise an error unless `alpha` can be the parameter of a Beta distribution.

    Args:
        alpha: The value to check.
        name: Name of the argument, for the message.
    """
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
    if _is_integer(value) and low <= value and (high is None or value <= high):
        return
    accepted = f">= {_bound(low)}" if high is None else f"in [{_bound(low)}, {_bound(high)}]"
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
        options: Keyword arguments for it. The batch, `lam`, `index` and `generator` are passed by the task or transform
            and are not options.
    """
    passed = {"x", "y", "lam", "index", "generator"}
    accepted = [name for name in inspect.signature(function).parameters if name not in passed]
    annotations = _annotations(function)
    for name, value in options.items():
        if name not in accepted:
            raise AutomixError(
                f"{function.__name__} has no option {name!r}{_closest(name, accepted)}"
                f" Available: {', '.join(accepted) or 'none'}"
            )
        check_type(name, value, annotations.get(name, Any))


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


def check_shape(name: str, tensor: Tensor, *accepted: Sequence[int | str]) -> None:
    """Raise an error unless a tensor has one of the accepted shapes.

    Args:
        name: Name of the argument, for the message.
        tensor: The tensor to check.
        *accepted: Shapes; a string stands for any length, such as ``(6, "h", "w")``.
    """
    shape = tuple(tensor.shape)
    for lengths in accepted:
        if len(lengths) == len(shape) and all(
            isinstance(a, str) or a == b for a, b in zip(lengths, shape, strict=True)
        ):
            return
    shapes = " or ".join(f"({', '.join(map(str, lengths))}{',' if len(lengths) == 1 else ''})" for lengths in accepted)
    raise AutomixError(f"{name} must have shape {shapes}, got {shape}")


def check_batch(x: Tensor, y: Tensor) -> None:
    """Raise an error unless `x` is a batch of images and `y` its labels.

    Args:
        x: Images, ``(N, C, H, W)`` of a floating type, N >= 1.
        y: Class indices ``(N,)`` of an integer type, or rows ``(N, num_classes)``, on the device of `x`.
    """
    if x.ndim != 4 or not x.is_floating_point() or len(x) == 0:
        raise AutomixError(
            f"x must be images (N, C, H, W) of a floating type, got shape {tuple(x.shape)} and dtype {x.dtype}"
        )
    if len(y.shape) not in (1, 2) or len(y) != len(x):
        raise AutomixError(
            f"y must be class indices ({len(x)},) or rows ({len(x)}, num_classes), got shape {tuple(y.shape)}"
        )
    if y.ndim == 1 and (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool):
        raise AutomixError(f"y must be class indices of an integer type, got dtype {y.dtype}")
    if y.device != x.device:
        raise AutomixError(f"y must be on the device of x, {x.device}, got {y.device}")
    if y.ndim == 2 and y.is_floating_point() and y.device.type == "cpu":  # elsewhere it would cost a synchronization
        sums = y.float().sum(dim=1)
        if not torch.allclose(sums, torch.ones_like(sums), atol=1e-2):
            wrong = sums[(sums - 1).abs().argmax()].item()
            raise AutomixError(
                f"rows of y must sum to 1 (soft labels), got {wrong:g}; pass multi-label rows as bool or integers"
            )


def check_classes(y: Tensor, num_classes: int) -> None:
    """Raise an error unless labels fit the number of classes.

    Values of class indices are checked on the CPU only: on another device it would force a synchronization each step.

    Args:
        y: Class indices ``(N,)`` or rows ``(N, num_classes)``.
        num_classes: Number of classes.
    """
    if y.ndim == 2:
        if y.shape[1] != num_classes:
            raise AutomixError(f"label rows must have num_classes={num_classes} columns, got {y.shape[1]}")
    elif y.device.type == "cpu" and len(y):
        low, high = (int(bound) for bound in torch.aminmax(y))
        if low < 0 or high >= num_classes:
            raise AutomixError(
                f"class indices must be in [0, {num_classes - 1}] for num_classes={num_classes}, "
                f"got {low if low < 0 else high}"
            )


def check_index(index: Tensor, batch_size: int) -> None:
    """Raise an error unless `index` names a partner in the batch for each sample.

    Values are checked on the CPU only, see `check_classes`.

    Args:
        index: Positions ``(N,)`` of type int64.
        batch_size: N.
    """
    if index.shape != (batch_size,) or index.dtype != torch.int64:
        raise AutomixError(
            f"index must have shape ({batch_size},) and dtype int64, got {tuple(index.shape)} and {index.dtype}"
        )
    if index.device.type == "cpu":
        for value in (int(index.min()), int(index.max())):
            if not 0 <= value < batch_size:
                raise AutomixError(f"index must be in [0, {batch_size - 1}], got {value}")


def as_lam(lam: float | Tensor, batch_size: int) -> Tensor:
    """Check a given `lam` and return it as a tensor.

    Values are checked on the CPU only, see `check_classes`.

    Args:
        lam: A number in [0, 1], or one per sample, ``(N,)``.
        batch_size: N.

    Returns:
        `lam` as a tensor of shape ``()`` or ``(N,)``.
    """
    given = torch.as_tensor(lam)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != batch_size):
        raise AutomixError(f"lam must have shape () or ({batch_size},), got {tuple(given.shape)}")
    if given.device.type == "cpu":
        for value in (given.min().item(), given.max().item()):
            if not 0 <= value <= 1:
                raise AutomixError(f"lam must be in [0, 1], got {value:g}")
    return given


def describe_type(annotation: Any) -> str:
    """Describe a type annotation in words, such as ``an integer or null``.

    Args:
        annotation: A type annotation.

    Returns:
        The description, to follow "must be".
    """
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return describe_type(parts[0])
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(describe_type(part) for part in parts))
    if origin is Literal:
        return f"one of {', '.join(map(str, parts))}"
    if origin is dict:
        return "NAME: VALUE pairs"
    if origin is tuple and Ellipsis not in parts:
        return f"a list of {len(parts)} {_plural(parts[0])}"
    if origin in (list, tuple, Sequence):
        return f"a list of {_plural(parts[0])}"
    if annotation in _TYPE_NAMES:
        return _TYPE_NAMES[annotation]
    name = str(getattr(annotation, "__name__", annotation))
    return f"an {name}" if name[0] in "AEIOU" else f"a {name}"


def _plural(annotation: Any) -> str:
    words = describe_type(annotation).removeprefix("an ").removeprefix("a ")
    return " or ".join(f"{word.removeprefix('a ')}s" for word in words.split(" or "))


def _type_error(name: str, value: object, annotation: Any) -> AutomixError:
    accepted = describe_type(annotation)
    separator = ";" if "one of" in accepted else ","
    return AutomixError(f"{name} must be {accepted}{separator} got {show(value)}")


def _find_field(config: type | None, path: Sequence[str]) -> tuple[int, Any]:
    """How many parts of `path` name fields (or items of lists and dicts) of `config`, and the annotation there."""
    depth, annotation = 0, config
    for part in path:
        origin, parts = get_origin(annotation), get_args(annotation)
        if isinstance(annotation, type) and is_dataclass(annotation) and part in _annotations(annotation):
            annotation = _annotations(annotation)[part]
        elif origin is dict:
            annotation = parts[1]
        elif origin in (list, tuple, Sequence) and part.isdecimal():
            annotation = parts[0]
        else:
            break
        depth += 1
    return depth, annotation if depth else None


def _range_of(config: type | None, path: Sequence[str]) -> str:
    """The range that the annotation of a field of `config` accepts, such as "in [0, 1)"; empty if it has none."""
    if config is None or len(path) not in (1, 2):  # the second part names a member of a union
        return ""
    bounds: dict[str, float] = {}
    waiting: list[Any] = [get_type_hints(config, include_extras=True).get(path[0])]
    while waiting:
        annotation = waiting.pop()
        for constraints in getattr(annotation, "__metadata__", ()):
            for constraint in getattr(constraints, "metadata", ()):
                for name in ("ge", "gt", "le", "lt"):
                    if hasattr(constraint, name):
                        bounds[name] = getattr(constraint, name)
        waiting += [part for part in get_args(annotation) if get_args(part)]
        if get_origin(annotation) is Annotated:
            waiting.append(annotation.__origin__)
    low, high = bounds.keys() & {"ge", "gt"}, bounds.keys() & {"le", "lt"}
    if low and high:
        opening, closing = "[" if "ge" in low else "(", "]" if "le" in high else ")"
        return f"in {opening}{_bound(bounds[low.pop()])}, {_bound(bounds[high.pop()])}{closing}"
    symbols = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return " and ".join(f"{symbols[name]} {_bound(value)}" for name, value in bounds.items())


def _is_number(value: object) -> bool:
    """Whether `value` is a number that a float can hold."""
    if _is_integer(value):
        return -sys.float_info.max <= int(value) <= sys.float_info.max
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _bound(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else show(value)  # a huge int is no float


def _closest(name: object, accepted: Collection[str]) -> str:
    close = difflib.get_close_matches(name, accepted, n=1) if isinstance(name, str) and len(name) < 100 else ()
    return f"; did you mean {close[0]!r}?" if close else "."


@functools.cache
def _annotations(described: Any) -> dict[str, Any]:
    return get_type_hints(described)


@functools.cache
def _adapter(annotation: Any) -> "pydantic.TypeAdapter[Any]":
    import pydantic

    if is_dataclass(annotation):  # validated where it was built
        return pydantic.TypeAdapter(Annotated[annotation, pydantic.InstanceOf()])
    config = pydantic.ConfigDict(arbitrary_types_allowed=True, strict=True)
    return pydantic.TypeAdapter(_relax(annotation), config=config)


def _relax(annotation: Any) -> Any:
    """The annotation for pydantic's strict mode, with lists accepted as tuples, and NumPy's integers as ints."""
    import pydantic

    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is int:
        return Annotated[int, pydantic.BeforeValidator(lambda value: int(value) if _is_integer(value) else value)]
    if origin in (Union, types.UnionType):
        return Union[tuple(_relax(part) for part in parts)]  # noqa: UP007 (made of a list of types)
    if origin in (list, tuple):
        return Annotated[origin[tuple(_relax(part) for part in parts)], pydantic.Strict(False)]
    return annotation
