"""PatchUp (Faramarzi et al., 2022): blocks of the feature maps of two images are swapped or interpolated.

The blocks are DropBlock's. In each channel of a map (h, w) every position starts a block of b x b with probability

    gamma_adj = gamma * (h * w) / (b^2 * (h - b + 1) * (w - b + 1))

and inside the blocks the map is changed: "hard" takes z_j, "soft" lam * z_i + (1 - lam) * z_j, lam ~ Beta(alpha,
alpha). The label follows the share p of the map that was left alone:

    hard: lam := p        soft: lam := p + (1 - p) * lam

The layer is drawn for each batch; at layer 0, the input, it is CutMix, and with probability 1 - prob nothing is mixed.
The authors add a second loss, p * l(y_i) + (1 - p) * l(y in the blocks). For every loss that is linear in the label,
theirs too, it equals the first one, so there is one here, and the learning rate keeps its meaning. Made for small
convolutional networks and robustness to deformed images. It needs maps (N, C, h, w).
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import as_map, at_least_float32, blend
from automix.core.draws import Pairing, draw_index, draw_lam, draw_uniform
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch, check_shape
from automix.core.validation import check_choice, check_range, check_whole
from automix.methods.cutmix import cutmix
from automix.networks.feature_tap import existing_stages, stem_modules
from automix.tasks.hidden_task import HiddenTask

__all__ = ["create_task", "patchup"]

GAMMA, PROB = {"soft": 0.75, "hard": 0.5}, {"soft": 1.0, "hard": 0.7}  # the authors' on CIFAR


def patchup(
    x: Tensor,
    y: Tensor,
    alpha: float = 2.0,
    *,
    kind: str = "soft",
    block: int = 7,
    gamma: float | None = None,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    noise: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix blocks of each feature map with those of its partner (Faramarzi et al., 2022).

    Args:
        x: Maps, ``(N, C, h, w)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)``.
        kind: ``"soft"`` interpolates inside the blocks, ``"hard"`` takes the partner.
        block: Side of the blocks, odd; the largest odd number that fits into a smaller map.
        gamma: Share of the map that the blocks cover, about, in [0, 1]; 0.75 for "soft" and 0.5 for "hard" if not
            given.
        lam: Share of the first map inside the blocks (soft), or outside of them (hard: gamma is ``1 - lam``); a number
            or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        noise: Uniform numbers in [0, 1): a position starts a block where its number is small enough. ``(C, h, w)``, or
            ``(N, C, h, w)`` for blocks of each sample's own; drawn if not given.
        per_sample: Draw `lam` and the blocks for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed maps, their target and the mask, which has a channel for each of `x`: ``(N, C, h, w)``.
    """
    check_batch(x, y)
    gamma = GAMMA.get(kind, 0.0) if gamma is None else gamma
    _check_options(kind, block, gamma)
    lam_sets_gamma = kind == "hard" and lam is not None
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    if noise is None:
        noise = draw_uniform(x, (*lam.shape, *x.shape[1:]), generator)
    check_shape("noise", noise, x.shape[1:], x.shape)
    share = 1 - lam if lam_sets_gamma else torch.full_like(lam, gamma)
    blocks = block_mask(noise.to(x.device), share, block).to(at_least_float32(x).dtype)
    mask = 1 - blocks * (1 - as_map(lam)) if kind == "soft" else 1 - blocks
    true_lam = mask.mean(dim=(1, 2, 3))
    if len(mask) == 1:
        true_lam, mask = true_lam.reshape(lam.shape), mask.expand(x.shape)
    return Mixed(blend(x, index, mask), MixedTarget(y, y[index], true_lam), mask, index)


def block_mask(noise: Tensor, gamma: Tensor, block: int) -> Tensor:
    """Make a mask that is True inside the blocks.

    Args:
        noise: Uniform numbers, ``(C, h, w)`` or ``(N, C, h, w)``.
        gamma: Share of the map that the blocks cover; a number or ``(N,)``.
        block: Side of the blocks.

    Returns:
        The mask, ``(N or 1, C, h, w)``.
    """
    height, width = noise.shape[-2:]
    block = min(block, height, width)
    block -= 1 - block % 2  # odd: a block has a center
    adjusted = as_map(gamma) * (height * width / (block**2 * (height - block + 1) * (width - block + 1)))
    starts = noise.reshape(-1, *noise.shape[-3:]) < adjusted
    return F.max_pool2d(starts.float(), block, stride=1, padding=block // 2) > 0


def _check_options(kind: str = "soft", block: int = 7, gamma: float | None = None) -> None:
    check_choice("kind", kind, ("soft", "hard"))
    check_whole("block", block, 1)
    if block % 2 == 0:
        raise AutomixError(f"block must be odd, got {block}")
    if gamma is not None:
        check_range("gamma", gamma, 0, 1)


def create_task(
    model: nn.Module, *, layers: Sequence[int | str] | None = None, prob: float | None = None, **options: Any
) -> "PatchUpTask":
    """Build the training task.

    Args:
        model: The network to train.
        layers: Where a batch is mixed, each as likely: 0 is the input, 1 to 4 a stage of a timm network, a string a
            submodule. If not given: the input, the stem (where the network has a submodule of a usual name) and stage
            1, whose maps are large enough for blocks. At the input it is CutMix.
        prob: Probability that a batch is mixed, in [0, 1]; 1 for "soft" and 0.7 for "hard" if not given.
        **options: Options of `patchup` and of `MixTask`.

    Returns:
        The task.
    """
    if layers is None:
        stages = existing_stages(model, (1,))
        if not stages:
            raise AutomixError(
                f"{type(model).__name__} does not describe its stages; pass layers=(...) with 0 for the input "
                "and names of submodules that give maps (N, C, h, w)"
            )
        layers = (0, *stem_modules(model), *stages)
    _check_options(**{name: options[name] for name in ("kind", "block", "gamma") if name in options})
    prob = PROB[options.get("kind", "soft")] if prob is None else prob
    at_input = partial(
        cutmix, alpha=1.0, **{name: options[name] for name in ("per_sample", "pairing") if name in options}
    )
    return PatchUpTask(model, patchup, at_input, layers, prob=prob, **options)


class PatchUpTask(HiddenTask):
    """Mixes maps with their channels first or last."""

    def accepts(self, z: Tensor) -> str | None:
        return None if z.ndim == 4 else "maps (N, C, h, w)"
