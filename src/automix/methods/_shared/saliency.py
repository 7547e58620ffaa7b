"""How much each pixel matters to a classifier, and saliency by blocks: for PuzzleMix and Co-Mixup."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError
from automix.core.target import MixedTarget
from automix.core.tensor_checks import check_shape
from automix.networks.modes import eval_mode
from automix.networks.outputs import logits_of


def input_saliency(model: nn.Module, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Compute how much each pixel matters to a classifier: the norm over channels of the loss's gradient.

    `Task.mix` numbers images without labels: a class that the network does not have is replaced by its prediction.

    Args:
        model: The classifier; it runs in eval mode.
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).

    Returns:
        The saliency, ``(N, H, W)``, and the logits.
    """
    with eval_mode(model), torch.enable_grad():
        x = x.detach().requires_grad_()
        logits = logits_of(model(x))
        if y.ndim == 1:
            y = torch.where((y >= 0) & (y < logits.shape[1]), y, logits.argmax(dim=1))
        # the sum over samples, not the mean: small gradients should not vanish in half precision
        (gradient,) = torch.autograd.grad(len(x) * MixedTarget.clean(y).loss(logits), x)
    return at_least_float32(gradient).norm(dim=1), logits.detach()


def check_saliency(saliency: Tensor | None, x: Tensor) -> Tensor:
    """Raise an error unless there is one number for each pixel.

    Args:
        saliency: The saliency to check, ``(N, H, W)``.
        x: Images, ``(N, C, H, W)``.

    Returns:
        The saliency, in float32 at least.
    """
    accepted = (len(x), *x.shape[-2:])
    if saliency is None:
        raise AutomixError(f"saliency is missing: a number >= 0 for each pixel, shape {accepted}")
    check_shape("saliency", saliency, accepted)
    return at_least_float32(saliency.to(x.device))


def pool(saliency: Tensor, grid: int) -> Tensor:
    """Compute the saliency of each block, with sum 1.

    Args:
        saliency: Saliency of the pixels, ``(N, H, W)``.
        grid: Blocks per side.

    Returns:
        Saliency of the blocks, ``(N, grid, grid)``.
    """
    blocks = F.adaptive_avg_pool2d(saliency.unsqueeze(1), grid).squeeze(1)
    return blocks / blocks.sum(dim=(1, 2), keepdim=True).clamp(min=torch.finfo(blocks.dtype).tiny)


def blocks_to_pixels(blocks: Tensor, size: tuple[int, int]) -> Tensor:
    """Spread the values of blocks over their pixels.

    Args:
        blocks: Values, ``(..., grid, grid)``.
        size: Height and width in pixels.

    Returns:
        Values of the pixels, ``(..., H, W)``.
    """
    rows, columns = (torch.arange(side, device=blocks.device) * blocks.shape[-1] // side for side in size)
    return blocks[..., rows[:, None], columns]
