"""Command lines from dataclasses: a flag for each field, its help from the docstring below the field."""

import argparse
import difflib
import functools
import re
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, get_type_hints

import docstring_parser
from jsonargparse import ActionYesNo, ArgumentParser, Namespace

__all__ = ["add_fields", "new_parser", "parse"]


def new_parser(command: str, usage: str, about: str) -> ArgumentParser:
    return ArgumentParser(
        prog=f"automix {command}",
        usage=f"automix {command} {usage}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        exit_on_error=False,
        allow_abbrev=False,
    )


def add_fields(parser: Any, cls: type, defaults: object, leave_out: Sequence[str] = ()) -> None:
    """A flag for each field of dataclass `cls`, with the values of `defaults`."""
    helps, types = _helps(cls), get_type_hints(cls)
    for item in fields(cls):
        if item.name not in leave_out:
            made = None if item.default_factory is MISSING else item.default_factory()
            _add_flag(parser, item, types[item.name], getattr(defaults, item.name, made), helps[item.name])


@functools.cache  # the class is read from its source file
def _helps(cls: type) -> dict[str, str]:
    return {param.arg_name: param.description or "" for param in docstring_parser.parse_from_object(cls).params}


def _add_flag(parser: Any, item: "Field[Any]", kind: Any, default: Any, text: str) -> None:
    flag = "--" + item.name.replace("_", "-")
    if kind is bool:
        parser.add_argument(flag, action=ActionYesNo(yes_prefix="", no_prefix="no-"), default=default, help=text)
    else:
        parser.add_argument(flag, type=kind, default=default, help=text)


def parse(parser: ArgumentParser, arguments: list[str]) -> Namespace:
    """Parsed arguments, or a ValueError of one line."""
    try:
        return parser.parse_args(arguments)
    except argparse.ArgumentError as error:
        raise ValueError(_in_our_words(" ".join(str(error.message).split()), parser)) from None
    except OverflowError as error:
        raise ValueError(f"a number is too large ({error}): accepted are those that fit 64 bits") from None
    except RecursionError:
        raise ValueError("a value is nested too deeply: accepted are words, numbers, and lists of them") from None


def _in_our_words(message: str, parser: ArgumentParser) -> str:
    """What jsonargparse says about types and unknown flags, as: what is wrong, what is accepted."""
    if wrong := re.fullmatch(r'Parser key "([\w.]+)"(?: element \d+)?: Expected an? (.*?)\. Got value: ?(.*)', message):
        name, kind, value = wrong.groups()
        return f"{name}={value}: accepted is {_describe(kind)}"
    if wrong := re.match(
        r'Parser key "([\w.]+)": Does not validate .* Subtypes: \[(.*?)\] .*Given value: (.*)', message
    ):
        name, kinds, value = wrong.groups()
        return f"{name}={value}: accepted is {' or '.join(_describe(kind) for kind in kinds.split(', '))}"
    if unknown := re.fullmatch(r"unrecognized arguments: ?(.*)|Option '(\w+)' is not accepted", message):
        flag = f"--{unknown[2]}" if unknown[2] else "".join(unknown[1].split()[:1])
        if not flag.startswith("-"):
            return f"{flag!r} stands in the wrong place: accepted is {parser.usage}"
        close = difflib.get_close_matches(flag, [name for action in parser._actions for name in action.option_strings])
        hint = f" (did you mean {close[0]}?)" if close else ""
        return f"{flag} is unknown{hint}: {parser.prog} --help lists what is accepted"
    return message


def _describe(kind: str) -> str:
    if choices := re.fullmatch(r"typing\.Literal\[(.*)\]", kind):
        return "one of " + choices[1].replace("'", "")
    return _KINDS.get(kind, kind)


_KINDS = {
    "<class 'int'>": "a whole number",
    "<class 'float'>": "a number",
    "<class 'str'>": "a word",
    "<class 'dict'>": "NAME: VALUE pairs",
    "<class 'NoneType'>": "null",
}
