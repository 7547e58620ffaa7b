"""Dataclasses for configuration values, validated by pydantic."""

import functools
from typing import Any, TypeVar

import pydantic
from pydantic.dataclasses import dataclass
from typing_extensions import dataclass_transform

from automix.core.type_checks import config_error

T = TypeVar("T")


@dataclass_transform(kw_only_default=True, frozen_default=True)
def config_dataclass(cls: type[T]) -> type[T]:
    """Make a class a frozen, keyword-only pydantic dataclass whose errors are one line.

    Values must have the annotated types: an integer passes for a float, but a string or a bool does not pass for a
    number. Ranges belong into ``__post_init__``, which may raise `AutomixError`.

    Args:
        cls: A class with annotated fields.

    Returns:
        The dataclass. Wrong values raise `AutomixError`, a wrong type as ``epochs must be an integer, got 'ten'``.
    """
    made: Any = dataclass(frozen=True, kw_only=True, config=pydantic.ConfigDict(strict=True, extra="forbid"))(cls)
    construct = made.__init__

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        try:
            construct(self, *args, **kwargs)
        except pydantic.ValidationError as error:
            raise config_error(error, made) from None

    made.__init__ = __init__
    return made
