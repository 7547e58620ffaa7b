"""`automix methods [NAME]`: the mixing methods, or the options of one."""

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import docstring_parser

from automix.cli._output import print_table

FLAGS = {"alpha": "--alpha", "layer": "--layer", "preset": "--preset", "ema": "--ema",
         "mixup_alpha": "--mixup-alpha", "cutmix_alpha": "--cutmix-alpha"}  # fmt: skip
"""Options of methods that have a flag of their own."""

DECIDED_ELSEWHERE = ("criterion", "seed", "total_steps", "low_memory", "num_classes", "channels")
PYTHON_ONLY = ("Tensor", "Module", "Callable", "Generator")  # types of values that no flag can have


def methods(name: str | None = None, /) -> None:
    """List the mixing methods, or all options of one with their defaults.

    For example:
      automix methods            all methods
      automix methods automix    the options of AutoMix

    Args:
        name: The method whose options to show.
    """
    from automix.methods import find_method
    from automix.methods import methods as names

    if name is None:
        rows = [(method, _about(find_method(method)).splitlines()[0]) for method in names()]
        print_table(("method", "what it does (automix methods NAME lists the options)"), rows)
        return
    sys.stdout.write(_about(find_method(name)) + "\n\n")
    print_table(("flag of automix train", "default", "meaning"), list(_option_rows(name)))


def _about(module: object) -> str:
    return inspect.getdoc(module) or ""


def _option_rows(method: str) -> Iterator[tuple[str, str, str]]:
    """The options that a flag can set: flag, default and meaning."""
    from automix.methods import has_own_teacher, option_sources

    left_out = {*DECIDED_ELSEWHERE, *(("ema",) if has_own_teacher(method) else ())}
    for source, options in option_sources(method).items():
        meanings = {entry.arg_name: entry.description for entry in docstring_parser.parse_from_object(source).params}
        for option in options:
            if option in left_out or _is_python_only(source, option):
                continue
            left_out.add(option)  # the first source that has it documents it
            flag = FLAGS.get(option, f"--method-options.{option}")
            yield flag, _default(source, option), " ".join((meanings.get(option) or "").replace("``", "").split())


def _is_python_only(source: Callable[..., Any], option: str) -> bool:
    return any(word in str(inspect.signature(source).parameters[option].annotation) for word in PYTHON_ONLY)


def _default(source: Callable[..., Any], option: str) -> str:
    default = inspect.signature(source).parameters[option].default
    return "" if default is None or default is inspect.Parameter.empty else str(default)
