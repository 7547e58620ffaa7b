"""Flags of the command line: those of a configuration's fields, and the types that several commands share."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

import docstring_parser
from cyclopts import Group, Parameter, Token


def _read_integer(_: type, tokens: Sequence[Token]) -> int:
    """Refuse "2.5", which cyclopts would round."""
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"must be an integer, got {tokens[0].value!r}") from None


Integer = Annotated[int, Parameter(converter=_read_integer)]
Several = Parameter(consume_multiple=True, show_default=lambda values: " ".join(map(str, values)))
"""For a flag that takes all the words behind it: ``--on attacks mixed``."""
Which = Literal["last", "best"]

WHAT, HOW, TIME, PLACE = "What to train", "How to train", "Time and steps", "Where"
MORE_OF_RUN, MORE_OF_RECIPE = "More settings of the run", "More settings of the recipe"
"""Titles of panels that only ``--help-all`` shows."""

Switch = Annotated[bool, Parameter(negative=(), show_default=False)]
"""A flag without a value and without a ``--no-`` form."""


def flags_of(
    config: type,
    recipe: type,
    defaults: object,
    *,
    leave_out: Sequence[str],
    panels: Mapping[str, Sequence[str]] = MappingProxyType({}),
    notes: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """Make the type of all settings of a run as flags, for a parameter of a cyclopts command.

    Args:
        config: The dataclass of the run's own settings. The docstring below a field is its help.
        recipe: The dataclass of the settings that a recipe decides.
        defaults: The recipe whose values the help shows.
        leave_out: Fields of `config` that are no flags.
        panels: Fields of either that the short help has, by the title of their panel; all fields if not given.
        notes: Texts behind the defaults of some fields.

    Returns:
        A dictionary type; at run time it holds the flags that were given, and no others.
    """
    title_of = {name: title for title, names in panels.items() for name in names}
    of_run, of_recipe = (MORE_OF_RUN, MORE_OF_RECIPE) if panels else (WHAT, HOW)
    flags = {
        **_flags(config, config, lambda field: title_of.get(field, of_run), notes),
        **_flags(recipe, defaults, lambda field: title_of.get(field, of_recipe), notes),
    }
    ordered = {name: flags[name] for name in title_of} | flags
    return TypedDict("Flags", {name: flag for name, flag in ordered.items() if name not in leave_out}, total=False)  # type: ignore[operator]


def panel(title: str) -> Group:
    """Make a panel of the help of a training command.

    Args:
        title: What stands above it.

    Returns:
        The group; flags with the same title are in one.
    """
    return Group(title, sort_key=(WHAT, HOW, TIME, PLACE, MORE_OF_RUN, MORE_OF_RECIPE).index(title))


def _flags(cls: type, defaults: object, title_of: Callable[[str], str], notes: Mapping[str, str]) -> dict[str, Any]:
    helps = {field.arg_name: field.description or "" for field in docstring_parser.parse_from_object(cls).params}
    types = get_type_hints(cls)
    flags = {}
    for field in fields(cls):
        default = _show(getattr(defaults, field.name, None)) if field.default_factory is MISSING else ""
        parameter = Parameter(
            help=" ".join(helps.get(field.name, "").split()),
            group=panel(title_of(field.name)),
            show_default="; ".join(filter(None, (default, notes.get(field.name)))) or False,
            negative_bool="no-",
            consume_multiple=get_origin(types[field.name]) is tuple,
            json_dict=False,
        )
        flags[field.name] = Annotated[_flag_type(types[field.name]), parameter]
    return flags


def _flag_type(kind: Any) -> Any:
    """The type of a field as one of a flag: integers are not rounded, options are words until `read_options`."""
    if kind is int:
        return Integer
    if get_origin(kind) in (Union, UnionType):
        return Union[tuple(_flag_type(part) for part in get_args(kind))]  # noqa: UP007 (made at run time)
    if get_origin(kind) is tuple:
        return list[_flag_type(get_args(kind)[0])]  # type: ignore[misc]
    return dict[str, str] if get_origin(kind) is dict else kind


def _show(default: object) -> str:
    if default is None:
        return ""
    return " ".join(f"{value:g}" for value in default) if isinstance(default, tuple) else str(default).lower()


def read_options(options: dict[str, str]) -> dict[str, Any]:
    """Read ``--method-options.NAME VALUE``: numbers, true, false, null and lists as in JSON, or words.

    A name may have hyphens, as all other flags have.
    """
    return {name.replace("-", "_"): _read_option(text) for name, text in options.items()}


def _read_option(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
