"""AlignMix (Venkataramanan et al., 2022): the feature maps of two images are aligned, then interpolated.

The positions of the last maps z_i and z_j, (C, h * w) each, are matched by the entropic transport plan P between them
(cost |z_i[:, p] - z_j[:, q]|^2, equal weights, eps 0.1). With R = h * w * P one of the two takes the other's layout:

    z_mix = lam * z_i + (1 - lam) * z_j R^T        or        z_mix = lam * z_i R + (1 - lam) * z_j

each as likely, lam ~ Beta(alpha, alpha), no gradient through R. Half of the batches, at random, are mixed at the input
by Mixup instead. Parts that resemble each other are thus interpolated, wherever they are: for objects in different
places and poses, and long schedules. The authors stop when little changes, at the latest after 100 iterations: that
forces a synchronization with the device, and is far from the plan. Here eps falls over a fixed number of iterations.
"""

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.blend import at_least_float32, full_mask
from automix.core.draws import Pairing, draw_index, draw_lam, draw_one, draw_uniform
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget
from automix.core.validation import check_choice, check_range, check_whole
from automix.methods.manifoldmix import check_hidden
from automix.methods.mixup import mixup
from automix.networks.feature_tap import stage_modules
from automix.tasks.hidden_task import HiddenTask

__all__ = ["alignmix", "create_task"]


def alignmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 2.0,
    *,
    eps: float = 0.1,
    iterations: int = 50,
    moved: str | None = None,
    prefix: int = 0,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Align the feature maps of each image and its partner, then interpolate them (Venkataramanan et al., 2022).

    A `lam` of 1 gives x back as it is, unaligned.

    Args:
        x: Maps ``(N, C, h, w)``, or tokens ``(N, L, C)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)``.
        eps: Weight of the entropy in the transport problem, > 0.
        iterations: Number of Sinkhorn iterations.
        moved: Which of the two takes the other's layout, ``"first"`` or ``"second"``; drawn if not given.
        prefix: Number of tokens at the beginning that have no place in the image; they are mixed as they are.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        per_sample: Draw `lam` for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed maps or tokens, their target and the mask.
    """
    check_hidden(x, y)
    if x.ndim not in (3, 4):
        raise AutomixError(f"x must be maps (N, C, h, w) or tokens (N, L, C), got shape {tuple(x.shape)}")
    _check_options(eps, iterations)
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    points = x.flatten(2).transpose(1, 2) if x.ndim == 4 else x[:, prefix:]  # (N, L, C)
    first, second, share = points, points[index], lam.reshape(-1, 1, 1).to(x.dtype)
    if moved is None and torch.compiler.is_compiling():  # a graph has no branches: the two change places
        swapped = draw_uniform(x, (), generator) < 0.5
        kept, other = torch.where(swapped, second, first), torch.where(swapped, first, second)
        interpolated = torch.lerp(aligned(other, kept, eps, iterations), kept, torch.where(swapped, 1 - share, share))
    else:
        moved = draw_one(("first", "second"), generator) if moved is None else moved
        check_choice("moved", moved, ("first", "second"))
        if moved == "first":
            first = aligned(first, second, eps, iterations)
        else:
            second = aligned(second, first, eps, iterations)
        interpolated = torch.lerp(second, first, share)
    mixed = torch.where(share == 1, points, interpolated)
    if x.ndim == 3:
        mixed = torch.cat([torch.lerp(x[index, :prefix], x[:, :prefix], share), mixed], dim=1)
        return Mixed(mixed, MixedTarget(y, y[index], lam), share.expand(len(x), 1, 1))
    mixed = mixed.transpose(1, 2).reshape(x.shape).contiguous(memory_format=_memory_format(x))
    return Mixed(mixed, MixedTarget(y, y[index], lam), full_mask(lam.reshape(-1, 1, 1, 1), x))


def aligned(points: Tensor, to: Tensor, eps: float, iterations: int) -> Tensor:
    """Move points to the places of those that they resemble, as weighted means by the transport plan.

    Args:
        points: Points to move, ``(N, L, C)``.
        to: Points whose layout they take, ``(N, L, C)``.
        eps: Weight of the entropy.
        iterations: Number of iterations.

    Returns:
        The moved points, ``(N, L, C)``.
    """
    with torch.autocast(points.device.type, enabled=False):
        plan = transport_plan(_squared_distances(to.detach(), points.detach()), eps, iterations)
        return (plan * points.shape[1]).to(points.dtype) @ points


def transport_plan(cost: Tensor, eps: float, iterations: int) -> Tensor:
    """Compute the entropic transport plan between equal weights, by Sinkhorn iterations on logarithms.

    Costs of features are thousands of times `eps`, from where hundreds of iterations do not converge: eps starts at the
    largest cost and falls to its value over the first four fifths. An iteration ends with the rows: their sums are
    exact, those of the columns nearly so.

    Args:
        cost: Costs, ``(N, L, L)``.
        eps: Weight of the entropy.
        iterations: Number of iterations.

    Returns:
        The plan, ``(N, L, L)``, with sum 1.
    """
    log_weight = -math.log(cost.shape[1])
    largest = cost.amax(dim=(1, 2), keepdim=True).clamp(min=eps)
    rows = torch.zeros_like(cost[:, :, :1])
    columns = torch.zeros_like(cost[:, :1])
    for iteration in range(1, iterations + 1):
        now = eps * (largest / eps) ** max(0.0, 1 - iteration / (0.8 * iterations))
        columns = now * (log_weight - ((rows - cost) / now).logsumexp(dim=1, keepdim=True))
        rows = now * (log_weight - ((columns - cost) / now).logsumexp(dim=2, keepdim=True))
    return ((rows + columns - cost) / eps).exp()


def _squared_distances(a: Tensor, b: Tensor) -> Tensor:
    """Between all positions, (N, L, L); one matrix product instead of N * L * L * C differences."""
    a, b = at_least_float32(a), at_least_float32(b)
    squares = a.square().sum(dim=2).unsqueeze(2) + b.square().sum(dim=2).unsqueeze(1)
    return (squares - 2 * a @ b.transpose(1, 2)).clamp(min=0)


def _memory_format(x: Tensor) -> torch.memory_format:
    channels_last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return torch.channels_last if channels_last else torch.contiguous_format


def _check_options(eps: float = 0.1, iterations: int = 50) -> None:
    check_range("eps", eps, 0, bounds="()")
    check_whole("iterations", iterations, 1)


def create_task(model: nn.Module, *, layer: int | str | None = None, **options: Any) -> "AlignMixTask":
    """Build the training task.

    Args:
        model: The network to train.
        layer: Stage, or name of the submodule, whose output is aligned. If not given, the last stage; in a network with
            a class token the last but one, because after the last one the patches have no effect.
        **options: Options of `alignmix` and of `MixTask`.

    Returns:
        The task.
    """
    if layer is None:
        layer = len(stage_modules(model)) - int(getattr(model, "global_pool", None) == "token")
    if layer in (0, -1):
        raise AutomixError(
            f"{type(model).__name__} does not describe its stages; pass layer='...', the name of a submodule "
            "that gives maps (N, C, h, w) or tokens (N, L, C)"
        )
    _check_options(**{name: options[name] for name in ("eps", "iterations") if name in options})
    shared = {name: options[name] for name in ("per_sample", "pairing") if name in options}
    at_input = partial(mixup, alpha=options.get("alpha", 2.0), **shared)
    options = {"prefix": getattr(model, "num_prefix_tokens", 0), **options}
    return AlignMixTask(model, alignmix, at_input, (0, layer), **options)


class AlignMixTask(HiddenTask):
    """Aligns the output of a layer: maps with their channels first or last, or tokens."""

    def accepts(self, z: Tensor) -> str | None:
        return None if z.ndim in (3, 4) else "maps (N, C, h, w) or tokens (N, L, C)"
