"""Mixing inside a network: run it with the output of one of its layers changed on the way."""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.networks.feature_tap import stage_modules


def run_with_hook(model: nn.Module, x: Tensor, layer: str | None, change: Callable[[Tensor], Tensor]) -> Any:
    """``model(x)`` with the output of submodule `layer` replaced by ``change(output)``; None stands for the input."""
    if layer is None:
        return model(change(x))

    def replace(module: nn.Module, inputs: Any, output: Any) -> Tensor:
        if not isinstance(output, Tensor):
            raise AutomixError(f"layer={layer!r} gives a {type(output).__name__}: accepted is a layer with one tensor")
        return change(output)

    handle = model.get_submodule(layer).register_forward_hook(replace)
    try:
        return model(x)
    finally:
        handle.remove()


def hidden_layers(model: nn.Module, layers: Sequence[int | str]) -> list[str | None]:
    """The submodules for `layers`: 0 is the input (None), 1 to 4 a stage of a timm network, a string a submodule."""
    stages, names = stage_modules(model), dict(model.named_modules())
    found: list[str | None] = []
    for layer in layers:
        if isinstance(layer, str) and layer in names and layer:
            found.append(layer)
        elif layer == 0:
            found.append(None)
        elif isinstance(layer, int) and 1 <= layer <= len(stages):
            found.append(stages[layer - 1])
        else:
            accepted = f"0 to {len(stages)}" if stages else "0 (the input)"
            raise AutomixError(
                f"layers: {layer!r} is not in {type(model).__name__}: accepted are {accepted} and names of submodules"
            )
    if not found:
        raise AutomixError("layers: none given; accepted are one or more")
    return found
