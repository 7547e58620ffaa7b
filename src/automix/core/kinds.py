"""Whether a value is of the kind that an annotation says, and that kind in words.

Files and command lines give whole numbers for numbers and lists for tuples; both pass. A bool is no number.
"""

import reprlib
import sys
import types
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, Literal, Union, get_args, get_origin

_WORDS: dict[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a word",
    type(None): "null",
}

_short = reprlib.Repr()
_short.maxlevel, _short.maxstring, _short.maxother = 2, 60, 60


def check_kind(name: str, value: object, kind: Any) -> None:
    """Raise a one-line ValueError unless `value` is of `kind`, an annotation."""
    if not is_of_kind(value, kind):
        accepted = f"are {', '.join(get_args(kind))}" if get_origin(kind) is Literal else f"is {describe(kind)}"
        raise ValueError(f"{name}={show(value)}: accepted {accepted}")


def is_of_kind(value: Any, kind: Any) -> bool:
    """An annotation that is neither a class nor made of the usual parts (a callable, a variable) accepts anything."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return any(is_of_kind(value, part) for part in parts)
    if origin is Literal:
        return isinstance(value, str) and value in parts
    if origin is dict:
        named, held = parts
        return isinstance(value, dict) and all(
            is_of_kind(key, named) and is_of_kind(item, held) for key, item in value.items()
        )
    if origin is tuple and Ellipsis not in parts:
        return _is_row(value) and len(value) == len(parts) and all(map(is_of_kind, value, parts))
    if origin in (list, tuple, Sequence):
        return _is_row(value) and all(is_of_kind(item, parts[0]) for item in value)
    if kind is int or kind is float:
        return _is_number(value, kind)
    return isinstance(value, kind) if isinstance(kind, type) else True


def describe(kind: Any) -> str:
    """The kind in words, as in: accepted is a whole number or null."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(describe(part) for part in parts)
    if origin is Literal:
        return "one of " + ", ".join(map(str, parts))
    if origin is dict:
        return "NAME: VALUE pairs"
    if origin in (list, tuple, Sequence):
        return f"a list of {describe(parts[0]).removeprefix('a ')}s"
    return _WORDS.get(kind, getattr(kind, "__name__", str(kind)))


def show(value: object) -> str:
    """A value in an error: strings as they were typed, everything not too long."""
    if isinstance(value, str):
        return value if len(value) <= 60 else f"{value[:57]}..."
    return _short.repr(value)


def _is_number(value: object, kind: type) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, Integral):
        return kind is int or -sys.float_info.max <= int(value) <= sys.float_info.max
    return kind is float and isinstance(value, Real)


def _is_row(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)
