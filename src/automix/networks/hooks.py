"""Run a network with the output of one of its layers changed on the way."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.networks.feature_tap import stage_modules
from automix.networks.outputs import run_uncompiled, without_compile


def run_with_hook(model: nn.Module, x: Tensor, layer: str | None, change: Callable[[Tensor], Tensor]) -> Any:
    """Run a network with the output of one submodule replaced.

    Args:
        model: The network.
        x: Images, ``(N, C, H, W)``.
        layer: Name of the submodule; None changes the input.
        change: Function from the output to its replacement.

    Returns:
        The network's output.
    """
    if layer is None:
        return model(change(x))

    outside = _recording()

    def replace(module: nn.Module, inputs: Any, output: Any) -> Tensor:
        if _recording() != outside:  # it would run again in the backward pass, unchanged: silently wrong gradients
            raise AutomixError(f"layer {layer!r} must not be inside torch.utils.checkpoint, got one that is")
        if not isinstance(output, Tensor):
            raise AutomixError(f"layer {layer!r} must return one tensor, got a {type(output).__name__}")
        return change(output)

    handle = without_compile(model).get_submodule(layer).register_forward_hook(replace)
    try:
        return run_uncompiled(model, x)
    finally:
        handle.remove()


def _recording() -> tuple[bool, int | None]:
    """How operations are recorded for the backward pass; another way inside torch.utils.checkpoint, of both kinds."""
    if torch.compiler.is_compiling():
        return True, None
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    return torch.is_grad_enabled(), None if hooks is None else id(hooks[0])


def hidden_layers(model: nn.Module, layers: Sequence[int | str]) -> list[str | None]:
    """Find the submodules for layers.

    Args:
        model: The network.
        layers: 0 for the input, 1 to 4 for a stage of the network, a string for a submodule.

    Returns:
        Names of submodules; None stands for the input.
    """
    stages, names = stage_modules(model), dict(without_compile(model).named_modules())
    submodules: list[str | None] = []
    for layer in layers:
        if isinstance(layer, str) and layer in names and layer:
            submodules.append(layer)
        elif layer == 0:
            submodules.append(None)
        elif isinstance(layer, int) and 1 <= layer <= len(stages):
            submodules.append(stages[layer - 1])
        else:
            numbers = f"in [0, {len(stages)}]" if stages else "0 (the input)"
            raise AutomixError(
                f"layers must be {numbers} or names of submodules of {type(model).__name__}, got {layer!r}"
            )
    if not submodules:
        raise AutomixError("layers must name one layer or more, got none")
    return submodules
