"""Where a classifier sees a class: class activation maps (CAM) and Grad-CAM, as (N, K, h, w) for K classes per image.

CAM (Zhou et al., 2016) is for networks that end in global average pooling and one linear layer. With the last map
A (C channels) and the layer's weights w_c and bias b_c,

    CAM_c(i, j) = sum over k of w_ck A_k(i, j)          mean over (i, j) of CAM_c + b_c = logit_c, exactly

It may be negative; nothing is cut off. A LayerNorm between pooling and linear layer (ConvNeXt) divides all positions
by one number per image, the deviation of the POOLED vector. The rest of it is linear, so the same norm with that
deviation is applied to the map at every position first, and the equation above still holds exactly. (The gradient of
the deviation is left out, which Grad-CAM has: there the two differ.)

Whether a network ends that way is not guessed from names: the pass is watched, and the linear layer's input must equal
the mean of a map. timm's and torchvision's convolutional networks, Swin, the wide ResNets and most hand-written ones
do; class tokens, max-pooling, hidden layers in the head and maps of one position are refused by one line.

Grad-CAM (Selvaraju et al., 2017) is for any network and any layer with a map A:

    a_ck = mean over (i, j) of d logit_c / d A_k(i, j)          GradCAM_c = ReLU(sum over k of a_ck A_k)

At the last map of a network of pooling and linear layer it is ReLU(CAM_c) / (h w).
"""

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.validation import check_choice
from automix.networks.feature_tap import channels_last_maps, find_tap, stage_modules
from automix.networks.hooks import run_with_hook
from automix.networks.modes import eval_mode
from automix.runs.classifier import WithNormalization

METHODS = ("cam", "grad_cam")
ALIKE = 1e-3  # two means of the same numbers, summed in another order, relative to the largest
ALIKE_IN_HALF = 3e-2  # the same in bfloat16 and float16
FLAT = 1e-5  # a map whose values differ by less, relative to the largest, shows nothing
HEAT = ((0.0, 0.0, 0.5), (0.0, 0.3, 1.0), (0.0, 0.9, 0.9), (1.0, 0.9, 0.0), (1.0, 0.2, 0.0), (0.5, 0.0, 0.0))


def cam(model: nn.Module, x: Tensor, classes: Tensor) -> Tensor:
    """The CAM of `classes` (N, K) for images `x`: (N, K, h, w), h and w those of the network's last map."""
    return cam_and_logits(model, x, classes)[0]


def grad_cam(model: nn.Module, x: Tensor, classes: Tensor, layer: int | str = 4) -> Tensor:
    """The Grad-CAM of `classes` (N, K) at `layer`, a stage 1 to 4 or a submodule's name: (N, K, h, w), nowhere < 0."""
    return grad_cam_and_logits(model, x, classes, layer)[0]


def class_maps(model: nn.Module, x: Tensor, classes: Tensor, method: str, layer: int | str) -> tuple[Tensor, Tensor]:
    """By `method`, "cam" or "grad_cam"; `layer` is Grad-CAM's."""
    check_choice("method", method, METHODS)
    return cam_and_logits(model, x, classes) if method == "cam" else grad_cam_and_logits(model, x, classes, layer)


# --- CAM -------------------------------------------------------------------------------------------------------------


def cam_and_logits(model: nn.Module, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """`cam`, and the logits of the same pass."""
    with eval_mode(model), torch.no_grad():
        seen = _watch(model, x)
        maps = _pooled_maps(model, x, seen)
    _check_classes(classes, seen.logits)
    weights = at_least_float32(seen.linear.weight.detach().flatten(1))[classes.to(seen.logits.device)]
    return torch.einsum("nkc,nchw->nkhw", weights, maps), seen.logits


@dataclass
class _Pass:
    """What was seen of a forward pass: its end, and what came before that could be the last map or the last norm."""

    linear: Any = None  # or the 1x1 convolution that some networks have in its place
    pooled: Tensor = field(default_factory=lambda: torch.empty(0))  # the linear layer's input
    answer: Tensor | None = None  # the linear layer's output
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    maps: Tensor | None = None
    norm: Any = None
    before_norm: Tensor | None = None


def _watch(model: nn.Module, x: Tensor) -> _Pass:
    seen = _Pass()

    def watch(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not isinstance(output, Tensor):
            return
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and _positions(inputs[0]) == 1):
            seen.linear, seen.pooled, seen.answer = module, inputs[0], output
        elif isinstance(module, nn.LayerNorm):
            seen.norm, seen.before_norm = module, inputs[0]
        if _positions(output) > 1:
            seen.maps = output

    handles = [module.register_forward_hook(watch) for module in model.modules()]
    try:
        seen.logits = model(x)
    finally:
        for handle in handles:
            handle.remove()
    return seen


def _positions(output: Tensor) -> int:
    """Of a map with channels first or last; 1 for what pooling leaves, or a vector."""
    return 1 if output.ndim != 4 else min(output[0, 0].numel(), output[0, ..., 0].numel())


def _pooled_maps(model: nn.Module, x: Tensor, seen: _Pass) -> Tensor:
    """The map (N, C, h, w) whose mean over positions is the input of the linear layer that gives the logits."""
    if seen.answer is None or seen.logits.ndim != 2 or not _alike(seen.answer, seen.logits):
        raise _no_cam("its last step is no linear layer")
    if seen.maps is not None and (maps := _with_mean(seen, seen.maps)) is not None:
        return maps
    network, prepared = _inner(model, x)
    forward_features: Any = getattr(network, "forward_features", None)
    if forward_features is not None:  # for networks whose last step before the pooling is no module but, say, F.relu
        features = forward_features(prepared)
        if (
            isinstance(features, Tensor)
            and _positions(features) > 1
            and (maps := _with_mean(seen, features)) is not None
        ):
            return maps
    raise _no_cam("the linear layer does not take the mean of a map of more than one position")


def _with_mean(seen: _Pass, maps: Tensor) -> Tensor | None:
    """`maps` with channels first and, where there is a norm behind the pooling, normed; None where the mean differs."""
    for turned in (maps, maps.permute(0, 3, 1, 2)):
        turned = at_least_float32(turned)
        mean = turned.mean(dim=(2, 3))
        if _alike(mean, seen.pooled):
            return turned
        if seen.norm is not None and _alike(mean, seen.before_norm):
            normed = _norm_everywhere(seen.norm, turned, mean)
            if _alike(normed.mean(dim=(2, 3)), seen.pooled):
                return normed
    return None


def _norm_everywhere(norm: nn.LayerNorm, maps: Tensor, mean: Tensor) -> Tensor:
    """The LayerNorm of the pooled vector `mean`, carried to each position of the map."""
    deviation = (mean.var(dim=1, correction=0) + norm.eps).sqrt().view(-1, 1, 1, 1)
    normed = (maps - maps.mean(dim=1, keepdim=True)) / deviation
    if norm.weight is not None:
        normed = normed * at_least_float32(norm.weight.detach()).view(-1, 1, 1)
    if norm.bias is not None:
        normed = normed + at_least_float32(norm.bias.detach()).view(-1, 1, 1)
    return normed


def _alike(first: Tensor, second: Tensor | None) -> bool:
    """Equal but for rounding; (N, C, 1, 1) counts as (N, C)."""
    if second is None or first.flatten(1).shape != second.flatten(1).shape:
        return False
    within = ALIKE if second.dtype in (torch.float32, torch.float64) else ALIKE_IN_HALF
    difference = at_least_float32(first.flatten(1)) - at_least_float32(second.flatten(1))
    return bool(difference.abs().max() <= within * second.abs().max())


def _no_cam(reason: str) -> ValueError:
    return ValueError(
        f"no CAM for this network ({reason}): accepted are networks that end in global average pooling and one linear "
        "layer; for others Grad-CAM at a layer, method='grad_cam', layer=..."
    )


# --- Grad-CAM --------------------------------------------------------------------------------------------------------


def grad_cam_and_logits(model: nn.Module, x: Tensor, classes: Tensor, layer: int | str = 4) -> tuple[Tensor, Tensor]:
    """`grad_cam`, and the logits of the same pass."""
    network = model.model if isinstance(model, WithNormalization) else model
    name, channels = _find_layer(network, layer)
    # A caller's no_grad or inference_mode may be on, and x a tensor of the latter.
    with eval_mode(model), torch.inference_mode(False), torch.enable_grad():
        output, logits = _run_from(network, _inner(model, x.clone())[1], name)
        _check_classes(classes, logits)
        gradients = _gradients(logits.gather(1, classes.to(logits.device)), output)
    if gradients is None or _only_class_token(network, gradients):
        raise ValueError(f"layer={layer!r}: the class does not depend on its map; accepted is an earlier layer")
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
        raise ValueError(f"layer={name!r} runs {len(caught)} times: accepted is a layer that runs once")
    return caught[0], logits


def _gradients(scores: Tensor, output: Tensor) -> list[Tensor] | None:
    """For each column of `scores` (N, K) its gradient; None where the output does not matter."""
    if not scores.requires_grad:
        return None
    columns = scores.sum(dim=0)  # in eval mode samples do not see each other
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
    raise ValueError(
        f"layer={name!r} gives {tuple(output.shape)}: accepted is a layer with a map (N, C, h, w), or with one token "
        "for each patch"
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


# --- shared ----------------------------------------------------------------------------------------------------------


def _inner(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor]:
    """The network inside a WithNormalization and what it is given; any other model as it is."""
    return (model.model, model.normalize(x)) if isinstance(model, WithNormalization) else (model, x)


def _check_classes(classes: Tensor, logits: Tensor) -> None:
    if classes.ndim != 2 or len(classes) != len(logits) or classes.dtype != torch.int64 or classes.numel() == 0:
        raise ValueError(
            f"classes has shape {tuple(classes.shape)} and type {classes.dtype}: accepted is int64 of shape "
            f"({len(logits)}, K)"
        )
    if int(classes.min()) < 0 or int(classes.max()) >= logits.shape[1]:
        raise ValueError(f"classes reaches outside the network's: accepted are 0 to {logits.shape[1] - 1}")


# --- to look at ------------------------------------------------------------------------------------------------------


def resize_maps(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps (N, h, w) enlarged to `size` (bicubic), then each scaled to [0, 1] by its own extremes; 0 if constant."""
    if not bool(torch.isfinite(maps).all()):
        raise ValueError("the network's maps are not finite: accepted is a network that gives finite numbers")
    large = F.interpolate(at_least_float32(maps).unsqueeze(1), size=size, mode="bicubic", align_corners=False)
    low, high = large.amin(dim=(2, 3), keepdim=True), large.amax(dim=(2, 3), keepdim=True)
    constant = high - low <= FLAT * torch.maximum(low.abs(), high.abs())  # what differs is rounding, no place
    return torch.where(constant, 0.0, (large - low) / torch.where(constant, 1.0, high - low)).squeeze(1)


def overlay(images: Tensor, maps: Tensor, strength: float = 0.55) -> Tensor:
    """Images (N, 3, H, W) in [0, 1] under heat maps (N, H, W) in [0, 1]: blue is low, red high."""
    gray = images.mean(dim=1, keepdim=True)
    return torch.lerp(gray.expand_as(images), _heat(maps), strength)


def _heat(maps: Tensor) -> Tensor:
    colors = torch.tensor(HEAT, device=maps.device)
    place = maps.clamp(0, 1) * (len(HEAT) - 1)
    low = place.long().clamp(max=len(HEAT) - 2)
    return torch.lerp(colors[low], colors[low + 1], (place - low).unsqueeze(-1)).permute(0, 3, 1, 2)
