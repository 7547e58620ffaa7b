"""Class activation maps (CAM, Zhou et al., 2016) of networks that end in global average pooling and one linear layer.

With the last feature map A (C channels) and the linear layer's weights w_c and bias b_c,

    CAM_c(i, j) = sum over k of w_ck A_k(i, j)          mean over (i, j) of CAM_c + b_c = logit_c, exactly

It may be negative; nothing is cut off. A LayerNorm between pooling and linear layer (ConvNeXt) divides all positions
by one number per image, the deviation of the POOLED vector. The rest of it is linear, so the same norm with that
deviation is applied to the map at every position first, and the equation above still holds exactly. (The gradient of
the deviation is left out, which Grad-CAM has: there the two differ.)

The architecture is not guessed from names: hooks record a forward pass, and the linear layer's input must equal the
mean of a feature map. timm's and torchvision's convolutional networks, Swin, the wide ResNets and most hand-written
ones qualify; class tokens, max-pooling, hidden layers in the head and maps of one position do not.
"""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError
from automix.networks.modes import eval_mode
from automix.runs.classifier import WithNormalization

TOLERANCE = 1e-3  # between two means of the same numbers, summed in another order, relative to the largest
TOLERANCE_IN_HALF = 3e-2  # the same in bfloat16 and float16


class NoCamError(AutomixError):
    """The network does not end in global average pooling and one linear layer."""


def cam(model: nn.Module, x: Tensor, classes: Tensor) -> Tensor:
    """Compute class activation maps (Zhou et al., 2016).

    Args:
        model: Classifier that ends in global average pooling and one linear layer; it runs in eval mode.
        x: Images as the model takes them, ``(N, 3, H, W)``.
        classes: The K classes of each image to draw a map for, ``(N, K)`` int64.

    Returns:
        Maps ``(N, K, h, w)`` in the size of the network's last feature map; values may be negative.

    Raises:
        NoCamError: The network ends differently; `grad_cam` works for any.
    """
    return cam_and_logits(model, x, classes)[0]


def cam_and_logits(model: nn.Module, x: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """`cam`, and the logits of the same pass."""
    with eval_mode(model), torch.no_grad():
        record = _record(model, x)
        maps = _pooled_maps(model, x, record)
    check_map_classes(classes, record.logits)
    weights = at_least_float32(record.linear.weight.detach().flatten(1))[classes.to(record.logits.device)]
    return torch.einsum("nkc,nchw->nkhw", weights, maps), record.logits


def split_normalization(model: nn.Module, x: Tensor) -> tuple[nn.Module, Tensor]:
    """The network inside a WithNormalization and its input; any other model as it is."""
    return (model.model, model.normalize(x)) if isinstance(model, WithNormalization) else (model, x)


def check_map_classes(classes: Tensor, logits: Tensor) -> None:
    """Raise an AutomixError unless `classes` are class indices (N, K) of the network."""
    if classes.ndim != 2 or len(classes) != len(logits) or classes.dtype != torch.int64 or classes.numel() == 0:
        raise AutomixError(
            f"classes must be int64 of shape ({len(logits)}, K), got {classes.dtype} of shape {tuple(classes.shape)}"
        )
    low, high = int(classes.min()), int(classes.max())
    if low < 0 or high >= logits.shape[1]:
        raise AutomixError(f"classes must be in [0, {logits.shape[1] - 1}], got {low if low < 0 else high}")


@dataclass
class _Record:
    """The end of a forward pass, and what came before it that may be the last feature map or the last norm."""

    linear: Any = None  # or the 1x1 convolution that some networks have in its place
    pooled: Tensor = field(default_factory=lambda: torch.empty(0))  # the linear layer's input
    output: Tensor | None = None  # the linear layer's output
    logits: Tensor = field(default_factory=lambda: torch.empty(0))
    maps: Tensor | None = None
    norm: Any = None
    before_norm: Tensor | None = None


def _record(model: nn.Module, x: Tensor) -> _Record:
    record = _Record()

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not isinstance(output, Tensor):
            return
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and _positions(inputs[0]) == 1):
            record.linear, record.pooled, record.output = module, inputs[0], output
        elif isinstance(module, nn.LayerNorm):
            record.norm, record.before_norm = module, inputs[0]
        if _positions(output) > 1:
            record.maps = output

    handles = [module.register_forward_hook(hook) for module in model.modules()]
    try:
        record.logits = model(x)
    finally:
        for handle in handles:
            handle.remove()
    return record


def _positions(output: Tensor) -> int:
    """Of a map with channels first or last; 1 for what pooling leaves, or a vector."""
    return 1 if output.ndim != 4 else min(output[0, 0].numel(), output[0, ..., 0].numel())


def _pooled_maps(model: nn.Module, x: Tensor, record: _Record) -> Tensor:
    """The map (N, C, h, w) whose mean over positions is the input of the linear layer that gives the logits."""
    if record.output is None or record.logits.ndim != 2 or not _close(record.output, record.logits):
        raise _no_cam("its last step is no linear layer")
    if record.maps is not None and (maps := _with_mean(record, record.maps)) is not None:
        return maps
    network, prepared = split_normalization(model, x)
    forward_features: Any = getattr(network, "forward_features", None)
    if forward_features is not None:  # for networks whose last step before the pooling is no module but, say, F.relu
        features = forward_features(prepared)
        if (
            isinstance(features, Tensor)
            and _positions(features) > 1
            and (maps := _with_mean(record, features)) is not None
        ):
            return maps
    raise _no_cam("the linear layer does not take the mean of a map of more than one position")


def _with_mean(record: _Record, maps: Tensor) -> Tensor | None:
    """`maps` with channels first and, where there is a norm behind the pooling, normed; None where the mean differs."""
    for turned in (maps, maps.permute(0, 3, 1, 2)):
        turned = at_least_float32(turned)
        mean = turned.mean(dim=(2, 3))
        if _close(mean, record.pooled):
            return turned
        if record.norm is not None and _close(mean, record.before_norm):
            normed = _norm_everywhere(record.norm, turned, mean)
            if _close(normed.mean(dim=(2, 3)), record.pooled):
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


def _close(first: Tensor, second: Tensor | None) -> bool:
    """Equal but for rounding; (N, C, 1, 1) counts as (N, C)."""
    if second is None or first.flatten(1).shape != second.flatten(1).shape:
        return False
    within = TOLERANCE if second.dtype in (torch.float32, torch.float64) else TOLERANCE_IN_HALF
    difference = at_least_float32(first.flatten(1)) - at_least_float32(second.flatten(1))
    return bool(difference.abs().max() <= within * second.abs().max())


def _no_cam(reason: str) -> NoCamError:
    return NoCamError(
        f"no CAM: the network must end in global average pooling and one linear layer, but {reason}; use Grad-CAM at a "
        "layer (method='grad_cam', layer=...)"
    )
