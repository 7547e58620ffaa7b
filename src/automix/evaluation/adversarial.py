"""Adversarial attacks on a classifier of pixels in [0, 1]: FGSM and PGD in l_inf.

The normalization is inside the model, so `eps` is a distance between pixels: 8/255 is eight gray levels of an 8-bit
image. Within the ball of radius eps in l_inf around an image x of true class y,

    FGSM   (Goodfellow et al., 2015)   x' = clamp(x + eps * sign(g(x)), 0, 1)
    PGD-n  (Madry et al., 2018)        x_0 uniform in the ball, then n times
                                       x_t+1 = project(x_t + step * sign(g(x_t)))        step = eps / 4

with g(x) the gradient of the cross-entropy CE(x, y) with respect to the pixels, sign(0) = 0, and `project` the clamping
to [x - eps, x + eps] and to [0, 1]. PGD has one random start and returns its last point, not the worst on the way.
"""

from collections import deque
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.draws import draw_uniform, step_generator
from automix.core.errors import AutomixError
from automix.core.tensor_checks import check_batch, check_classes
from automix.core.validation import check_range, check_whole
from automix.networks.modes import eval_mode

EPS = 8 / 255
STEP = 2 / 255
STEPS = 20


def fgsm(model: nn.Module, x: Tensor, y: Tensor, eps: float = EPS) -> Tensor:
    """Move each pixel by `eps` in the direction in which the loss grows (Goodfellow et al., 2015).

    Args:
        model: Classifier from pixels in [0, 1] to logits; nothing of it changes.
        x: Images in [0, 1], ``(N, 3, H, W)``.
        y: Class indices ``(N,)``.
        eps: Largest change of a pixel, in [0, 1].

    Returns:
        The attacked images, in [0, 1].
    """
    _check_images(x, y)
    check_range("eps", eps, 0, 1)
    return project(x + eps * pixel_gradient(model, x, y).sign(), x, eps)


def pgd(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    eps: float = EPS,
    step: float = STEP,
    steps: int = STEPS,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Take several gradient steps from a random point within `eps` of each image (Madry et al., 2018).

    Args:
        model: Classifier from pixels in [0, 1] to logits; nothing of it changes.
        x: Images in [0, 1], ``(N, 3, H, W)``.
        y: Class indices ``(N,)``.
        eps: Largest change of a pixel, in [0, 1].
        step: How far a pixel moves in one step, in [0, 1].
        steps: How many steps.
        generator: Source of the random start; the same start in every call if not given.

    Returns:
        The attacked images, in [0, 1].
    """
    _check_images(x, y)
    check_range("eps", eps, 0, 1)
    check_whole("steps", steps, 1)
    check_range("step", step, 0, 1)
    generator = step_generator(0, 0, stream="pgd") if generator is None else generator
    return deque(pgd_steps(model, x, y, eps, step, steps, generator), maxlen=1)[0]


def pgd_steps(
    model: nn.Module, x: Tensor, y: Tensor, eps: float, step: float, steps: int, generator: torch.Generator
) -> Iterator[Tensor]:
    """The images after each step of `pgd`, for a progress display."""
    attacked = project(x + eps * (2 * draw_uniform(x, x.shape, generator) - 1), x, eps)
    for _ in range(steps):
        attacked = project(attacked + step * pixel_gradient(model, attacked, y).sign(), x, eps)
        yield attacked


def pixel_gradient(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Compute the gradient of each image's cross-entropy with respect to its pixels.

    Works under `torch.no_grad` and `torch.inference_mode`, and with frozen parameters.

    Args:
        model: Classifier, run in eval mode; nothing of it changes.
        x: Images, ``(N, 3, H, W)``.
        y: Class indices ``(N,)``.

    Returns:
        The gradients, in the shape of `x`.

    Raises:
        AutomixError: The logits have no gradient, or one that is not finite.
    """
    if any(tensor.is_inference() for tensor in (*model.parameters(), *model.buffers())):
        raise AutomixError("the model was built under torch.inference_mode; build it outside to take gradients")
    with torch.inference_mode(False), torch.enable_grad(), eval_mode(model):
        # Copies: tensors of inference mode cannot take part in a gradient.
        pixels, y = x.detach().clone().requires_grad_(), y.clone()
        logits = at_least_float32(model(pixels))
        check_classes(y, logits.shape[1])
        # The sum, not the mean: an image's gradient does not depend on how many others there are.
        loss = F.cross_entropy(logits, y, reduction="sum")
        gradient = torch.autograd.grad(loss, pixels, allow_unused=True)[0] if loss.requires_grad else None
    if gradient is None:
        raise AutomixError(
            "the model must be differentiable from pixels to logits; its logits have no gradient (no_grad, detach or "
            "whole numbers on the way)"
        )
    finite = gradient.flatten(1).isfinite().all(dim=1)
    if not finite.all():
        raise AutomixError(
            f"the model must have finite gradients with respect to the pixels; {int((~finite).sum())} of {len(x)} "
            "images have others"
        )
    return gradient


def project(attacked: Tensor, x: Tensor, eps: float) -> Tensor:
    """The nearest point that is in the ball around `x` and in [0, 1]."""
    return torch.minimum(torch.maximum(attacked, x - eps), x + eps).clamp(0, 1)


def _check_images(x: Tensor, y: Tensor) -> None:
    check_batch(x, y)
    if y.ndim != 1:
        raise AutomixError(f"y must be class indices of shape ({len(x)},), got shape {tuple(y.shape)}")
    low, high = (float(bound) for bound in torch.aminmax(x))
    if not (low >= 0 and high <= 1):
        raise AutomixError(f"x must be pixels in [0, 1], normalized inside the model; got {low:.3g} to {high:.3g}")
