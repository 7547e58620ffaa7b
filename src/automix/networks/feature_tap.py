"""The feature tap: the map z^l of a network, computed no further than layer l.

Two ways lead to it. timm's networks describe their stages in ``feature_info`` and mostly bring
``forward_intermediates``, which stops early and returns (N, C, h, w) for every family, transformers included. In any
other network a forward hook on a named submodule catches the map and leaves the forward pass.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.errors import AutomixError, one_line


@dataclass(frozen=True)
class FeatureTap:
    """Reads the map of one layer: position `index` of timm's intermediates, or the output of submodule `name`."""

    channels: int
    index: int | None = None
    name: str | None = None

    def __call__(self, model: nn.Module, x: Tensor) -> Tensor:
        if self.index is not None:
            read: Any = model.forward_intermediates
            return read(x, indices=[self.index], stop_early=True, intermediates_only=True, output_fmt="NCHW")[0]
        z = _run_until(model, str(self.name), x)
        if z.shape[1] != self.channels:
            shape = tuple(z.shape)
            raise AutomixError(
                f"layer={self.name!r} gives {shape}: accepted is a layer with (N, {self.channels}, h, w)"
            )
        return z


def find_tap(model: nn.Module, layer: int | str, channels: int | None = None) -> FeatureTap:
    """The tap for `layer`: a stage 1..4 of a timm network, or the name of a submodule of any network.

    Stage l of a network with a pyramid of maps is the l-th map after the stem; of a plain transformer with n blocks it
    is the map after block ``n * l / 4``, so that stage 2 of DeiT-S is its sixth block. `channels` is found by itself;
    name it for a submodule of a network that does not accept a 64 x 64 image.
    """
    if isinstance(layer, str):
        return _tap_by_name(model, layer, channels)
    stages = _stages(model)
    if not stages:
        raise AutomixError(
            f"layer={layer}: {type(model).__name__} does not describe its stages; "
            f"accepted is the name of a submodule: {_some_names(model)}"
        )
    if isinstance(layer, bool) or layer not in range(1, len(stages) + 1):
        raise AutomixError(
            f"layer={layer}: accepted for {type(model).__name__} are 1 to {len(stages)}, or a submodule's name"
        )
    index, info = stages[layer - 1]
    channels = int(info["num_chs"]) if channels is None else channels
    if hasattr(model, "forward_intermediates"):
        return FeatureTap(channels, index=index)
    return _tap_by_name(model, str(info["module"]), channels)


def count_classes(model: nn.Module) -> int:
    """Count the classes of a classifier.

    Its `num_classes` is believed only if its last linear layer has as many outputs: it is stale where the head was
    replaced. Otherwise a copy of the network is run on one blank image.

    Args:
        model: A classifier.

    Returns:
        The number of classes.
    """
    declared = getattr(model, "num_classes", None)
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if isinstance(declared, int) and declared > 0 and linear and linear[-1].out_features == declared:
        return declared
    try:
        logits = _try_out(model, lambda copied, image: copied(image))
        return int(logits.shape[1])
    except Exception as error:
        raise AutomixError(
            f"{type(model).__name__}: cannot count its classes by a trial run ({one_line(error)}); pass num_classes=..."
        ) from error


def stage_modules(model: nn.Module) -> list[str]:
    """The names of the submodules whose outputs are stages 1, 2, ...; empty for a network that does not say."""
    return [str(info["module"]) for _, info in _stages(model)]


def _stages(model: nn.Module) -> list[tuple[int, dict[str, Any]]]:
    """Up to four (position, description) of the maps that count as stages 1..4."""
    maps = list(enumerate(getattr(model, "feature_info", None) or ()))
    if len(maps) <= 4:
        return maps
    if len({info["reduction"] for _, info in maps}) == 1:  # a plain transformer: one map per block, all of one size
        return [maps[-(-len(maps) * stage // 4) - 1] for stage in (1, 2, 3, 4)]
    return maps[-4:]  # before these come the stem's


def _tap_by_name(model: nn.Module, name: str, channels: int | None) -> FeatureTap:
    if not name or name not in dict(model.named_modules()):
        raise AutomixError(f"layer={name!r}: no such submodule; accepted are for instance {_some_names(model)}")
    return FeatureTap(_count_channels(model, name) if channels is None else channels, name=name)


def _some_names(model: nn.Module) -> str:
    names = [name for name, _ in model.named_modules() if name and name.count(".") <= 1]
    return ", ".join(repr(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")


def _count_channels(model: nn.Module, name: str) -> int:
    try:
        return _try_out(model, lambda copied, image: _run_until(copied, name, image)).shape[1]
    except Exception as error:
        raise AutomixError(
            f"layer={name!r}: cannot count its channels by a trial run ({error}); pass channels=..."
        ) from error


def _try_out(model: nn.Module, run: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
    """Run a copy on one empty image; the caller's model, its statistics and its modes stay as they are."""
    convolution = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    reference = next(model.parameters(), torch.empty(0))
    size = getattr(getattr(model, "patch_embed", None), "img_size", None) or (64, 64)
    image = reference.new_zeros(1, convolution.in_channels if convolution else 3, *size)
    with torch.no_grad():
        return run(copy.deepcopy(model).eval(), image)


class _Reached(Exception):  # noqa: N818 (a message, not an error)
    """Carries the output of the layer out of the forward pass."""

    def __init__(self, output: Any) -> None:
        self.output = output


def _run_until(model: nn.Module, name: str, x: Tensor) -> Tensor:
    def stop(module: nn.Module, inputs: Any, output: Any) -> None:
        raise _Reached(output)

    handle = model.get_submodule(name).register_forward_hook(stop)
    try:
        model(x)
    except _Reached as reached:
        output = reached.output
    else:
        raise AutomixError(
            f"layer={name!r}: the forward pass does not come through it; accepted is a submodule that runs"
        )
    finally:
        handle.remove()
    if not isinstance(output, Tensor) or output.ndim != 4:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise AutomixError(f"layer={name!r} gives {shape}: accepted is a layer with maps of shape (N, C, h, w)")
    return output


def existing_stages(model: nn.Module, stages: Sequence[int]) -> tuple[int, ...]:
    """Those of `stages` (1 to 4) that the network describes; none where it describes none."""
    return tuple(stage for stage in stages if stage <= len(stage_modules(model)))


def channels_last_maps(model: nn.Module) -> bool:
    """Whether the layers of a timm network give maps (N, h, w, C), as Swin's do."""
    return str(getattr(model, "output_fmt", "NCHW")) == "NHWC"
