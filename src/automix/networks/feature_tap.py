"""The feature tap reads the map z^l of a network and computes no further than layer l.

timm's networks describe their stages in ``feature_info`` and mostly have ``forward_intermediates``, which stops early
and returns (N, C, h, w) for every family, transformers included. In any other network a forward hook on a named
submodule catches the map and leaves the forward pass.
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
    """Reads the feature map of one layer: call it with a network and images."""

    channels: int
    """Number of channels of the map."""
    index: int | None = None
    """Position among timm's intermediates; None to read a submodule."""
    name: str | None = None
    """Name of the submodule; None to read timm's intermediates."""

    def __call__(self, model: nn.Module, x: Tensor) -> Tensor:
        """Run the network up to the layer and return the map, (N, C, h, w)."""
        if self.index is not None:
            read: Any = model.forward_intermediates
            return read(x, indices=[self.index], stop_early=True, intermediates_only=True, output_fmt="NCHW")[0]
        z = _run_until(model, str(self.name), x)
        if z.shape[1] != self.channels:
            raise AutomixError(f"layer {self.name!r} must return (N, {self.channels}, h, w), got {tuple(z.shape)}")
        return z


def find_tap(model: nn.Module, layer: int | str, channels: int | None = None) -> FeatureTap:
    """Find the tap for a layer of a network.

    Stage l of a network with a pyramid of maps is the l-th map after the stem. In a plain transformer with n blocks it
    is the map after block ``n * l / 4``: stage 2 of DeiT-S is its sixth block.

    Args:
        model: The network.
        layer: Stage 1 to 4 of a timm network, or the name of a submodule of any network.
        channels: Number of channels of the map; found by a trial run if not given. Needed for a submodule of a network
            that does not accept 64 x 64 images.

    Returns:
        The tap.
    """
    if isinstance(layer, str):
        return _tap_by_name(model, layer, channels)
    stages = _stages(model)
    if not stages:
        raise AutomixError(
            f"layer must be the name of a submodule, because {type(model).__name__} does not describe its stages; "
            f"got {layer}. Available: {_some_names(model)}"
        )
    if isinstance(layer, bool) or layer not in range(1, len(stages) + 1):
        raise AutomixError(
            f"layer must be in [1, {len(stages)}] for {type(model).__name__}, or the name of a submodule; got {layer}"
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
    """List the names of the submodules whose outputs are stages 1, 2, ...

    Args:
        model: The network.

    Returns:
        The names; empty for a network that does not describe its stages.
    """
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
        raise AutomixError(f"layer must be the name of a submodule, got {name!r}. Available: {_some_names(model)}")
    return FeatureTap(_count_channels(model, name) if channels is None else channels, name=name)


def _some_names(model: nn.Module) -> str:
    names = [name for name, _ in model.named_modules() if name and name.count(".") <= 1]
    return ", ".join(repr(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")


def _count_channels(model: nn.Module, name: str) -> int:
    try:
        return _try_out(model, lambda copied, image: _run_until(copied, name, image)).shape[1]
    except Exception as error:
        raise AutomixError(
            f"layer {name!r}: cannot count its channels by a trial run ({one_line(error)}); pass channels=..."
        ) from error


def _try_out(model: nn.Module, run: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
    """Run a copy on one blank image; the caller's model, its statistics and its modes stay as they are."""
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
        raise AutomixError(f"layer must be a submodule that runs in a forward pass, got {name!r}")
    finally:
        handle.remove()
    if not isinstance(output, Tensor) or output.ndim != 4:
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        raise AutomixError(f"layer {name!r} must return maps (N, C, h, w), got {shape}")
    return output


def existing_stages(model: nn.Module, stages: Sequence[int]) -> tuple[int, ...]:
    """Select the stages that a network has.

    Args:
        model: The network.
        stages: Stages, 1 to 4.

    Returns:
        Those of `stages` that the network describes.
    """
    return tuple(stage for stage in stages if stage <= len(stage_modules(model)))


def stem_modules(model: nn.Module) -> tuple[str, ...]:
    """Find the submodule whose output goes into the first stage, by the names that timm's networks have for it.

    Args:
        model: The network.

    Returns:
        Its name; empty if no submodule has such a name.
    """
    names = dict(model.named_children())
    # of a ResNet the last part of the stem, before its pooling; bn1 has the activation in EfficientNets
    return next(((name,) for name in ("stem", "patch_embed", "act1", "bn1") if name in names), ())


def channels_last_maps(model: nn.Module) -> bool:
    """Tell whether the layers of a timm network return maps (N, h, w, C), as Swin's do.

    Args:
        model: The network.

    Returns:
        True if channels come last.
    """
    return str(getattr(model, "output_fmt", "NCHW")) == "NHWC"
