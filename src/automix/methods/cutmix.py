"""CutMix (Yun et al., 2019): a box of x_j is pasted into x_i.

The box has the side ratio sqrt(1 - lam), lam ~ Beta(alpha, alpha); its center is uniform over the pixels and the part
beyond the border is cut off. The label then says what is really there:

    lam := 1 - area of the clipped box / area of the image

Strong on wide networks and long schedules; keeps local texture intact, which helps localization.
"""

import torch
from torch import Tensor

from automix.core.blend import at_least_float32, blend, full_mask
from automix.core.draws import draw_index, draw_lam, draw_uniform
from automix.core.target import Mixed, MixedTarget
from automix.core.transform import MixTransform
from automix.core.validation import check_batch


def cutmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    center: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix images `x` and labels `y`; `lam`, `index` and `center` are drawn from `generator` unless given.

    `center` is the pixel (row, column) of the box's center: shape (2,), or (N, 2) for one per sample.
    """
    check_batch(x, y)
    height, width = x.shape[-2:]
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, generator=generator)
    if center is None:
        uniform = draw_uniform(x, (*lam.shape, 2), generator)
        center = (uniform * uniform.new_tensor([height, width])).long()
    elif center.shape not in ((2,), (len(x), 2)):
        raise ValueError(f"center has shape {tuple(center.shape)}: accepted are (2,) and ({len(x)}, 2)")
    mask = box_mask(center.to(x.device), (1 - lam).sqrt(), (height, width)).to(at_least_float32(x).dtype)
    true_lam = mask.mean(dim=(1, 2, 3)).reshape(lam.shape if center.ndim == 1 else (len(mask),))
    return Mixed(blend(x, index, mask), MixedTarget(y, y[index], true_lam), full_mask(mask, x))


def box_mask(center: Tensor, ratio: Tensor, size: tuple[int, int]) -> Tensor:
    """False inside the box around `center` with `ratio` of each side of the image, True outside: (N or 1, 1, H, W).

    A side of n pixels is floor(n * ratio) long, of which the larger half lies behind the center.
    """

    def outside(center: Tensor, length: int) -> Tensor:
        side = (ratio * length).floor()
        first = (center - (side / 2).floor()).reshape(-1, 1)
        place = torch.arange(length, device=center.device)
        return (place < first) | (place >= first + side.reshape(-1, 1))

    rows, columns = (outside(center[..., axis], size[axis]) for axis in (0, 1))
    return (rows[:, :, None] | columns[:, None, :]).unsqueeze(1)


class CutMix(MixTransform):
    """``x, soft = CutMix(alpha=1.0, num_classes=100)(x, y)``"""

    function = cutmix
