"""Manifold Mixup (Verma et al., 2019): Mixup of the feature maps of a layer that is drawn for each batch.

    z_mix = lam * z_i + (1 - lam) * z_j,    lam ~ Beta(alpha, alpha),    z the output of a layer out of {0, 1, 2}

Layer 0 is the input, where it is Mixup; 1 and 2 are the network's first stages. The rest of the network gets the mixed
map, and the label is mixed by the same lam. It costs no more than Mixup and asks that features, not only images, can be
interpolated between classes; made for long schedules.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.blend import blend, full_mask
from automix.core.draws import Pairing, draw_index, draw_lam
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch
from automix.networks.feature_tap import existing_stages
from automix.tasks.hidden_task import HiddenTask

__all__ = ["create_task", "manifoldmix"]


def manifoldmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 2.0,
    *,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Interpolate images or feature maps with their partners (Verma et al., 2019).

    Args:
        x: Images or maps ``(N, C, H, W)``, maps with the channels last, tokens ``(N, L, C)``, vectors: any shape ``(N,
            ...)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)``.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        per_sample: Draw `lam` for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    check_hidden(x, y)
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    mask = lam.reshape(-1, *[1] * (x.ndim - 1))
    shown = full_mask(mask, x) if x.ndim == 4 else mask.expand(len(x), *mask.shape[1:])
    return Mixed(blend(x, index, mask), MixedTarget(y, y[index], lam), shown, index)


def check_hidden(x: Tensor, y: Tensor) -> None:
    """Raise an error unless `x` is a batch of any shape ``(N, ...)`` and `y` its labels.

    Args:
        x: Images, maps, tokens or vectors, ``(N, ...)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
    """
    if x.ndim == 4:
        return check_batch(x, y)
    if x.ndim < 2 or len(x) != len(y):
        raise AutomixError(
            f"x must be images, maps or tokens ({len(y)}, ...) for {len(y)} labels, got shape {tuple(x.shape)}"
        )
    return check_batch(x.flatten(1)[..., None, None], y)


def create_task(model: nn.Module, *, layers: Sequence[int | str] | None = None, **options: Any) -> HiddenTask:
    """Build the training task.

    Args:
        model: The network to train.
        layers: Where a batch is mixed, each as likely: 0 is the input, 1 to 4 a stage of a timm network, a string a
            submodule. If not given: the input and stages 1 and 2, or the input alone for a network that does not
            describe its stages.
        **options: Options of `manifoldmix` and of `MixTask`.

    Returns:
        The task.
    """
    if layers is None:
        layers = (0, *existing_stages(model, (1, 2)))
    at_input = partial(
        manifoldmix, **{name: options[name] for name in ("alpha", "per_sample", "pairing") if name in options}
    )
    return HiddenTask(model, manifoldmix, at_input, layers, **options)
