"""Class activation maps (CAM, Zhou et al., 2016) of a classifier for any of its classes, see `automix.networks.cam`."""

import torch
from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.networks.cam import NoCamError, find_cam
from automix.networks.modes import eval_mode
from automix.runs.classifier import WithNormalization


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
    try:
        with eval_mode(model), torch.no_grad():
            found = find_cam(model, x)
    except NoCamError as error:
        raise NoCamError(f"{error}; use Grad-CAM at a layer (method='grad_cam', layer=...)") from None
    check_map_classes(classes, found.logits)
    weights = found.reader.weight(model)[classes.to(found.logits.device)]
    return torch.einsum("nkc,nchw->nkhw", weights, found.maps), found.logits


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
