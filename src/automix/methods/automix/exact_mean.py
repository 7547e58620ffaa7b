"""Shifts of logits that give masks the wanted means: one number for the mask of a pair, K - 1 for those of K images.

Both are found by Newton's method without a graph. One more step with a graph then carries the derivative of the
implicit function.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

LOWEST_WEIGHT = 0.01  # below it masks are flat: a mask of so small a mean is a cell or less
NEWTON_STEPS = 16
LAST_STEPS = 4
LONGEST_STEP = 64.0  # in logits
STEP_SIZES = (1.0, 0.4, 0.1, 0.02)


def bias_for_mean(logit: Tensor, mean: Tensor) -> Tensor:
    """Solve mean(sigmoid(logit + b)) = mean for b, for each mask.

    Newton's method inside a bracket that halves finds b without a graph. One more step with a graph does not move b,
    but carries the derivative of the implicit function.

    Args:
        logit: Logits of the cells, ``(N, cells)``.
        mean: Means that the masks shall have, ``()`` or ``(N,)``; clamped to [0.01, 0.99], because no b reaches 0 or 1.

    Returns:
        The biases, ``(N, 1)``.
    """
    mean = mean.to(logit).reshape(-1, 1).clamp(0.01, 0.99)
    with torch.no_grad():
        low = mean.logit() - logit.amax(dim=1, keepdim=True)
        high = mean.logit() - logit.amin(dim=1, keepdim=True)
        b = (low + high) / 2
        for _ in range(12):  # enough for float32, from nearly flat to nearly binary masks
            s = torch.sigmoid(logit + b)
            gap = s.mean(dim=1, keepdim=True) - mean
            low, high = torch.where(gap < 0, b, low), torch.where(gap < 0, high, b)
            newton = b - gap / (s * (1 - s)).mean(dim=1, keepdim=True).clamp(min=1e-6)
            b = torch.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        s = torch.sigmoid(logit + b)
        slope = (s * (1 - s)).mean(dim=1, keepdim=True).clamp(min=1e-6)
    return b - (torch.sigmoid(logit + b).mean(dim=1, keepdim=True) - mean) / slope


def shifts_for_means(logit: Tensor, weights: Tensor) -> Tensor:
    """Solve mean(softmax(logit + b)) = weights for b, for each mixture; b of the first image is 0.

    The solution is the minimum of the convex function mean(logsumexp(logit + b)) - sum(weights * b), whose gradient is
    the gap of the means. Each step takes the lowest of a few step sizes along Newton's direction and of the fixed point
    b + log(weights / mean). The last ones are plain Newton steps where they close the gap. All of that is without a
    graph; as in `bias_for_mean`, one more step with a graph carries the derivative of the implicit function.

    The means are exact for logits with standard deviations up to about 20, where masks are binary but for a cell.

    Args:
        logit: Logits of the cells, ``(N, K, cells)``.
        weights: Means that the masks shall have, ``(N, K)``, with sum 1; raised to 0.01 where they are lower, because
            no b reaches 0.

    Returns:
        The shifts, ``(N, K)``.
    """
    weights = _raised(weights.to(logit))
    with torch.no_grad():
        b = weights.log() - logit.mean(dim=2)
        for _ in range(NEWTON_STEPS):
            mean, step = _newton_step(logit, b, weights)[1:]
            step = step * (LONGEST_STEP / step.abs().amax(dim=1, keepdim=True).clamp(min=LONGEST_STEP))
            fixed_point = b + weights.log() - mean.clamp(min=1e-12).log()
            b = _lowest(logit, weights, torch.stack([*(b - size * step for size in STEP_SIZES), fixed_point]))
        for _ in range(LAST_STEPS):
            gap, _, step = _newton_step(logit, b, weights)
            gap_then = _mean(logit, b - step) - weights
            closer = gap_then.abs().sum(dim=1, keepdim=True) < gap.abs().sum(dim=1, keepdim=True)
            b = torch.where(closer, b - step, b)
        hessian = _hessian(logit, b)
    gap = _mean(logit, b) - weights
    b = b - F.pad(_solve(hessian, gap[:, 1:]), (1, 0))
    return b - b[:, :1]


def _raised(weights: Tensor) -> Tensor:
    """Weights of at least `LOWEST_WEIGHT`, at the cost of the largest one."""
    raised = weights.clamp(min=LOWEST_WEIGHT)
    excess = raised.sum(dim=1, keepdim=True) - 1
    return raised - excess * F.one_hot(raised.argmax(dim=1), raised.shape[1])


def _mean(logit: Tensor, b: Tensor) -> Tensor:
    return (logit + b.unsqueeze(2)).softmax(dim=1).mean(dim=2)


def _hessian(logit: Tensor, b: Tensor) -> Tensor:
    """The derivatives of all means but the first by all shifts but the first, (N, K - 1, K - 1)."""
    s = (logit + b.unsqueeze(2)).softmax(dim=1)
    hessian = torch.diag_embed(s.mean(dim=2)) - s @ s.transpose(1, 2) / s.shape[2]
    return hessian[:, 1:, 1:] + 1e-6 * torch.eye(s.shape[1] - 1, dtype=s.dtype, device=s.device)


def _solve(matrices: Tensor, vectors: Tensor) -> Tensor:
    return torch.linalg.solve_ex(matrices, vectors).result  # `solve` waits for the device, to check for errors


def _newton_step(logit: Tensor, b: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gap of the means, the means, and what Newton's method subtracts from b."""
    mean = _mean(logit, b)
    gap = mean - weights
    return gap, mean, F.pad(_solve(_hessian(logit, b), gap[:, 1:]), (1, 0))


def _lowest(logit: Tensor, weights: Tensor, candidates: Tensor) -> Tensor:
    """Of candidates (steps, N, K), for each mixture the one with the lowest value of the convex function."""
    values = (logit + candidates.unsqueeze(3)).logsumexp(dim=2).mean(dim=2) - (weights * candidates).sum(dim=2)
    return candidates[values.argmin(dim=0), torch.arange(len(weights), device=weights.device)]
