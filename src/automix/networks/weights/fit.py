"""Load tensors of a file into a network: by name, by timm's conversion, by a known layout, or in their order.

The head stays new if the file has none or one for other classes. The stem stays new if it has another form, as that of
networks for small images. Every other tensor must be in the file and have the right shape.
"""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.networks.weights.layouts import timm_names

_ROLES = ("weight", "bias", "running_mean", "running_var")
_COUNTERS = ("num_batches_tracked",)  # not needed, and missing in old files
_RECOMPUTED = ("relative_position_index", "relative_coords_table", "attn_mask", *_COUNTERS)
_CONVERSIONS = ("checkpoint_filter_fn", "_filter_fn", "_filter_torchvision_pretrained")  # timm's names, by module
_HEADS = ("classifier", "fc", "_fc", "head", "heads")


@dataclass(frozen=True)
class LoadReport:
    """What was loaded into a network."""

    loaded: int
    """Number of tensors that were loaded."""
    new: tuple[str, ...]
    """Names of the tensors that stay as they were initialized: the head, or the stem of small images."""


class MisfitError(AutomixError):
    """Tensors that do not belong to the network."""


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], name: str, label: str) -> LoadReport:
    """Load the tensors of a file into a network.

    Args:
        model: The network, which is changed only if all fits.
        tensors: The tensors by name, in the order of the file.
        name: Name of the network, for the message.
        label: The file, for the message.

    Returns:
        What was loaded.
    """
    target = _Target(model)
    problems = []
    for candidate in _candidates(model, target, dict(tensors)):
        problem = target.misfit(candidate)
        if problem is None:
            return target.load(candidate, label)
        problems.append(problem)
    problem = min(problems, key=lambda found: found.wrong)
    raise MisfitError(f"{label} does not fit {name}: {problem.words}; give --weights of the same network")


@dataclass(frozen=True)
class _Problem:
    words: str
    wrong: int  # number of tensors that are missing, superfluous or of another shape


class _Target:
    """The tensors of a network, divided into head, stem and body."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.own = model.state_dict()
        known = getattr(model, "pretrained_cfg", None) or {}
        heads = known.get("classifier") or _last_linear(model)
        self.heads = tuple(f"{head}." for head in ([heads] if isinstance(heads, str) else heads or ()))
        stem = known.get("first_conv") or _first_convolution(model)
        stem = stem if isinstance(stem, str) else (stem or ("",))[0]
        self.stem = f"{stem.partition('.')[0]}." if stem else None
        self.needed = [name for name in self.own if not name.endswith(_COUNTERS)]
        self.body = [name for name in self.needed if not name.startswith(self.heads)]
        self.tops = {name.partition(".")[0] for name in self.own}

    def fits(self, name: str, given: Tensor) -> bool:
        """Whether the shapes are equal, but for sides of 1: a linear layer passes for a 1x1 convolution."""
        return _sides(given) == _sides(self.own[name])

    def may_stay_new(self, name: str, given: Mapping[str, Tensor]) -> bool:
        if name.startswith(self.heads):
            return True
        return self.stem is not None and name.startswith(self.stem) and any(key.startswith(self.stem) for key in given)

    def misfit(self, given: Mapping[str, Tensor]) -> _Problem | None:
        """The first tensor that is wrong, in words; None if all fit."""
        required = [name for name in self.needed if not self.may_stay_new(name, given)]
        missing = [name for name in required if name not in given]
        other = [name for name in required if name in given and not self.fits(name, given[name])]
        extra = [name for name in given if self.is_extra(name)]
        fitting = sum(name in given and self.fits(name, given[name]) for name in self.needed)
        if not missing + other + extra:
            if 2 * fitting >= len(self.needed):
                return None
            return _Problem("most of its tensors have other shapes", len(self.needed))
        wrong = len(missing) + len(other) + len(extra)
        if 2 * len(missing) > len(required):
            first = next((name for name in given if not name.endswith(_RECOMPUTED)), "nothing")
            return _Problem(f"it is another network (it has {first!r}, but no {missing[0]!r})", wrong)
        if missing:
            return _Problem(f"it has no {missing[0]!r}", wrong)
        if other:
            shapes = tuple(given[other[0]].shape), tuple(self.own[other[0]].shape)
            return _Problem(f"{other[0]!r} has shape {shapes[0]}, not {shapes[1]}", wrong)
        return _Problem(f"it has {extra[0]!r} too, as a larger network", wrong)

    def is_extra(self, name: str) -> bool:
        """Whether a tensor belongs to a part that the network has, but not to the network: another depth."""
        if name in self.own or name.endswith(_RECOMPUTED) or name.startswith((*self.heads, *_HEADS)):
            return False
        return name.partition(".")[0] in self.tops and not (self.stem is not None and name.startswith(self.stem))

    def load(self, given: Mapping[str, Tensor], label: str) -> LoadReport:
        fitting = {name: tensor for name, tensor in given.items() if name in self.own and self.fits(name, tensor)}
        for name, tensor in fitting.items():
            if self.own[name].is_floating_point() and not tensor.is_floating_point():
                raise AutomixError(f"{label}: {name!r} must have floating-point numbers, got {tensor.dtype}")
            if not tensor.isfinite().all():
                what = "NaN" if tensor.isnan().any() else "infinite values"
                raise AutomixError(f"{label}: {name!r} has {what}; give --weights another file")
        shaped = {name: tensor.reshape(self.own[name].shape) for name, tensor in fitting.items()}
        self.model.load_state_dict(shaped, strict=False)
        return LoadReport(len(shaped), tuple(name for name in self.needed if name not in shaped))


def _candidates(model: nn.Module, target: _Target, tensors: dict[str, Tensor]) -> Iterator[dict[str, Tensor]]:
    """The tensors by timm's names, the most careful conversion first."""
    renamed = timm_names(tensors)
    for named in (tensors, renamed):
        if named is not None:
            converted = _timm_conversion(model, named)
            if converted is not None:
                yield converted
            yield named
    for ordered in (tensors, dict(sorted(tensors.items(), key=_natural_order))):  # safetensors keeps no order
        matched = _by_order(target, ordered)
        if matched is not None:
            yield matched


def _timm_conversion(model: nn.Module, tensors: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """What timm's own function for files of this family makes of the tensors: embeddings resized, old names changed."""
    module = sys.modules.get(type(model).__module__)
    function: Any = next((getattr(module, name) for name in _CONVERSIONS if hasattr(module, name)), None)
    if function is None:
        return None
    parameters = inspect.signature(function).parameters
    options = {"adapt_layer_scale": True} if "adapt_layer_scale" in parameters else {}
    try:
        with torch.no_grad():
            converted = function(dict(tensors), *([model] if len(parameters) > 1 else []), **options)
    except Exception:  # of another network: the function meets names and shapes that it does not expect
        return None
    return {name: value for name, value in converted.items() if isinstance(value, Tensor)} or None


def _by_order(target: _Target, tensors: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """Match the body tensor by tensor; the shapes and the roles (weight, bias, mean, variance) must all be equal."""
    given = [(name, tensor) for name, tensor in tensors.items() if not name.endswith(_RECOMPUTED)]
    heads = [name for name in target.needed if name.startswith(target.heads)]
    count = len(target.body)
    if not count <= len(given) <= count + max(2, len(heads)):
        return None
    pairs = list(zip(target.body, given[:count], strict=True))
    if not all(_same_role(own, name) and target.fits(own, tensor) for own, (name, tensor) in pairs):
        return None
    matched = {own: tensor for own, (_, tensor) in pairs}
    last = list(zip(heads, given[count:], strict=False))
    return {**matched, **{own: tensor for own, (name, tensor) in last if _same_role(own, name)}}


def _same_role(own: str, name: str) -> bool:
    first, second = own.rpartition(".")[2], name.rpartition(".")[2]
    return first == second or first not in _ROLES or second not in _ROLES


def _natural_order(item: tuple[str, Tensor]) -> tuple[Any, ...]:
    """Numbers by value, a layer's tensors as torch has them, the head last."""
    parts = item[0].split(".")
    role = _ROLES.index(parts[-1]) if parts[-1] in _ROLES else -1
    path = tuple((0, int(part), "") if re.fullmatch(r"\d{1,9}", part) else (1, 0, part) for part in parts[:-1])
    return parts[0] in _HEADS, path, role, parts[-1]


def _sides(tensor: Tensor) -> tuple[int, ...]:
    return tuple(side for side in tensor.shape if side != 1)


def _last_linear(model: nn.Module) -> str | None:
    return next((name for name, part in reversed(list(model.named_modules())) if isinstance(part, nn.Linear)), None)


def _first_convolution(model: nn.Module) -> str | None:
    return next((name for name, part in model.named_modules() if isinstance(part, nn.Conv2d)), None)
