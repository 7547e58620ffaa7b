"""The task of the methods that mix inside the network: at a layer that is drawn for each batch."""

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
from automix.networks.outputs import run_network, without_compile
from automix.networks.stages import trial_image
from automix.tasks.mix_task import MixTask
from automix.tasks.step_output import StepOutput


class HiddenTask(MixTask):
    """Train on batches that are mixed at the output of one of several layers.

    `mix` of the task shows the mixing of the input.

    Args:
        model: The network to train.
        mix: Mixes the output of a layer, ``mix(z, y, lam=..., index=..., generator=..., **options)``.
        at_input: Mixes images, called alike.
        layers: Where to mix: 0 is the input, 1 to 4 a stage of the network, a string a submodule.
        **options: Options of `mix` and of `MixTask`.
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
            raise AutomixError(f"layers must be a tuple, such as ({layers!r},); got {layers!r}")
        self.at_input = at_input
        self.layers = hidden_layers(model, layers)
        self._check_layers(model)

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        layer = draw_one(self.layers, generator)
        if layer is None:
            return self.input_step(x, y, generator)
        return self.hidden_step(x, y, layer, generator)

    def input_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        """Mix the images.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            generator: Source of randomness.

        Returns:
            The step's output.
        """
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
        targets: list[MixedTarget] = []

        def change(z: Tensor) -> Tensor:
            z, target = self.mix_hidden(z, y, generator)
            targets.append(target)
            return z

        logits = run_network(lambda images: run_with_hook(self.student, images, layer, change), x)
        if len(targets) != 1:
            raise AutomixError(f"layer {layer!r} must run once in a forward pass, got {len(targets)} times")
        return self.student_step(x, y, logits, targets[0])

    def mix_hidden(self, z: Tensor, y: Tensor, generator: torch.Generator) -> tuple[Tensor, MixedTarget]:
        """Mix the output of a layer.

        Args:
            z: The output; maps ``(N, h, w, C)`` of timm's networks are mixed with their channels first.
            y: Labels of the batch.
            generator: Source of randomness.

        Returns:
            The mixed output and its target.
        """
        channels_last = z.ndim == 4 and channels_last_maps(self.student)
        z = z.permute(0, 3, 1, 2) if channels_last else z
        mixed = self.mixer(z, y, lam=None, index=None, generator=generator, **self.options)
        return mixed.x.permute(0, 2, 3, 1) if channels_last else mixed.x, mixed.target

    def mix_images(
        self, x: Tensor, y: Tensor, *, lam: float | Tensor | None, index: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        return self.at_input(x, y, lam=lam, index=index, generator=generator)

    # --- checks when the task is built

    def accepts(self, z: Tensor) -> str | None:
        """Say whether the output of a layer can be mixed.

        Args:
            z: An output of the layer for one image.

        Returns:
            None if it can, else what the layer must return.
        """
        return None

    def _check_layers(self, model: nn.Module) -> None:
        hidden = [layer for layer in self.layers if layer is not None]
        for layer in hidden:
            if layer not in dict(without_compile(model).named_modules()):
                raise AutomixError(
                    f"layers must be names of submodules: {type(model).__name__} lists a stage {layer!r} that it "
                    "does not have"
                )
        if hidden and any(getattr(module, "grad_checkpointing", False) for module in model.modules()):
            # The layers would run again in the backward pass, where nothing is mixed: silently wrong gradients.
            raise AutomixError("layers must be (0,), the input, for a model with gradient checkpointing")
        for layer, outputs in _trial_outputs(model, hidden).items():
            if len(outputs) != 1:
                raise AutomixError(f"layer {layer!r} must run once in a forward pass, got {len(outputs)} times")
            if not isinstance(outputs[0], Tensor):
                raise AutomixError(f"layer {layer!r} must return one tensor, got {type(outputs[0]).__name__}")
            if accepted := self.accepts(outputs[0]):
                shape = ", ".join(["N", *(str(length) for length in outputs[0].shape[1:])])
                raise AutomixError(f"layer {layer!r} must return {accepted}, got ({shape})")


def _trial_outputs(model: nn.Module, layers: Sequence[str]) -> dict[str, list[Any]]:
    """The outputs of each layer for one empty image; none at all if the network does not accept such an image."""
    outputs: dict[str, list[Any]] = {layer: [] for layer in layers}
    model = without_compile(model)
    handles = [
        model.get_submodule(layer).register_forward_hook(lambda module, inputs, output, to=to: to.append(output))
        for layer, to in outputs.items()
    ]
    try:
        with torch.no_grad(), eval_mode(model):
            model(trial_image(model))
    except Exception:  # networks raise anything for an image size they were not made for
        return {}
    finally:
        for handle in handles:
            handle.remove()
    return outputs
