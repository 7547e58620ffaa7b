"""How much each pixel matters to a classifier, and saliency by blocks: for PuzzleMix and Co-Mixup."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.target import MixedTarget
from automix.networks.modes import eval_mode


def input_saliency(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The norm over channels of the loss's gradient with respect to the images (N, H, W), and the logits.

    A class that the network does not know (Task.mix numbers images without labels) gives way to the network's answer.
    """
    with eval_mode(model), torch.enable_grad():
        x = x.detach().requires_grad_()
        logits = model(x)
        if y.ndim == 1:
            y = torch.where((y >= 0) & (y < logits.shape[1]), y, logits.argmax(dim=1))
        # the sum over samples, not the mean: small gradients should not vanish in half precision
        (gradient,) = torch.autograd.grad(len(x) * MixedTarget.clean(y).loss(logits), x)
    return at_least_float32(gradient).norm(dim=1), logits.detach()


def check_saliency(saliency: Tensor | None, x: Tensor) -> Tensor:
    """The saliency in float32 at least; a ValueError unless there is one number for each pixel."""
    accepted = (len(x), *x.shape[-2:])
    if saliency is None or saliency.shape != accepted:
        given = "is missing" if saliency is None else f"has shape {tuple(saliency.shape)}"
        raise ValueError(f"saliency {given}: accepted is a number >= 0 for each pixel, shape {accepted}")
    return at_least_float32(saliency.to(x.device))


def pool(saliency: Tensor, grid: int) -> Tensor:
    """The saliency of each block (N, g, g), with sum 1."""
    blocks = F.adaptive_avg_pool2d(saliency.unsqueeze(1), grid).squeeze(1)
    return blocks / blocks.sum(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(blocks.dtype).tiny)


def blocks_to_pixels(blocks: Tensor, size: tuple[int, int]) -> Tensor:
    """Values of blocks (..., g, g) for the pixels (..., H, W)."""
    rows, columns = (torch.arange(side, device=blocks.device) * blocks.shape[-1] // side for side in size)
    return blocks[..., rows[:, None], columns]
