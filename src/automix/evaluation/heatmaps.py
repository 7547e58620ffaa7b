"""Maps of where a classifier sees a class, by CAM or Grad-CAM, enlarged and drawn over the image."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError
from automix.core.validation import check_choice
from automix.evaluation.cam import cam_and_logits
from automix.evaluation.grad_cam import grad_cam_and_logits

METHODS = ("cam", "grad_cam")
FLAT = 1e-5  # a map whose values differ by less, relative to the largest, is constant but for rounding
HEAT = ((0.0, 0.0, 0.5), (0.0, 0.3, 1.0), (0.0, 0.9, 0.9), (1.0, 0.9, 0.0), (1.0, 0.2, 0.0), (0.5, 0.0, 0.0))


def class_maps(model: nn.Module, x: Tensor, classes: Tensor, method: str, layer: int | str) -> tuple[Tensor, Tensor]:
    """Compute maps of where the network sees a class, and its logits.

    Args:
        model: Classifier; it runs in eval mode.
        x: Images as the model takes them, ``(N, 3, H, W)``.
        classes: The K classes of each image to draw a map for, ``(N, K)`` int64.
        method: ``"cam"`` or ``"grad_cam"``.
        layer: Grad-CAM's layer.

    Returns:
        Maps ``(N, K, h, w)`` and logits ``(N, C)``.
    """
    check_choice("method", method, METHODS)
    return cam_and_logits(model, x, classes) if method == "cam" else grad_cam_and_logits(model, x, classes, layer)


def resize_maps(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Enlarge maps to the image and scale each to [0, 1] by its own extremes.

    Args:
        maps: ``(N, h, w)``.
        size: Height and width of the image; the interpolation is bicubic.

    Returns:
        Maps ``(N, *size)`` in [0, 1]; a constant map is 0.
    """
    if not bool(torch.isfinite(maps).all()):
        raise AutomixError("the network's maps must be finite, got NaN or infinity")
    large = F.interpolate(at_least_float32(maps).unsqueeze(1), size=size, mode="bicubic", align_corners=False)
    low, high = large.amin(dim=(2, 3), keepdim=True), large.amax(dim=(2, 3), keepdim=True)
    constant = high - low <= FLAT * torch.maximum(low.abs(), high.abs())  # the difference is rounding
    return torch.where(constant, 0.0, (large - low) / torch.where(constant, 1.0, high - low)).squeeze(1)


def overlay(images: Tensor, maps: Tensor, strength: float = 0.55) -> Tensor:
    """Draw heat maps over gray images: blue is low, red high.

    Args:
        images: Pixels in [0, 1], ``(N, 3, H, W)``.
        maps: ``(N, H, W)`` in [0, 1].
        strength: Share of the heat map's color.

    Returns:
        Pixels in [0, 1], ``(N, 3, H, W)``.
    """
    gray = images.mean(dim=1, keepdim=True)
    return torch.lerp(gray.expand_as(images), _heat(maps), strength)


def _heat(maps: Tensor) -> Tensor:
    colors = torch.tensor(HEAT, device=maps.device)
    place = maps.clamp(0, 1) * (len(HEAT) - 1)
    low = place.long().clamp(max=len(HEAT) - 2)
    return torch.lerp(colors[low], colors[low + 1], (place - low).unsqueeze(-1)).permute(0, 3, 1, 2)
