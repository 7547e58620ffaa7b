"""Which images the blocks of Co-Mixup's outputs show: its objective F, lowered for one output after another.

With the other outputs fixed, diversity is linear in the blocks of an output, and the rest is a Potts problem, here
solved for all sub-batches at once by min-sum messages between neighboring blocks (the original: graph cuts on the CPU).
As in the original

- from the second round on a block may also be half of each of two images, of the three that its output shows most. Such
  a block pays a quarter of `beta` beside a block of either image, and earns `HALF_BONUS`;
- before the last round outputs that show the same images are told to differ: one pays for its first image there, the
  other one for its second.

Costs are per block: beta and gamma of the paper divided by the number of blocks, tau multiplied by it. Shares
``(S, M, M, g, g)`` say how much of image k is shown in a block of output j: 0, 0.5 or 1.
"""

from functools import lru_cache

import torch
from torch import Tensor

__all__ = [
    "NEVER",
    "choose_shares",
    "energy",
    "improve_outputs",
    "least_energy",
    "objective",
    "one_hot",
    "seat",
    "tell_apart",
]

ROUNDS = 4  # over the outputs
NEVER = 1e4  # the cost of what must not be chosen
HALF_BONUS = 5e-4  # of a block that is half of each of two images
NEAR = 0.25  # of beta: a block of one image beside one that is half of it


def choose_shares(
    cost: Tensor, labels: Tensor, fixed: Tensor, beta: float, gamma: float, tau: float, *, half_blocks: bool = True
) -> Tensor:
    """Lower `objective` from given labels on, one output after another.

    After the first round the outputs change places, so that each shows much of its own image.

    Args:
        cost: Cost of showing image k in a block of output j, ``(S, M or 1, M, g, g)``.
        labels: Image in each block to start from, ``(S, M, g, g)``.
        fixed: Outputs that show their own image alone, ``(S, M)``.
        beta: Weight of the coherence.
        gamma: Weight of the diversity.
        tau: Number of blocks in other outputs before diversity counts.
        half_blocks: Whether a block may be half of each of two images.

    Returns:
        Shares, ``(S, M, M, g, g)``.
    """
    own = torch.arange(labels.shape[1], device=labels.device).reshape(1, -1, 1, 1)
    shares = one_hot(torch.where(fixed[..., None, None], own, labels), cost.shape[2])
    shares = improve_outputs(cost, shares, fixed, beta, gamma, tau)
    seats = seat(shares.sum(dim=(3, 4)), fixed)
    shares = shares.gather(1, seats[..., None, None, None].expand_as(shares))
    for _ in range(ROUNDS - 2):
        shares = improve_outputs(cost, shares, fixed, beta, gamma, tau, half_blocks=half_blocks)
    more = gamma * tell_apart(shares.sum(dim=(3, 4)))
    return improve_outputs(cost + more[..., None, None], shares, fixed, beta, gamma, tau, half_blocks=half_blocks)


def improve_outputs(
    cost: Tensor, shares: Tensor, fixed: Tensor, beta: float, gamma: float, tau: float, *, half_blocks: bool = False
) -> Tensor:
    """Lower `objective` in one round over the outputs.

    Args:
        cost: Cost of showing image k in a block of output j, ``(S, M or 1, M, g, g)``.
        shares: Shares to start from, ``(S, M, M, g, g)``.
        fixed: Outputs that stay as they are, ``(S, M)``.
        beta: Weight of the coherence.
        gamma: Weight of the diversity.
        tau: Number of blocks in other outputs before diversity counts.
        half_blocks: Whether a block may be half of each of two images.

    Returns:
        Shares, ``(S, M, M, g, g)``.
    """
    used = shares.sum(dim=(3, 4))
    total, chosen = used.sum(dim=1), []
    for j, cost_j in enumerate(cost.expand(-1, shares.shape[1], -1, -1, -1).unbind(1)):
        others = total - used[:, j]
        # twice: what this output pays for the others, and they for it
        crowded = 2 * gamma * others * (others > tau)
        now = least_energy(cost_j + crowded[..., None, None], beta, shares[:, j], used[:, j] if half_blocks else None)
        chosen.append(torch.where(fixed[:, j, None, None, None], shares[:, j], now))
        total = others + chosen[j].sum(dim=(2, 3))
    return torch.stack(chosen, dim=1)


def objective(cost: Tensor, shares: Tensor, beta: float, gamma: float, tau: float = 0.0) -> Tensor:
    """Compute F of each sub-batch.

    Args:
        cost: Cost of showing image k in a block of output j, ``(S, M or 1, M, g, g)``.
        shares: Shares of the images in each block of each output, ``(S, M, M, g, g)``.
        beta: Weight of the coherence.
        gamma: Weight of the diversity.
        tau: Number of blocks in other outputs before diversity counts.

    Returns:
        F, ``(S,)``.
    """
    used = shares.sum(dim=(3, 4))  # o
    others = used.sum(dim=1, keepdim=True) - used
    alone = energy(cost, beta, shares).sum(dim=1)
    return alone + gamma * (used * others * (others > tau)).sum(dim=(1, 2))


def energy(cost: Tensor, beta: float, shares: Tensor) -> Tensor:
    """Compute the cost of shares, plus `beta` for each pair of neighbors that differ.

    Args:
        cost: Cost of each image in each block, ``(B, K or 1, L, g, g)``.
        beta: Cost of neighbors that differ; a quarter of it for a block of one image beside one that is half of it.
        shares: K proposals, ``(B, K, L, g, g)``.

    Returns:
        Cost of each proposal, ``(B, K)``.
    """
    whole = shares.amax(dim=2) == 1
    single = (cost * shares).sum(dim=(2, 3, 4)) - HALF_BONUS * (~whole).sum(dim=(2, 3))
    down = _apart(shares[..., :-1, :], shares[..., 1:, :], whole[..., :-1, :] | whole[..., 1:, :])
    right = _apart(shares[..., :-1], shares[..., 1:], whole[..., :-1] | whole[..., 1:])
    return single + beta * (down + right)


def _apart(here: Tensor, there: Tensor, one_is_whole: Tensor) -> Tensor:
    """The number of neighbors that differ, (B, K); `NEAR` each where one is whole and the other one half of it."""
    distance = (here - there).square().sum(dim=2) / 2  # 0 if equal, 1/4 if one is half of the other
    near = one_is_whole & (distance == NEAR)
    return torch.where(near, NEAR, (distance > 0).float()).sum(dim=(2, 3))


def least_energy(cost: Tensor, beta: float, before: Tensor, used: Tensor | None = None) -> Tensor:
    """Find shares of (nearly) least `energy` by min-sum messages between neighbors; never worse than `before`.

    A message holds, for each label, what it would cost the sender: the sender's own cost of it, or beta more than its
    best label, or `NEAR` of beta more than a label that is half of it. The labels are the images and, if `used` is
    given, the three pairs of the three most used ones.

    Args:
        cost: Cost of each image in each block, ``(B, L, g, g)``.
        beta: Cost of neighbors that differ.
        before: Shares to improve on, ``(B, L, g, g)``.
        used: Number of blocks that show each image, ``(B, L)``; without it, or below three images, all blocks are
            whole.

    Returns:
        Shares, ``(B, L, g, g)``.
    """
    batch, images, grid, _ = cost.shape
    top, halves = _halves(used.to(cost)) if used is not None and images > 2 else (None, None)
    single = cost.flatten(2)
    if halves is not None:
        some = halves.sum(dim=2, keepdim=True) > 0
        single = torch.cat([single, torch.where(some, halves @ single - HALF_BONUS, NEVER)], dim=1)
    single = single.unsqueeze(2)
    senders, there = _neighbors(grid, cost.device)
    heard = torch.zeros((), device=cost.device).expand(batch, single.shape[1], 4, grid**2)  # from four sides
    for _ in range(2 * grid):
        known = single + heard.sum(dim=2, keepdim=True) - heard  # of the other three sides, to tell the fourth
        known = known - known.amin(dim=1, keepdim=True)
        said = known.clamp(max=beta)
        if top is not None:
            said = _tell_halves(known, said, top, NEAR * beta)
        heard = said.flatten(2)[..., senders].view_as(said) * there
    label = (single + heard.sum(dim=2, keepdim=True)).squeeze(2).argmin(dim=1).reshape(batch, grid, grid)
    belief = one_hot(label, single.shape[1])
    if halves is not None:
        belief = belief[:, :images] + torch.einsum("bpl,bphw->blhw", halves.to(belief), belief[:, images:])
    one_image = one_hot(cost.sum(dim=(2, 3)).argmin(dim=1).reshape(-1, 1, 1).expand_as(label), images)
    proposals = torch.stack([belief, one_image, before], dim=1)
    best = energy(cost.unsqueeze(1), beta, proposals).argmin(dim=1)
    return proposals[torch.arange(batch, device=cost.device), best]


def _halves(used: Tensor) -> tuple[Tensor, Tensor]:
    """The three most used images (B, 3), and the shares (B, 3, L) of their pairs; 0 where an image is not used."""
    count, top = used.topk(3, dim=1)
    image = torch.nn.functional.one_hot(top, used.shape[1]).to(used.dtype)
    used_first, used_second = _pairs(count > 0)
    first, second = _pairs(image)
    return top, (first + second) / 2 * (used_first & used_second).unsqueeze(2)


def _pairs(three: Tensor) -> tuple[Tensor, Tensor]:
    """First and second members of the pairs (0, 1), (0, 2) and (1, 2) of three values (B, 3, ...).

    Of the three pairs, the same places hold the two that each of the three values is in. Slices, because a list of
    places would be copied to the device at each call.
    """
    return torch.cat([three[:, :1], three[:, :2]], dim=1), torch.cat([three[:, 1:], three[:, 2:]], dim=1)


def _tell_halves(known: Tensor, said: Tensor, top: Tensor, near: float) -> Tensor:
    """Lower messages (B, L + 3, 4, n): an image may be told from its pairs, and a pair from its images, for `near`."""
    images = known.shape[1] - 3
    where = top[:, :, None, None].expand(-1, -1, *known.shape[2:])
    image, pair = known.gather(1, where), known[:, images:]
    to_pair, to_image = (torch.minimum(*_pairs(values)) + near for values in (image, pair))
    of_images = said[:, :images].scatter(1, where, torch.minimum(said.gather(1, where), to_image))
    return torch.cat([of_images, torch.minimum(said[:, images:], to_pair)], dim=1)


def tell_apart(used: Tensor) -> Tensor:
    """Find outputs that show the same images, two or more, and what each of them shall pay for.

    Args:
        used: Number of blocks in which output j shows image k, ``(S, M, M)``.

    Returns:
        1 for the first image of an output with an equal later one, and for the second image of one with an equal
        earlier one, else 0, ``(S, M, M)``.
    """
    shows = used > 0
    equal = (shows.unsqueeze(2) == shows.unsqueeze(1)).all(dim=3).triu(diagonal=1)
    several = shows.sum(dim=2) > 1
    number = shows.cumsum(dim=2)
    first, second = shows & (number == 1), shows & (number == 2)
    has_later, has_earlier = equal.any(dim=2) & several, equal.any(dim=1) & several
    return ((first & has_later.unsqueeze(2)) | (second & has_earlier.unsqueeze(2))).to(used.dtype)


def seat(used: Tensor, fixed: Tensor) -> Tensor:
    """Assign outputs to images, greedily by the number of blocks in which outputs show images.

    Args:
        used: Number of blocks in which output j shows image k, ``(S, M, M)``.
        fixed: Outputs that keep their place, ``(S, M)``.

    Returns:
        For each image its output, ``(S, M)``.
    """
    number = used.shape[1]
    place = torch.arange(number, device=used.device)
    score = used + NEVER * torch.diag_embed(fixed.to(used.dtype))
    seats = torch.zeros_like(fixed, dtype=torch.long)
    for _ in range(number):
        best = score.flatten(1).argmax(dim=1, keepdim=True)
        output, image = best // number, best % number
        seats.scatter_(1, image, output)
        taken = (place == output).unsqueeze(2) | (place == image).unsqueeze(1)
        score = score.masked_fill(taken, -1)
    return seats


def one_hot(labels: Tensor, number: int) -> Tensor:
    """Turn labels ``(..., g, g)`` into ``(..., number, g, g)``, 1 where the label is the position.

    Args:
        labels: Whole numbers below `number`.
        number: Number of labels.

    Returns:
        Zeros and ones, float32.
    """
    return (labels.unsqueeze(-3) == torch.arange(number, device=labels.device).reshape(-1, 1, 1)).float()


@lru_cache(maxsize=32)
def _neighbors(grid: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Where a block's four messages come from: positions among 4 n messages, and whether there is such a neighbor."""
    row, column = torch.arange(grid**2, device=device) // grid, torch.arange(grid**2, device=device) % grid
    senders, there = [], []
    for down, right, told in ((-1, 0, 1), (1, 0, 0), (0, -1, 3), (0, 1, 2)):  # the block above tells the one below, ...
        r, c = row + down, column + right
        there.append((r >= 0) & (r < grid) & (c >= 0) & (c < grid))
        senders.append(told * grid**2 + r.clamp(0, grid - 1) * grid + c.clamp(0, grid - 1))
    return torch.cat(senders), torch.stack(there)
