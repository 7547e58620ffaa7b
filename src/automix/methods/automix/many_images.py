"""Masks of K images: a partition of one, whose means are the weights of the images.

    s = U( softmax over k of (l_k + b_k) )        l_1 = b_1 = 0,   mean(s_k) = w_k

The Mix Block compares each further image with the first one as in a pair: l_k is the logit of s_j (mix_block.py) for
the pair (1, k), with lam = w_1 / (w_1 + w_k), the share of image 1 in that pair. The softmax of (0, l_2) is the sigmoid
of l_2, so that K = 2 is the pair's mask. The shifts b, K - 1 numbers for each mixture, are solved for as the pair's b.
Without `exact_mean` there are none, and l_lambda pulls each mean towards its weight.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.methods.automix.mix_block import ENLARGE, MixBlock

LOWEST_WEIGHT = 0.01  # below it masks are flat: a mask of so small a mean is a cell or less
NEWTON_STEPS = 16
LAST_STEPS = 4
LONGEST_STEP = 64.0  # in logits
STEP_SIZES = (1.0, 0.4, 0.1, 0.02)


def masks_of_many(
    block: MixBlock,
    z: Tensor,
    members: Tensor,
    weights: Tensor,
    size: tuple[int, int],
    labels: Tensor | None = None,
) -> Tensor:
    """Compute the masks of mixtures of K images, in float32 at least, also under autocast.

    Args:
        block: The Mix Block.
        z: Feature maps of the batch, ``(N, C, h, w)``.
        members: Positions of the images of each mixture, ``(K, N)``.
        weights: Weights of the images, ``(K,)`` or ``(N, K)``.
        size: Height and width of the images.
        labels: Labels of the batch, for a block with class vectors.

    Returns:
        The masks, ``(N, K, *size)``, which sum to 1 over K.
    """
    weights = weights.expand(members.shape[1], -1)
    lam = weights[:, :1] / (weights[:, :1] + weights[:, 1:]).clamp(min=1e-6)  # (N, K - 1)
    first, others = members[:1].expand(len(members) - 1, -1).flatten(), members[1:].flatten()
    pair_labels = None if labels is None else (labels[first], labels[others])
    with torch.autocast(z.device.type, enabled=False):
        logit = block.pair_logit(z[first], z[others], lam.T.flatten(), pair_labels)
        logit = logit.reshape(len(members) - 1, -1, *logit.shape[-2:]).transpose(0, 1)
        logit = F.pad(logit, (0, 0, 0, 0, 1, 0))  # of the first image: 0
        return partition(logit, weights, size, block.upsampling, exact_mean=block.exact_mean)


def partition(logit: Tensor, weights: Tensor, size: tuple[int, int], upsampling: str, *, exact_mean: bool) -> Tensor:
    """Turn K maps of logits into masks that sum to 1.

    Args:
        logit: Maps, ``(N, K, h, w)``.
        weights: Weights of the images, ``(N, K)``.
        size: Height and width of the images.
        upsampling: As of `MixBlock`; "bilinear-logits" enlarges the maps before the softmax.
        exact_mean: Solve for the means of the masks, which then are the weights.

    Returns:
        The masks, ``(N, K, *size)``.
    """
    if exact_mean:
        logit = logit + shifts_for_means(logit.flatten(2), weights)[..., None, None]
    if upsampling == "bilinear-logits":
        return F.interpolate(logit, size=size, **ENLARGE["bilinear"]).softmax(dim=1)
    return F.interpolate(logit.softmax(dim=1), size=size, **ENLARGE[upsampling])


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
