"""Checks of arguments: one line that names the argument, the accepted range and the value; types through pydantic."""

from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import Annotated, Any, Literal, cast

import numpy as np
import pydantic
import pytest
import torch
from pydantic.dataclasses import dataclass

from automix.core.errors import AutomixError
from automix.core.type_checks import check_type, config_error
from automix.core.validation import check_alpha, check_choice, check_options, check_range, check_whole, unknown_name
from automix.methods.cutmix import cutmix


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(check_range, "share", 0.0, 0, 1, bounds="(]"), "share must be in (0, 1], got 0.0"),
        (partial(check_range, "share", 1, 0, 1, bounds="[)"), "share must be in [0, 1), got 1"),
        (partial(check_range, "share", True, 0, 1), "share must be in [0, 1], got True"),
        (partial(check_range, "share", float("nan"), 0, 0.5), "share must be in [0, 0.5], got nan"),
        (partial(check_range, "tau", -1, 0), "tau must be >= 0, got -1"),
        (partial(check_alpha, float("inf")), "alpha must be > 0, got inf"),
        (partial(check_whole, "k", cast(int, 2.5), 1), "k must be an integer >= 1, got 2.5"),
        (partial(check_whole, "k", 50, 1, 49), "k must be an integer in [1, 49], got 50"),
        (partial(check_choice, "kind", "c", ["a", "b"]), "kind must be one of a, b; got 'c'"),
        (partial(check_options, cutmix, {"alpha": "x"}), "alpha must be a number, got 'x'"),
    ],
)
def test_message_names_argument_range_and_value(call: Callable[[], None], message: str) -> None:
    with pytest.raises(AutomixError) as error:
        call()
    assert str(error.value) == message


def test_bounds_belong_to_the_interval_or_not() -> None:
    check_range("share", 1, 0, 1, bounds="(]")
    check_range("share", 0, 0, 1, bounds="[)")
    check_range("tau", float("inf"), 0)
    check_whole("k", None, 1)
    check_whole("k", np.int64(3), 1, 3)


def test_unknown_name_suggests_the_closest() -> None:
    expected = "unknown method 'cutmixx'; did you mean 'cutmix'? Available: mixup, cutmix"
    assert str(unknown_name("method", "cutmixx", ["mixup", "cutmix"])) == expected
    assert str(unknown_name("method", "zzz", ["mixup"])) == "unknown method 'zzz'. Available: mixup"


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (3, float),
        (np.float32(3), float),
        (np.int64(3), int),
        ([1, 2.5], tuple[float, ...]),
        ([1, 2], tuple[int, int]),
        ((1, 2), list[int]),
        (["stem", 3], Sequence[int | str]),
        (None, torch.Tensor | None),
        (torch.ones(2), float | torch.Tensor),
        (torch.nn.ReLU(), torch.nn.Module),
        ("a", Literal["a", "b"]),
        ({"a": 1}, dict[str, Any]),
        (object(), Any),
    ],
)
def test_accepted_types(value: object, annotation: Any) -> None:
    check_type("option", value, annotation)


@pytest.mark.parametrize(
    ("value", "annotation", "accepted"),
    [
        (True, int, "an integer, got True"),
        (True, float, "a number, got True"),
        ("3", int | None, "an integer or null, got '3'"),
        (1, bool, "true or false, got 1"),
        ("ab", Sequence[str], "a list of strings, got 'ab'"),
        ([1.0], tuple[float, float], "a list of 2 numbers, got [1.0]"),
        ([2.5], tuple[int | str, ...], "a list of integers or strings, got [2.5]"),
        ("c", Literal["a", "b"], "one of a, b; got 'c'"),
        (3, torch.Tensor | None, "a Tensor or null, got 3"),
        (3, dict[str, Any], "NAME: VALUE pairs, got 3"),
    ],
)
def test_refused_types(value: object, annotation: Any, accepted: str) -> None:
    with pytest.raises(AutomixError) as error:
        check_type("option", value, annotation)
    assert str(error.value) == f"option must be {accepted}"


@pytest.mark.parametrize("value", [10**400, "x" * 10_000, [list(range(1000))] * 1000])
def test_huge_values_are_shortened(value: object) -> None:
    with pytest.raises(AutomixError) as error:
        check_type("option", value, float)
    assert len(str(error.value)) < 200


STRICT = pydantic.ConfigDict(strict=True, extra="forbid")


@dataclass(config=STRICT)
class Part:
    size: int = 1


@dataclass(config=STRICT)
class Config:
    lr: Annotated[float, pydantic.Field(gt=0)] = 0.1
    epochs: int = 1
    clip: float | None = None
    layer: int | str = 1
    drops: Annotated[tuple[float, ...], pydantic.Strict(False)] = ()
    kind: Literal["a", "b"] = "a"
    options: dict[str, float] = field(default_factory=dict)
    part: Part = field(default_factory=Part)
    seed: int = 0

    @pydantic.field_validator("seed")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise AutomixError(f"seed must be even, got {value}")
        return value


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lr": -1}, "lr must be > 0, got -1"),
        ({"lr": "x"}, "lr must be a number, got 'x'"),
        ({"epochs": "x"}, "epochs must be an integer, got 'x'"),
        ({"epochs": True}, "epochs must be an integer, got True"),
        ({"clip": "x"}, "clip must be a number or null, got 'x'"),
        ({"layer": 2.5}, "layer must be an integer or a string, got 2.5"),
        ({"drops": [0.5, "x"]}, "drops.1 must be a number, got 'x'"),
        ({"drops": 3}, "drops must be a list of numbers, got 3"),
        ({"kind": "c"}, "kind must be one of a, b; got 'c'"),
        ({"options": {"a": "x"}}, "options.a must be a number, got 'x'"),
        ({"part": 3}, "part must be a Part, got 3"),
        ({"seed": 3}, "seed must be even, got 3"),
        ({"epochz": 3}, "unknown option 'epochz'"),
    ],
)
def test_config_error_is_one_line_about_the_field(values: dict[str, Any], message: str) -> None:
    with pytest.raises(pydantic.ValidationError) as error:
        Config(**values)
    assert str(config_error(error.value, Config)) == message


def test_config_error_without_the_class_reports_what_pydantic_tried_first() -> None:
    with pytest.raises(pydantic.ValidationError) as error:
        Config(clip="x")  # type: ignore[arg-type]
    assert str(config_error(error.value)) == "clip must be a number, got 'x'"
