"""The feature tap reads the map z^l of a network and computes no further than layer l.

timm's networks describe their stages in ``feature_info`` and mostly have ``forward_intermediates``, which stops early
and returns (N, C, h, w) for every family, transformers included. In any other network a forward hook on a named
submodule catches the map and leaves the forward pass. Tokens (N, T, C) are turned into the map of their patches, and
maps (N, h, w, C) get their channels first.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.errors import AutomixError, one_line
from automix.networks.outputs import check_not_parallel, logits_of, run_uncompiled, without_compile
from automix.networks.stages import describe_stages, trial_image

_PREFIX = 16  # tokens at most that stand before the patches: class, distillation, registers


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
        z = to_feature_map(_run_until(model, str(self.name), x), x, str(self.name), self.channels)
        if z.shape[1] != self.channels:
            raise AutomixError(f"layer {self.name!r} must return (N, {self.channels}, h, w), got {tuple(z.shape)}")
        return z


def find_tap(model: nn.Module, layer: int | str, channels: int | None = None) -> FeatureTap:
    """Find the tap for a layer of a network.

    Stage l of a network with a pyramid of maps is the l-th map after the stem. In a plain transformer with n blocks it
    is the map after block ``n * l / 4``: stage 2 of DeiT-S is its sixth block.

    Args:
        model: The network.
        layer: Stage 1 to 4 of a network of timm or transformers or of a ResNet of torchvision, or the name of a
            submodule of any network.
        channels: Number of channels of the map; found by a trial run if not given. Needed for a submodule of a network
            that neither says its image size nor accepts 64 x 64 images.

    Returns:
        The tap.
    """
    check_not_parallel(model)
    if isinstance(layer, str):
        return _tap_by_name(model, layer, channels)
    stages = describe_stages(model)
    if not stages:
        raise AutomixError(
            f"layer must be the name of a submodule, because {type(model).__name__} does not describe its stages; "
            f"got {layer}. Available: {_map_names(model)}"
        )
    if isinstance(layer, bool) or layer not in range(1, len(stages) + 1):
        raise AutomixError(
            f"layer must be in [1, {len(stages)}] for {type(model).__name__}, or the name of a submodule; got {layer}"
        )
    index, info = stages[layer - 1]
    if channels is None and "num_chs" in info:
        channels = int(info["num_chs"])
    if channels is not None and hasattr(model, "forward_intermediates"):
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
        return int(_try_out(model, lambda copied, image: logits_of(copied(image))).shape[1])
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
    return [str(info["module"]) for _, info in describe_stages(model)]


def _tap_by_name(model: nn.Module, name: str, channels: int | None) -> FeatureTap:
    if not name or name not in dict(without_compile(model).named_modules()):
        raise AutomixError(f"layer must be the name of a submodule, got {name!r}. Available: {_some_names(model)}")
    return FeatureTap(_count_channels(model, name) if channels is None else channels, name=name)


def _some_names(model: nn.Module) -> str:
    return _shorten([name for name, _ in without_compile(model).named_modules() if name and name.count(".") <= 1])


def _map_names(model: nn.Module) -> str:
    """The submodules that return maps in a trial run; if it fails, some names."""
    found: list[str] = []

    def run(copied: nn.Module, image: Tensor) -> Tensor:
        def note(module: nn.Module, inputs: Any, output: Any, name: str) -> None:
            if isinstance(output, Tensor) and output.ndim == 4 and output.shape[2] > 1:
                found.append(name)

        for name, module in copied.named_modules():
            if name and name.count(".") <= 1:
                module.register_forward_hook(partial(note, name=name))
        copied(image)
        return image

    try:
        _try_out(model, run)
    except Exception:  # networks raise anything for an image size they were not made for
        return _some_names(model)
    return _shorten(list(dict.fromkeys(found))) if found else _some_names(model)


def _shorten(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")


def _count_channels(model: nn.Module, name: str) -> int:
    try:
        return _try_out(
            model, lambda copied, image: to_feature_map(_run_until(copied, name, image), image, name)
        ).shape[1]
    except Exception as error:
        raise AutomixError(
            f"layer {name!r}: cannot count its channels by a trial run ({one_line(error)}); pass channels=..."
        ) from error


def _try_out(model: nn.Module, run: Callable[[nn.Module, Tensor], Tensor]) -> Tensor:
    """Run a copy on one blank image; the caller's model, its statistics and its modes stay as they are."""
    with torch.no_grad():
        return run(copy.deepcopy(without_compile(model)).eval(), trial_image(model))


class _Reached(Exception):  # noqa: N818 (a message, not an error)
    """Carries the output of the layer out of the forward pass."""

    def __init__(self, output: Any) -> None:
        self.output = output


def _run_until(model: nn.Module, name: str, x: Tensor) -> Any:
    def stop(module: nn.Module, inputs: Any, output: Any) -> None:
        raise _Reached(output)

    handle = without_compile(model).get_submodule(name).register_forward_hook(stop)
    try:
        run_uncompiled(model, x)
    except _Reached as reached:
        return reached.output
    finally:
        handle.remove()
    raise AutomixError(f"layer must be a submodule that runs in a forward pass, got {name!r}")


def to_feature_map(output: Any, x: Tensor, name: str, channels: int | None = None) -> Tensor:
    """Find the map in the output of a layer.

    Args:
        output: Maps with the channels first or last, tokens of patches ``(N, T, C)``, or a tuple that starts with them.
        x: The images, ``(N, C, H, W)``.
        name: Name of the layer, for the message.
        channels: Number of channels, if it is known.

    Returns:
        The map, ``(N, C, h, w)``.
    """
    if isinstance(output, tuple | list) and output:
        output = output[0]  # of blocks that return attention, too
    if isinstance(output, Tensor) and output.ndim == 4:
        _, first, height, last = output.shape
        # without knowing C: the trial image is square, so that (h, h, C) shows where the channels are
        is_channels_last = first == height != last if channels is None else first != channels == last
        return output.permute(0, 3, 1, 2) if is_channels_last else output
    if isinstance(output, Tensor) and output.ndim == 3 and (grid := _token_grid(output.shape[1], x)) is not None:
        height, width = grid
        return output[:, -height * width :].transpose(1, 2).unflatten(2, grid)
    shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    raise AutomixError(f"layer {name!r} must return maps (N, C, h, w) or tokens of patches (N, T, C), got {shape}")


def _token_grid(tokens: int, x: Tensor) -> tuple[int, int] | None:
    """Rows and columns of patches for so many tokens, of which the first few may be others; None if none fits."""
    aspect = x.shape[-2] / x.shape[-1]
    for patches in range(tokens, max(0, tokens - _PREFIX - 1), -1):
        height = round((patches * aspect) ** 0.5)
        if height and patches % height == 0 and abs(height - patches // height * aspect) < 1e-6:
            return height, patches // height
    return None


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
