"""Checks of types, by pydantic, and its errors in one line.

Types are those that files and command lines need: an int passes for a float and a list for a tuple, but a bool is not a
number.
"""

import functools
import reprlib
import sys
import types
from collections.abc import Sequence
from dataclasses import is_dataclass
from numbers import Integral, Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

from automix.core.errors import AutomixError

if TYPE_CHECKING:
    import pydantic

_SHORT = reprlib.Repr()
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother = 2, 60, 60


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


def show(value: object) -> str:
    """Return ``repr(value)``, shortened to fit an error message.

    Args:
        value: Any value.

    Returns:
        At most about 60 characters for strings and numbers.
    """
    return _SHORT.repr(value)


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
            f"{name} must be {_BOUND_ERRORS[kind]} {format_bound(next(iter(context.values())))}, got {show(value)}"
        )
    depth, annotation = _find_field(config, path)
    if annotation is not None:
        return _type_error(".".join(path[:depth]), value, annotation)  # what follows the field are members of a union
    if kind in _TYPE_ERRORS:
        return AutomixError(f"{name} must be {_TYPE_ERRORS[kind]}, got {show(value)}")
    return AutomixError(f"{name}: {first['msg']}" if name else first["msg"])


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
        if isinstance(annotation, type) and is_dataclass(annotation) and part in annotations_of(annotation):
            annotation = annotations_of(annotation)[part]
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
        return f"in {opening}{format_bound(bounds[low.pop()])}, {format_bound(bounds[high.pop()])}{closing}"
    symbols = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    return " and ".join(f"{symbols[name]} {format_bound(value)}" for name, value in bounds.items())


def is_number(value: object) -> bool:
    """Whether `value` is a number that a float can hold."""
    if is_integer(value):
        return -sys.float_info.max <= int(value) <= sys.float_info.max
    return isinstance(value, Real) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, Integral) and not isinstance(value, bool)


def format_bound(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else show(value)  # a huge int is no float


@functools.cache
def annotations_of(described: Any) -> dict[str, Any]:
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
        return Annotated[int, pydantic.BeforeValidator(lambda value: int(value) if is_integer(value) else value)]
    if origin in (Union, types.UnionType):
        return Union[tuple(_relax(part) for part in parts)]  # noqa: UP007 (made of a list of types)
    if origin in (list, tuple):
        return Annotated[origin[tuple(_relax(part) for part in parts)], pydantic.Strict(False)]
    return annotation
