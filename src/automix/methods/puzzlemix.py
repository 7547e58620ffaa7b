"""PuzzleMix (Kim et al., 2020): the salient blocks of two images are kept, and moved to where both can be seen.

The saliency of a pixel is the norm over channels of the loss's gradient with respect to the image; pooled to a grid of
blocks and normalized to sum 1 it is sal_i for the image and sal_j for its partner. The mask, one s of `levels` values
in [0, 1] for each block, has the least energy

    E(s) =   sum  s * sal_j + (1 - s) * sal_i                    saliency that is covered up
           + sum  b (s - s')^2 + b * gamma * d(s, s')            neighbors: smooth mask, smooth pixels across a border
           - sum  eta / n * log Binomial(s | levels - 1, lam)    prior: mean(s) ~ lam;   b = beta / 16 g, n = g^2 blocks

and each image's blocks are then moved so that salient ones come to where the mask shows them (`transport`), at a cost
of t_eps times the squared distance (1 = the side). For 32 px images the grid is g = 2, 4, 8 or 16 per side, drawn for
each batch; others have the same grids with blocks of at least 2 px, which differ by a pixel where g does not divide.

The label follows each sample's own mask, so there is one lam per sample. All masks of a batch are found at once: E is
convex in s, so its relaxation to real s has the same minimum, which a primal-dual iteration (Chambolle & Pock, 2011)
approaches with tensor operations alone. Against exact minimum cuts the energy is at most 0.1 % too high on average;
tests/test_puzzlemix.py measures it. Accurate on small images and long schedules; a step costs about two plain ones.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32, blend
from automix.core.draws import Pairing, draw_index, draw_lam, draw_uniform
from automix.core.objects import ObjectsRule, check_objects_rule, label_by_objects, object_masks
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_batch
from automix.core.validation import check_range, check_whole
from automix.methods._shared.pixels import PixelRange, pixel_range
from automix.methods._shared.saliency import blocks_to_pixels, check_saliency, input_saliency, pool
from automix.tasks.mix_task import MixTask
from automix.tasks.task import Task

__all__ = ["create_task", "puzzlemix"]

GRIDS = (2, 4, 8, 16)  # blocks per side
CELLS = 8  # per side, at least: colors are compared, and blocks moved, on no coarser grid (4 px of 32)
FARTHEST = 4  # places that a block may move


def puzzlemix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    saliency: Tensor | None = None,
    beta: float = 1.2,
    gamma: float = 0.5,
    eta: float = 0.2,
    levels: int = 3,
    transport: bool = True,
    t_eps: float = 0.8,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    grid: int | None = None,
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Keep the salient blocks of each image and of its partner (Kim et al., 2020).

    The mask is the share of the image at each pixel; with `transport` that pixel may come from another place of the
    image.

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)``.
        saliency: How much each pixel of `x` matters, ``(N, H, W)``, >= 0; see `create_task`.
        beta: Weight of the smoothness, >= 0.
        gamma: Weight of the pixels in the smoothness, in [0, 1]: beyond it the energy would not be convex.
        eta: Weight of the prior, >= 0.
        levels: Number of values of the mask, >= 2.
        transport: Move blocks to where the mask shows them.
        t_eps: Cost of moving a block, per squared distance, >= 0.
        mean: Mean that normalized `x`, one number per channel; without `mean` and `std` the range of the batch stands
            for black and white.
        std: Standard deviation that normalized `x`, one number per channel, > 0.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        grid: Blocks per side; drawn if not given.
        per_sample: Draw `lam` for every sample instead of once for the batch.
        objects: Where the object of each image is: masks ``(N, H, W)`` or boxes ``(N, 4)``. If given, the label follows
            the visible objects; see `label_by_objects`.
        objects_rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        objects_weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    check_batch(x, y)
    saliency = check_saliency(saliency, x)
    _check_options(beta, gamma, eta, levels, t_eps)
    size = (x.shape[-2], x.shape[-1])
    lam = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    grid = choose_grid(size, grid, generator)

    check_objects_rule(objects_rule, objects_weight)
    scale = pixel_range(x, mean, std)
    blocks = find_mask(x, saliency, lam, index, grid, beta, gamma, eta, levels, scale)
    mask = blocks_to_pixels(blocks, size).to(at_least_float32(x).dtype).unsqueeze(1)
    target = MixedTarget(y, y[index], mask.mean(dim=(1, 2, 3)))
    if not transport:
        mixed = Mixed(blend(x, index, mask), target, mask, index)
        return label_by_objects(mixed, objects, objects_rule, objects_weight)
    fine = CELLS if CELLS % grid == 0 and min(size) >= 2 * CELLS else grid
    shown = blocks.repeat_interleave(fine // grid, 1).repeat_interleave(fine // grid, 2)
    parts = pool(saliency, fine)
    sources = match_blocks(torch.cat([parts, parts[index]]), torch.cat([shown > 0, shown < 1]), t_eps)
    first, second = _move_both(x, index, sources)
    mixed = Mixed(torch.lerp(second, first, mask.to(x.dtype)), target, mask)
    if objects is None:
        return mixed
    first, second = _move_both(object_masks(objects, x), index, sources)
    return label_by_objects(mixed, first, objects_rule, objects_weight, partners=second)


def _check_options(beta: float, gamma: float, eta: float, levels: int, t_eps: float) -> None:
    check_range("gamma", gamma, 0, 1)  # beyond it the energy would not be convex
    for name, value in (("beta", beta), ("eta", eta), ("t_eps", t_eps)):
        check_range(name, value, 0)
    check_whole("levels", levels, 2)


# --- saliency and blocks ---------------------------------------------------------------------------------------------


def look(task: MixTask, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Compute the saliency of the images, for `MixTask`."""
    return {"saliency": input_saliency(task.classifier, x, y)[0]}


def choose_grid(size: tuple[int, int], grid: int | None, generator: torch.Generator | None) -> int:
    """Check the given number of blocks per side, or draw one that leaves blocks of 2 px or more."""
    if grid is not None:
        check_whole("grid", grid, 1, min(size))
        return grid
    fitting = [grid for grid in GRIDS if 2 * grid <= min(size)] or [1]
    # On the CPU wherever the images are: a size read from another device would force a synchronization.
    return fitting[int(draw_uniform(torch.empty(0), (), generator) * len(fitting))]


# --- the mask --------------------------------------------------------------------------------------------------------


def find_mask(
    x: Tensor,
    saliency: Tensor,
    lam: Tensor,
    index: Tensor,
    grid: int,
    beta: float,
    gamma: float,
    eta: float,
    levels: int,
    scale: PixelRange | None = None,
) -> Tensor:
    """The mask of least energy by blocks (N, g, g); all 1 where lam = 1 and all 0 where lam = 0."""
    sal = pool(saliency, grid)
    cells = _cells(x, grid, scale or pixel_range(x)).to(sal.dtype)
    below, down = _borders(cells, index, grid)
    beside, right = (borders.mT for borders in _borders(cells.mT, index, grid))
    weight = beta / (16 * grid)
    covered = torch.stack([sal, sal[index]]) + weight * gamma * (below + beside)  # by s = 0 and by s = 1
    shares = torch.linspace(0, 1, levels, device=x.device, dtype=sal.dtype)
    cost = torch.lerp(covered[0].unsqueeze(-1), covered[1].unsqueeze(-1), shares)
    cost = cost + eta / grid**2 * _prior(lam.to(sal.dtype), levels).reshape(-1, 1, 1, levels)
    s = least_energy(cost, weight * (1 + gamma * down), weight * (1 + gamma * right))
    lam = lam.reshape(-1, 1, 1)
    return torch.where(lam == 1, 1.0, torch.where(lam == 0, 0.0, s))


def _cells(x: Tensor, grid: int, scale: PixelRange) -> Tensor:
    """The images in [0, 1], coarse: (N, C, k g, k g) with k cells for the side of a block."""
    cells = F.adaptive_avg_pool2d(at_least_float32(x), grid * max(1, CELLS // grid))
    return scale.to_pixels(cells)


def _borders(cells: Tensor, index: Tensor, grid: int) -> tuple[Tensor, Tensor]:
    """d(s, s') of each block and the one below it: how much the colors jump at their border.

    Written as costs of the single blocks, (2, N, g, g) for s = 0 and s = 1, plus a weight of (s - s')^2, (N, g-1, g).
    """
    k = cells.shape[-1] // grid
    above, below = cells[:, :, k - 1 : -1 : k], cells[:, :, k::k]

    def jump(above: Tensor, below: Tensor) -> Tensor:
        return (above - below).abs().mean(dim=1).unflatten(-1, (grid, k)).mean(dim=-1)

    d11, d10, d01 = jump(above, below), jump(above, below[index]), jump(above[index], below)
    d00 = d11[index]
    single = cells.new_zeros(2, len(cells), grid, grid)
    single[0, :, :-1] += (d00 + d01) / 2
    single[1, :, :-1] += (d10 + d11) / 2
    single[0, :, 1:] += (d00 + d10) / 2
    single[1, :, 1:] += (d01 + d11) / 2
    return single, (d01 + d10 - d00 - d11) / 2


def _prior(lam: Tensor, levels: int) -> Tensor:
    """-log of the binomial probability of each level, (1 or N, levels)."""
    lam = lam.reshape(-1, 1)
    k = torch.arange(levels, device=lam.device, dtype=lam.dtype)
    n = k[-1]
    ways = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)
    tiny = 1e-8
    return -(ways + k * (lam + tiny).log() + (n - k) * (1 - lam + tiny).log())


def energy(cost: Tensor, down: Tensor, right: Tensor, s: Tensor) -> Tensor:
    """E of masks `s` (..., N, g, g): `cost` (N, g, g, levels) of blocks, weights of (s - s')^2 to the next blocks."""
    levels = cost.shape[-1]
    level = (s * (levels - 1)).round().long()
    single = cost.expand(*s.shape, levels).gather(-1, level.unsqueeze(-1)).squeeze(-1).sum(dim=(-2, -1))
    both = (down * s.diff(dim=-2) ** 2).sum(dim=(-2, -1)) + (right * s.diff(dim=-1) ** 2).sum(dim=(-2, -1))
    return single + both


def least_energy(cost: Tensor, down: Tensor, right: Tensor) -> Tensor:
    """The masks of (nearly) least `energy`, (N, g, g), for costs that are convex in s.

    Costs are drawn linearly between the levels, which leaves the minimum where it is, and s may be any number in
    [0, 1]. Then s descends and the forces p between neighbors, the dual variables, ascend in turn; both proximal steps
    are a maximum over the pieces between two levels. At the end s is rounded to levels in three ways; the best stays.
    """
    grid, levels = cost.shape[1], cost.shape[-1]
    step = 1 / (levels - 1)
    scale = 0.1 / grid**2 + F.pad(down, (0, 0, 0, 1)).mean()  # forces become about as large as s
    sigma, tau = 1 / 2, 1 / 4  # a force acts on two blocks, a block feels four forces
    descents = [tau / step * slope / scale for slope in cost.diff(dim=-1).unbind(-1)]
    bounds = [tuple((2 * k + 1) * step * weight / scale for weight in (down, right)) for k in range(levels - 1)]

    def push(p: Tensor, difference: Tensor, axis: int) -> Tensor:
        p = torch.add(p, difference, alpha=sigma)
        if levels == 2:
            return torch.clamp(p, -bounds[0][axis], bounds[0][axis])
        size = p.abs()
        sizes = [torch.minimum(size - sigma * step * k, bound[axis]) for k, bound in enumerate(bounds)]
        return torch.stack(sizes).amax(dim=0).copysign(p)

    def descend(s: Tensor) -> Tensor:
        parts = [(s - descent).clamp(0, step * (k + 1)) for k, descent in enumerate(descents)]
        return parts[0] if levels == 2 else torch.stack(parts).amax(dim=0)

    s = torch.full_like(cost[..., 0], 0.5)
    ahead, p_down, p_right = s, torch.zeros_like(down), torch.zeros_like(right)
    for _ in range(max(30, 6 * grid)):
        p_down, p_right = push(p_down, ahead.diff(dim=1), 0), push(p_right, ahead.diff(dim=2), 1)
        pulled = s.clone()
        pulled[:, 1:].sub_(p_down, alpha=tau)
        pulled[:, :-1].add_(p_down, alpha=tau)
        pulled[:, :, 1:].sub_(p_right, alpha=tau)
        pulled[:, :, :-1].add_(p_right, alpha=tau)
        before, s = s, descend(pulled)
        ahead = torch.lerp(before, s, 2.0)

    rounded = torch.stack([(s / step + offset).floor() * step for offset in (0.25, 0.5, 0.75)])
    best = energy(cost, down, right, rounded).argmin(dim=0)
    return rounded[best, torch.arange(len(s), device=s.device)]


# --- transport -------------------------------------------------------------------------------------------------------


def match_blocks(saliency: Tensor, shown: Tensor, t_eps: float) -> Tensor:
    """Find which block moves to each place.

    A block that is shown after a move earns its saliency minus t_eps times the squared distance. Blocks propose
    themselves to the shown places, the nearest first, as long as they earn; a place takes the block that earns most
    there, and the others go on to their next. This is the original's contest of rows and columns without its (N, n, n)
    tensors.

    Args:
        saliency: Saliency of the blocks, ``(N, g, g)``.
        shown: Whether the mask shows each place, ``(N, g, g)``.
        t_eps: Cost of moving a block, per squared distance.

    Returns:
        Numbers of the blocks, ``(N, g, g)``.
    """
    grid = saliency.shape[-1]
    fares, places = _tour(grid, saliency.device)
    fares = t_eps * fares.to(saliency.dtype)
    saliency, shown = saliency.flatten(1), F.pad(shown.flatten(1), (0, 1))  # the last place is outside of the image
    block = torch.arange(grid**2, device=saliency.device)

    def contest(stop: Tensor) -> tuple[Tensor, Tensor]:
        place = places[block, stop]
        gain = (saliency - fares[stop]) * shown.gather(1, place)
        best = torch.zeros_like(shown, dtype=gain.dtype).scatter_reduce(1, place, gain, "amax")
        return place, (gain > 0) & (gain == best.gather(1, place))

    stop = torch.zeros_like(saliency, dtype=torch.long)  # of each block on its tour
    for _ in range(len(fares)):
        _, wins = contest(stop)
        stop = torch.where(wins, stop, (stop + 1).clamp(max=len(fares) - 1))
    place, wins = contest(stop)
    nobody = grid**2
    holder = torch.full_like(shown, nobody, dtype=torch.long)
    holder = holder.scatter_reduce(1, place, torch.where(wins, block, nobody), "amin")[:, :-1]
    return torch.where(holder < nobody, holder, block).unflatten(1, (grid, grid))


@lru_cache(maxsize=32)
def _tour(grid: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Places that a block may move to, the nearest first: squared distances (K,) with the side as 1, and places (n, K).

    Places are numbered row by row, n is outside of the image. The last stop is outside for every block.
    """
    steps = torch.arange(-FARTHEST, FARTHEST + 1, device=device)
    moves = torch.cartesian_prod(steps, steps)
    distance = moves.square().sum(dim=1)
    near = sum(
        row**2 + column**2 <= FARTHEST**2
        for row in range(-FARTHEST, FARTHEST + 1)
        for column in range(-FARTHEST, FARTHEST + 1)
    )
    order = distance.argsort(stable=True)[:near]
    side = torch.arange(grid, device=device)
    to = torch.cartesian_prod(side, side).unsqueeze(1) + moves[order]
    inside = ((to >= 0) & (to < grid)).all(dim=-1)
    places = torch.where(inside, to[..., 0] * grid + to[..., 1], grid**2)
    return F.pad(distance[order] / max(1, grid - 1) ** 2, (0, 1)), F.pad(places, (0, 1), value=grid**2)


def move_blocks(x: Tensor, sources: Tensor) -> Tensor:
    """Move the blocks of images: place p shows block ``sources[:, p]``.

    A block that is a pixel too short repeats its last one.

    Args:
        x: Images, ``(N, C, H, W)``.
        sources: Numbers of the blocks, ``(N, g, g)``.

    Returns:
        Images, ``(N, C, H, W)``.
    """
    grid, (height, width) = sources.shape[-1], x.shape[-2:]
    source = blocks_to_pixels(sources, (height, width))

    def origin(length: int, block: Tensor, axis: int) -> Tensor:
        """The pixel, along one axis, that a pixel comes from."""
        first = -(-torch.arange(grid + 1, device=x.device) * length // grid)
        pixel = torch.arange(length, device=x.device)
        within = pixel - first[pixel * grid // length]
        within = within.unsqueeze(1) if axis == 0 else within
        return torch.minimum(first[block] + within, first[block + 1] - 1)

    pixels = origin(height, source // grid, 0) * width + origin(width, source % grid, 1)
    moved = x.flatten(2).gather(2, pixels.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1))
    return torch.empty_like(x).copy_(moved.view(x.shape))  # in the memory format of x


def _move_both(x: Tensor, index: Tensor, sources: Tensor) -> tuple[Tensor, Tensor]:
    """The images and their partners with their blocks moved; `sources` (2N, g, g) has those of the images first."""
    of_first, of_second = sources.chunk(2)
    return move_blocks(x, of_first), move_blocks(x[index], of_second)


def create_task(model: nn.Module, **options: Any) -> Task:
    """Build the training task. The saliency is the classifier's: the teacher's if there is one, in eval mode.

    Args:
        model: The network to train.
        **options: Options of `puzzlemix` and of `MixTask`.

    Returns:
        The task.
    """
    return MixTask(model, puzzlemix, look=look, **options)
