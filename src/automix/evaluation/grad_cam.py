"""Grad-CAM (Selvaraju et al., 2017), for any network and any layer with a feature map A.

    a_ck = mean over (i, j) of d logit_c / d A_k(i, j)          GradCAM_c = ReLU(sum over k of a_ck A_k)

At the last map of a network that ends in pooling and a linear layer it is ReLU(CAM_c) / (h w).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError
from automix.evaluation.cam import check_map_classes, split_normalization
from automix.networks.feature_tap import channels_last_maps, find_tap, stage_modules
from automix.networks.hooks import run_with_hook
from automix.networks.modes import eval_mode
from automix.runs.classifier import WithNormalization


def grad_cam(model: nn.Module, x: Tensor, classes: Tensor, layer: int | str = 4) -> Tensor:
    """Compute Grad-CAM maps (Selvaraju et al., 2017).

    Args:
        model: Any classifier; it runs in eval mode.
        x: Images as the model takes them, ``(N, 3, H, W)``.
        classes: The K classes of each image to draw a map for, ``(N, K)`` int64.
        layer: A stage 1 to 4, or the name of a submodule whose output is a map or one token per patch.

    Returns:
        Maps ``(N, K, h, w)``, nowhere below 0.
    """
    return grad_cam_and_logits(model, x, classes, layer)[0]


def grad_cam_and_logits(model: nn.Module, x: Tensor, classes: Tensor, layer: int | str = 4) -> tuple[Tensor, Tensor]:
    """`grad_cam`, and the logits of the same pass."""
    network = model.model if isinstance(model, WithNormalization) else model
    name, channels = _find_layer(network, layer)
    # A caller's no_grad or inference_mode may be on, and x a tensor of the latter.
    with eval_mode(model), torch.inference_mode(False), torch.enable_grad():
        output, logits = _run_from(network, split_normalization(model, x.clone())[1], name)
        check_map_classes(classes, logits)
        gradients = _gradients(logits.gather(1, classes.to(logits.device)), output)
    if gradients is None or _only_class_token(network, gradients):
        raise AutomixError(f"layer must be one that the logits depend on, got {layer!r}; choose an earlier one")
    activation, *gradients = (_as_map(tensor.detach(), network, name, channels) for tensor in (output, *gradients))
    weights = [gradient.mean(dim=(2, 3), keepdim=True) for gradient in gradients]
    return torch.stack([F.relu((weight * activation).sum(dim=1)) for weight in weights], dim=1), logits.detach()


def _find_layer(network: nn.Module, layer: int | str) -> tuple[str, int | None]:
    """The submodule whose output is `layer` and, for a stage, its channels; find_tap says what is accepted."""
    if isinstance(layer, str):
        return str(find_tap(network, layer, channels=0).name), None
    channels = find_tap(network, layer).channels
    return stage_modules(network)[layer - 1], channels


def _run_from(network: nn.Module, x: Tensor, name: str) -> tuple[Tensor, Tensor]:
    """The output of submodule `name` and the logits. The graph begins at that output: a frozen network has one too."""
    caught: list[Tensor] = []

    def start_here(output: Tensor) -> Tensor:
        caught.append(output.detach().requires_grad_())
        return caught[-1].clone()  # which may be changed in place by what follows

    logits = run_with_hook(network, x, name, start_here)
    if len(caught) != 1:
        raise AutomixError(f"layer must run once in a forward pass; {name!r} runs {len(caught)} times")
    return caught[0], logits


def _gradients(scores: Tensor, output: Tensor) -> list[Tensor] | None:
    """The gradient of each column of `scores` (N, K); None if the scores do not depend on `output`."""
    if not scores.requires_grad:
        return None
    columns = scores.sum(dim=0)  # in eval mode samples do not depend on each other
    gradients = [torch.autograd.grad(score, output, retain_graph=True, allow_unused=True)[0] for score in columns]
    return None if any(gradient is None for gradient in gradients) else gradients


def _as_map(output: Tensor, network: nn.Module, name: str, channels: int | None) -> Tensor:
    """A layer's output as (N, C, h, w): channels turned to the front, tokens laid out as they lay in the image."""
    if output.ndim == 4:
        last = channels_last_maps(network) if channels is None else output.shape[1] != channels
        return at_least_float32(output.permute(0, 3, 1, 2) if last else output)
    if output.ndim == 3:
        tokens = output[:, _class_tokens(network) :]
        grid = _grid(network, tokens.shape[1])
        if grid[0] * grid[1] == tokens.shape[1]:
            return at_least_float32(tokens.transpose(1, 2).unflatten(2, grid))
    raise AutomixError(
        f"layer must have a map (N, C, h, w) or one token per patch; {name!r} returns {tuple(output.shape)}"
    )


def _class_tokens(network: nn.Module) -> int:
    return int(getattr(network, "num_prefix_tokens", 0))


def _grid(network: nn.Module, tokens: int) -> tuple[int, int]:
    """Rows and columns of patches: the network's own, else those of a square."""
    grid = getattr(getattr(network, "patch_embed", None), "grid_size", None)
    if grid is not None and grid[0] * grid[1] == tokens:
        return int(grid[0]), int(grid[1])
    side = round(tokens**0.5)
    return side, side


def _only_class_token(network: nn.Module, gradients: list[Tensor]) -> bool:
    """After a transformer's last block nothing but the class token reaches the head."""
    first = _class_tokens(network)
    return first > 0 and all(g.ndim == 3 and bool(g[:, :first].any()) and not g[:, first:].any() for g in gradients)
