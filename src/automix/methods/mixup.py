"""Mixup (Zhang et al., 2018): the whole images are interpolated.

    x_mix = lam * x_i + (1 - lam) * x_j,    lam ~ Beta(alpha, alpha)

The simplest method and a hard one to beat on small networks and short schedules.
"""

import torch
from torch import Tensor

from automix.core.blend import as_map, blend, full_mask
from automix.core.draws import draw_index, draw_lam
from automix.core.target import Mixed, MixedTarget
from automix.core.transform import MixTransform
from automix.core.validation import check_batch


def mixup(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix images `x` and labels `y`; `lam` and `index` are drawn from `generator` unless given."""
    check_batch(x, y)
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, generator=generator)
    mask = as_map(lam)
    return Mixed(blend(x, index, mask), MixedTarget(y, y[index], lam), full_mask(mask, x))


class Mixup(MixTransform):
    """``x, soft = Mixup(alpha=1.0, num_classes=100)(x, y)``"""

    function = mixup
