"""SmoothMix (Lee et al., 2020): x_j shines through x_i in a soft round patch without an edge.

The patch is a Gaussian bell with its center uniform over the pixels c, its width sigma in shares of the image's sides:

    s = 1 - exp(-|p - c|^2 / (2 sigma^2)) at pixel p        sigma ~ U(0.25, 0.5)        lam := mean(s)

With a lam (given, or drawn from Beta(alpha, alpha)) sigma is what gives this mean at this center. A box's sharp edge is
a cue that a network can latch on to, and noise to a convolution; here there is none, and robustness to corruptions is
what the paper gains. Implementations that label the batch with the mean of the bell have x_i and x_j interchanged.
"""

import math

import torch
from torch import Tensor

from automix.core.blend import at_least_float32, blend, full_mask
from automix.core.draws import draw_index, draw_lam, draw_uniform
from automix.core.target import Mixed, MixedTarget
from automix.core.transform import MixTransform
from automix.core.validation import check_alpha, check_batch

_NARROW, _WIDE = 1e-4, 1e3  # sigmas: a bell within one pixel, and one that is flat over the image
_HALVINGS = 28  # of log sigma between them: more than float32 can tell apart


def smoothmix(
    x: Tensor,
    y: Tensor,
    alpha: float | None = None,
    *,
    scope: tuple[float, float] = (0.25, 0.5),
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    center: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix images `x` and labels `y`; `lam`, `index` and `center` are drawn from `generator` unless given.

    Without `alpha` and `lam` it is sigma that is drawn, uniform in `scope`; else sigma follows from lam, whatever the
    scope. `center` is the pixel (row, column) of the bell's top: shape (2,), or (N, 2) for one per sample.
    """
    check_batch(x, y)
    _check_options(alpha, scope)
    height, width = x.shape[-2:]
    share = None  # of x_j
    if alpha is not None or lam is not None:
        share = 1 - draw_lam(x, alpha or 1.0, lam=lam, per_sample=per_sample, generator=generator)
        per_sample = share.ndim == 1
    index = draw_index(x, index=index, generator=generator)
    shape = (len(x),) if per_sample else ()
    if center is None:
        uniform = draw_uniform(x, (*shape, 2), generator)
        center = (uniform * uniform.new_tensor([height, width])).long()
    elif center.shape not in ((2,), (len(x), 2)):
        raise ValueError(f"center has shape {tuple(center.shape)}: accepted are (2,) and ({len(x)}, 2)")
    distances = _distances(center.to(x.device), (height, width), at_least_float32(x).dtype)
    if share is None:
        sigma = scope[0] + (scope[1] - scope[0]) * draw_uniform(x, shape, generator)
    else:
        sigma = sigma_of_share(share, *distances)
    rows, columns = (bell(distance, sigma) for distance in distances)
    mask = (1 - rows[:, :, None] * columns[:, None, :]).unsqueeze(1)
    true_lam = mask.mean(dim=(1, 2, 3)).reshape(shape if center.ndim == 1 else (len(mask),))
    return Mixed(blend(x, index, mask), MixedTarget(y, y[index], true_lam), full_mask(mask, x))


def bell(distance: Tensor, sigma: Tensor) -> Tensor:
    """exp(-distance^2 / (2 sigma^2)), or 0 where sigma is 0, for distances (N or 1, pixels) and one sigma or N."""
    sigma = sigma.reshape(-1, 1)
    return torch.where(sigma > 0, torch.exp(-0.5 * (distance / sigma) ** 2), 0)


def sigma_of_share(share: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The sigma at which the bell over these distances has the mean `share`: 0 for share 0, infinite for share 1.

    By bisection of log sigma: the mean grows with it.
    """
    low = torch.full_like(share.expand(max(share.numel(), len(rows))), math.log(_NARROW))
    high = torch.full_like(low, math.log(_WIDE))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        # The bell is the product of one along the rows and one along the columns, and so is its mean.
        mean = bell(rows, middle.exp()).mean(dim=1) * bell(columns, middle.exp()).mean(dim=1)
        low, high = torch.where(mean < share, middle, low), torch.where(mean < share, high, middle)
    sigma = low.exp()
    return torch.where(share <= 0, 0, torch.where(share >= 1, math.inf, sigma))


def _distances(center: Tensor, size: tuple[int, int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """How far each row and each column is from the center, in shares of the image's height and width."""

    def along(axis: int) -> Tensor:
        place = torch.arange(size[axis], device=center.device, dtype=dtype)
        return (place - center[..., axis].reshape(-1, 1)) / size[axis]

    return along(0), along(1)


def _check_options(alpha: float | None, scope: tuple[float, float]) -> None:
    if alpha is not None:
        check_alpha(alpha)
    if not 0 < scope[0] <= scope[1] < math.inf:
        raise ValueError(f"scope={scope}: accepted are two numbers > 0, the smaller one first")


class SmoothMix(MixTransform):
    """``x, soft = SmoothMix(num_classes=100)(x, y)``; without `alpha`, sigma is drawn as in the paper."""

    function = smoothmix
