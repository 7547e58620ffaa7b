"""The task of the methods that mix inside the network: at a layer drawn for each batch, the input among them."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.draws import draw_one
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget
from automix.networks.feature_tap import channels_last_maps
from automix.networks.hooks import hidden_layers, run_with_hook
from automix.networks.modes import eval_mode
from automix.tasks.mix_task import MixTask
from automix.tasks.task import StepOutput, batch_norm_hint


class HiddenTask(MixTask):
    """Each batch is mixed at one of `layers`: 0 is the input, 1 to 4 a stage of a timm network, a string a submodule.

    `at_input` mixes images, `mix` the outputs of layers; both are called as ``mix(x, y, lam=..., index=...,
    generator=...)``. `options` are those of `mix` and of MixTask. What `mix` shows is the mixing of the input.
    """

    def __init__(
        self,
        model: nn.Module,
        mix: Callable[..., Mixed],
        at_input: Callable[..., Mixed],
        layers: Sequence[int | str],
        **options: Any,
    ) -> None:
        super().__init__(model, mix, **options)
        if isinstance(layers, str):
            raise ValueError(f"layers={layers!r}: accepted is a tuple of layers, such as ({layers!r},)")
        self.at_input = at_input
        self.layers = hidden_layers(model, layers)
        self._check_layers(model)

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        layer = draw_one(self.layers, generator)
        if layer is None:
            return self.input_step(x, y, generator)
        return self.hidden_step(x, y, layer, generator)

    def input_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        return super().training_step(x, y, generator)

    def hidden_step(self, x: Tensor, y: Tensor, layer: str, generator: torch.Generator) -> StepOutput:
        """Mix the output of one layer on the way through the student.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            layer: Name of the submodule whose output is mixed.
            generator: Source of randomness.

        Returns:
            The step's output.
        """
        return self.student_step(x, y, lambda: self._run_mixed(x, y, layer, generator))

    def _run_mixed(self, x: Tensor, y: Tensor, layer: str, generator: torch.Generator) -> tuple[Tensor, MixedTarget]:
        targets: list[MixedTarget] = []

        def change(z: Tensor) -> Tensor:
            z, target = self.mix_hidden(z, y, generator)
            targets.append(target)
            return z

        with batch_norm_hint(x):
            logits = run_with_hook(self.student, x, layer, change)
        if len(targets) != 1:
            raise AutomixError(f"layer {layer!r} must run once in a forward pass, got {len(targets)} times")
        return logits, targets[0]

    def mix_hidden(self, z: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, MixedTarget]:
        """The output of a layer, mixed, and its label; maps are mixed with their channels first."""
        channels_last = z.ndim == 4 and channels_last_maps(self.student)
        z = z.permute(0, 3, 1, 2) if channels_last else z
        mixed = self.mixer(z, y, lam=None, index=None, generator=generator, **self.options)
        return mixed.x.permute(0, 2, 3, 1) if channels_last else mixed.x, mixed.target

    def make_mixed(
        self, x: Tensor, y: Tensor, *, lam: float | Tensor | None, index: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        return self.at_input(x, y, lam=lam, index=index, generator=generator)

    # --- what can be said when the task is built

    def accepts(self, z: Tensor) -> str | None:
        """None if the outputs of a layer such as `z` can be mixed, else what would be accepted."""
        return None

    def _check_layers(self, model: nn.Module) -> None:
        hidden = [layer for layer in self.layers if layer is not None]
        for layer in hidden:
            if layer not in dict(model.named_modules()):
                raise ValueError(
                    f"layers: {type(model).__name__} says that a stage is {layer!r}, which it does not have: "
                    "accepted are names of its submodules"
                )
        if hidden and any(getattr(module, "grad_checkpointing", False) for module in model.modules()):
            # The layers would run again in the backward pass, where nothing is mixed: silently wrong gradients.
            raise ValueError("the model uses gradient checkpointing: accepted with layers=(0,), the input, only")
        for layer, outputs in _outputs_on_trial(model, hidden).items():
            if len(outputs) != 1:
                raise ValueError(f"layer={layer!r} runs {len(outputs)} times in a pass: accepted is one that runs once")
            if not isinstance(outputs[0], Tensor):
                kind = type(outputs[0]).__name__
                raise ValueError(f"layer={layer!r} gives a {kind}: accepted is a layer with one tensor")
            if accepted := self.accepts(outputs[0]):
                shape = ", ".join(["N", *(str(length) for length in outputs[0].shape[1:])])
                raise ValueError(f"layer={layer!r} gives ({shape}): accepted is a layer with {accepted}")


def _outputs_on_trial(model: nn.Module, layers: Sequence[str]) -> dict[str, list[Any]]:
    """What each of `layers` gives in a pass of one empty image; nothing where the network does not accept that image.

    In eval mode and without gradients: nothing of the network changes.
    """
    outputs: dict[str, list[Any]] = {layer: [] for layer in layers}
    convolution = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    size = getattr(getattr(model, "patch_embed", None), "img_size", None) or (64, 64)
    parameter = next(model.parameters(), torch.empty(0))
    handles = [
        model.get_submodule(layer).register_forward_hook(lambda module, inputs, output, to=to: to.append(output))
        for layer, to in outputs.items()
    ]
    try:
        with torch.no_grad(), eval_mode(model):
            model(parameter.new_zeros(1, convolution.in_channels if convolution else 3, *size))
    except Exception:  # whatever a network of somebody else's says to an image it was not made for
        return {}
    finally:
        for handle in handles:
            handle.remove()
    return outputs
