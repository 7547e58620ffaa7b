"""Freeze the lower stages of a pretrained network, whose edges and textures serve any photograph."""

from torch import nn

from automix.core.errors import AutomixError
from automix.networks.feature_tap import stage_modules


def freeze_stages(model: nn.Module, stages: int) -> None:
    """Keep the weights of everything up to a stage, the stem included.

    Frozen parameters take no gradient, so that the backward pass ends above them. A BatchNorm with frozen weights keeps
    its statistics too: `Task.train` leaves it in eval mode (see `rest_batch_norms`).

    Args:
        model: A network that describes its stages, such as timm's.
        stages: Number of the last stage to freeze, 1 to 4; 0 freezes nothing.
    """
    if stages == 0:
        return
    names = stage_modules(model)
    if not 1 <= stages <= len(names):
        accepted = f"in [0, {len(names)}]" if names else "0, because it does not describe its stages"
        raise AutomixError(f"frozen_stages of {type(model).__name__} must be {accepted}; got {stages}")
    ordered = [name for name, _ in model.named_parameters()]  # in the order of the forward pass
    inside = [place for place, name in enumerate(ordered) if name.startswith(f"{names[stages - 1]}.")]
    for name in ordered[: inside[-1] + 1]:
        model.get_parameter(name).requires_grad_(False)


def rest_batch_norms(model: nn.Module) -> None:
    """Put every BatchNorm whose weights are frozen into eval mode, so that its statistics stay as they are.

    Args:
        model: The network, in training mode.
    """
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.training:
            own = list(module.parameters(recurse=False))
            if own and not any(parameter.requires_grad for parameter in own):
                module.eval()
