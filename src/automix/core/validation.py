"""What callers may pass: every check raises a one-line ValueError that names the argument and what is accepted."""

import difflib
import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import torch
from torch import Tensor

from automix.core.errors import AutomixError
from automix.core.kinds import check_kind, is_of_kind, show


def check_batch(x: Tensor, y: Tensor) -> None:
    """Raise a ValueError that says what is accepted unless `x` is a batch of images and `y` its labels."""
    if x.ndim != 4 or not x.is_floating_point() or len(x) == 0:
        raise ValueError(
            f"x has shape {tuple(x.shape)} and type {x.dtype}: accepted are images (N, C, H, W) of a floating type"
        )
    if len(y.shape) not in (1, 2) or len(y) != len(x):
        raise ValueError(
            f"y has shape {tuple(y.shape)} for {len(x)} images: accepted are class indices ({len(x)},) "
            f"or rows ({len(x)}, num_classes)"
        )
    if y.ndim == 1 and (y.is_floating_point() or y.is_complex() or y.dtype == torch.bool):
        raise ValueError(f"y has type {y.dtype}: class indices must be integers")
    if y.device != x.device:
        raise ValueError(f"x is on {x.device} and y on {y.device}: accepted are both on one device")


def check_classes(y: Tensor, num_classes: int) -> None:
    """Raise a ValueError unless labels `y` fit `num_classes`.

    Indices are looked at on the CPU only: elsewhere it would make the host wait for the device in every step.
    """
    if y.ndim == 2:
        if y.shape[1] != num_classes:
            raise ValueError(f"label rows have {y.shape[1]} classes, num_classes is {num_classes}: accepted are equals")
    elif y.device.type == "cpu" and len(y):
        low, high = (int(bound) for bound in torch.aminmax(y))
        if low < 0 or high >= num_classes:
            wrong = low if low < 0 else high
            raise ValueError(f"class index {wrong} for num_classes={num_classes}: accepted are 0 to {num_classes - 1}")


def check_index(index: Tensor, batch_size: int) -> None:
    """Raise a ValueError unless `index` names a partner in the batch for each sample (see check_classes on devices)."""
    if index.shape != (batch_size,) or index.dtype != torch.int64:
        raise ValueError(
            f"index has shape {tuple(index.shape)} and type {index.dtype}: accepted is int64 of shape ({batch_size},)"
        )
    if index.device.type == "cpu" and (int(index.min()) < 0 or int(index.max()) >= batch_size):
        raise ValueError(f"index reaches outside the batch: accepted are positions 0 to {batch_size - 1}")


def check_fields(instance: Any) -> None:
    """Is every field of this dataclass what it is annotated as?"""
    kinds = _annotations(instance.__class__)
    for item in fields(instance):
        check_kind(item.name, getattr(instance, item.name), kinds[item.name])


def check_alpha(alpha: float) -> None:
    if not (is_of_kind(alpha, float) and 0 < alpha < math.inf):
        raise ValueError(f"alpha={show(alpha)}: accepted is a number > 0")


def check_smoothing(label_smoothing: float) -> None:
    if not (is_of_kind(label_smoothing, float) and 0 <= label_smoothing < 1):
        raise ValueError(f"label_smoothing={show(label_smoothing)}: accepted is a number in [0, 1)")


def check_range(name: str, value: float, low: float, high: float) -> None:
    if not (is_of_kind(value, float) and low <= value <= high):
        raise ValueError(f"{name}={show(value)}: accepted is a number from {_bound(low)} to {_bound(high)}")


def check_at_least(name: str, value: float, low: float) -> None:
    if not (is_of_kind(value, float) and value >= low):
        raise ValueError(f"{name}={show(value)}: accepted is a number >= {_bound(low)}")


def check_whole(name: str, value: int | None, low: int) -> None:
    """None passes: it means "not given"."""
    if value is not None and not (is_of_kind(value, int) and value >= low):
        raise ValueError(f"{name}={show(value)}: accepted is a whole number >= {low}")


def _bound(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else show(value)  # a huge int is no float


def check_choice(name: str, value: str, accepted: Collection[str]) -> None:
    if not (isinstance(value, str) and value in accepted):
        raise ValueError(f"{name}={show(value)}: accepted are {', '.join(accepted)}")


def check_options(function: Callable[..., object], options: Mapping[str, object]) -> None:
    """Are these options of a method's function? What the task or transform gives it by itself is none."""
    given = {"x", "y", "lam", "index", "generator"}
    accepted = [name for name in inspect.signature(function).parameters if name not in given]
    kinds = _annotations(function)
    for name, value in options.items():
        if name not in accepted:
            raise ValueError(
                f"{function.__name__} has no option {name!r}: accepted are {', '.join(accepted) or 'none'}"
            )
        check_kind(name, value, kinds.get(name, Any))


def unknown_name(kind: str, name: str, accepted: Collection[str]) -> ValueError:
    """The error for a name that is none of the `accepted`, with the closest one."""
    close = difflib.get_close_matches(name, accepted, n=1) if isinstance(name, str) and len(name) < 100 else ()
    hint = f"; did you mean {close[0]!r}?" if close else ""
    return ValueError(f"{kind} {show(name)!r} is unknown: accepted are {', '.join(accepted)}{hint}")


@functools.cache
def _annotations(described: Any) -> dict[str, Any]:
    return get_type_hints(described)


def as_lam(lam: float | Tensor, batch_size: int) -> Tensor:
    """A given lam as a tensor of shape () or (N,), checked to lie in [0, 1] (on the CPU only, see check_classes)."""
    given = torch.as_tensor(lam)
    if given.ndim > 1 or (given.ndim == 1 and len(given) != batch_size):
        raise ValueError(
            f"lam has shape {tuple(given.shape)}: accepted is one number, or one per sample of shape ({batch_size},)"
        )
    if given.device.type == "cpu":
        for value in (given.min().item(), given.max().item()):
            if not 0 <= value <= 1:
                raise ValueError(f"lam={value:g}: accepted are numbers in [0, 1]")
    return given


def config_error(error: Any) -> AutomixError:
    """Turn pydantic's error into one line, such as ``lr must be > 0, got -1``."""
    first = error.errors(include_url=False)[0]
    name = ".".join(str(part) for part in first["loc"])
    kind = first["msg"].removeprefix("Input should be ")
    for words, sign in (("greater than or equal to", ">="), ("less than or equal to", "<="), ("greater than", ">"),
                        ("less than", "<")):  # fmt: skip
        kind = kind.replace(words, sign)
    return AutomixError(f"{name} must be {kind}, got {show(first['input'])}")
