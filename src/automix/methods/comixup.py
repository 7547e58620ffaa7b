"""Co-Mixup (Kim et al., 2021): a batch is mixed jointly, each output from any number of its images.

m images become m outputs. In block i of a g x g grid output j shows one image; with o_jk the number of blocks in which
output j shows image k, sal_k the saliency of its blocks (sum 1) and n = g^2, the outputs have the least

    F = - sum over outputs and blocks of the saliency that is shown
        + beta / n   * pairs of neighboring blocks that show different images          coherence
        + gamma / n  * sum over j != j', k of o_jk o_j'k                                diversity: outputs share little
        - eta / n    * sum over outputs and blocks of log p_k                           prior of the images

where a product counts only if the other outputs together use image k in more than tau n blocks. As in the original, F
is lowered for one output after another: with the others fixed, diversity is linear in its blocks, and the rest is a
Potts problem, here solved for all sub-batches at once by min-sum messages. The label is the sum of the labels shown,
each with its area.

`lam` has no place in the original: there p ~ Dirichlet(alpha) is one draw for a sub-batch, and so it is here unless
`lam` is given. Then p = lam for an output's own image (output j is sample j's) and the draw is shared by the others.
The loss is its authors': the binary cross-entropy of the softmax on the mixed images, and `clean_lam` times the
cross-entropy on the clean ones (`create_task`). Left out are the original's half-and-half blocks, its second pass
against equal outputs and its distance between images (weight 0.001). An addition of ours is that outputs change places,
so that the one in place j shows much of image j. For small images and long schedules; a step costs three to four plain
ones, most of it for the saliency and the clean loss.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.criteria import MixedLoss
from automix.core.draws import draw_dirichlet, draw_index, draw_lam, draw_uniform
from automix.core.target import Mixed, MixedTarget, is_multi_label
from automix.core.tensor_checks import check_batch
from automix.core.validation import check_alpha, check_range, check_whole
from automix.methods._shared.labels import count_labels, label_rows
from automix.methods._shared.saliency import blocks_to_pixels, check_saliency, input_saliency, pool
from automix.tasks.mix_task import MixTask
from automix.tasks.task import Task

__all__ = ["comixup", "create_task"]

ROUNDS = 4  # over the outputs
NEVER = 1e4  # the cost of what must not be chosen


def comixup(
    x: Tensor,
    y: Tensor,
    alpha: float = 2.0,
    *,
    saliency: Tensor | None = None,
    num_classes: int | None = None,
    m: int = 20,
    grid: int = 4,
    beta: float = 0.32,
    gamma: float = 1.0,
    eta: float = 0.05,
    tau: float = 0.83,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix a batch jointly, each output from any number of its images (Kim et al., 2021).

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: Prior of the images ``~ Dirichlet(alpha)``.
        saliency: How much each pixel of `x` matters, ``(N, H, W)``, >= 0; see `create_task`.
        num_classes: Number of classes; required for class indices.
        m: Largest number of images that are mixed jointly, >= 1.
        grid: Blocks per side, >= 1.
        beta: Weight of the coherence, >= 0.
        gamma: Weight of the diversity, >= 0.
        eta: Weight of the prior, >= 0.
        tau: Share of an output that an image may have in the others before diversity counts, >= 0.
        lam: Prior of an output's own image, a number or ``(N,)``; 1 gives the image back.
        index: Order in which images are dealt into sub-batches, a permutation of ``range(N)``; drawn if not given.
        per_sample: Draw the prior for every output instead of once for each sub-batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images; their target, whose rows follow the areas shown and whose lam is the share of the output's own
        image; and the mask, which is that share at each pixel.
    """
    check_batch(x, y)
    saliency = check_saliency(saliency, x)
    _check_options(alpha, m, grid, beta, gamma, eta, tau)
    rows = label_rows(y, num_classes)
    index = draw_index(x, index=index, generator=generator)
    deal = Deal(index, m)
    size = (x.shape[-2], x.shape[-1])
    grid = min(grid, *size)

    batches, slots = deal.shape
    prior = draw_dirichlet(x, (batches, slots if per_sample else 1, slots), alpha, generator)
    fixed = ~deal.real
    if lam is not None:
        given = deal.hand_out(draw_lam(x, alpha, lam=lam).expand(len(x)))
        prior = _own_first(prior, given)
        fixed = fixed | (given == 1)
    sal = deal.hand_out(pool(saliency, grid))
    cost = -sal.unsqueeze(1) - eta / grid**2 * (prior.to(sal.dtype) + 1e-8).log()[..., None, None]
    cost = torch.where(deal.real[:, None, :, None, None], cost, NEVER)
    images = deal.real.sum(dim=1).reshape(-1, 1, 1, 1)
    start = (draw_uniform(x, (batches, slots, grid, grid), generator) * images).long()
    labels = choose_images(cost, start, fixed, beta / grid**2, gamma / grid**2, tau * grid**2)

    numbers = deal.slots.gather(1, labels.flatten(1)).view_as(labels)
    shown = blocks_to_pixels(deal.collect(numbers), size)  # (N, H, W): the image that each pixel is from
    own = torch.arange(len(x), device=x.device).reshape(-1, 1, 1)
    mask = (shown == own).unsqueeze(1).to(at_least_float32(x).dtype)
    shares = torch.zeros(len(x), len(x), device=x.device, dtype=rows.dtype)
    shares.scatter_add_(1, shown.flatten(1), torch.full_like(shown, 1, dtype=rows.dtype).flatten(1))
    mixed_rows = shares @ rows / (size[0] * size[1])
    target = MixedTarget(mixed_rows, mixed_rows, mask.mean(dim=(1, 2, 3)), multi_label=is_multi_label(y))
    return Mixed(_take(x, shown), target, mask)


def _check_options(alpha: float, m: int, grid: int, beta: float, gamma: float, eta: float, tau: float) -> None:
    check_alpha(alpha)
    check_whole("m", m, 1)
    check_whole("grid", grid, 1)
    for name, value in (("beta", beta), ("gamma", gamma), ("eta", eta), ("tau", tau)):
        check_range(name, value, 0)


def _take(x: Tensor, shown: Tensor) -> Tensor:
    """Images (N, C, H, W) whose pixels are those of the images `shown` (N, H, W) at the same place."""
    rows, columns = (torch.arange(side, device=x.device) for side in shown.shape[1:])
    mixed = x.permute(0, 2, 3, 1)[shown, rows[:, None], columns]
    return torch.empty_like(x).copy_(mixed.permute(0, 3, 1, 2))  # in the memory format of x


# --- sub-batches -----------------------------------------------------------------------------------------------------


class Deal:
    """Deals a batch, like cards, into as few sub-batches of at most `most` images as possible.

    `slots` (S, M) are the numbers of the images; `real` is False for the last slots of some sub-batches, which are
    empty.

    Args:
        order: Order in which images are dealt, ``(N,)``.
        most: Largest number of images in a sub-batch.
    """

    def __init__(self, order: Tensor, most: int) -> None:
        batches = -(-len(order) // most)
        place = torch.arange(-(-len(order) // batches) * batches, device=order.device).reshape(-1, batches).T
        self.shape = (batches, place.shape[1])
        self.real = place < len(order)
        self.slots = order[place.clamp(max=len(order) - 1)]
        self.place = order.argsort()  # of each image

    def hand_out(self, values: Tensor) -> Tensor:
        """Turn (N, ...) into (S, M, ...)."""
        return values[self.slots]

    def collect(self, values: Tensor) -> Tensor:
        """Turn (S, M, ...) into (N, ...), in the order of the batch."""
        return values[self.place % self.shape[0], self.place // self.shape[0]]


def _own_first(prior: Tensor, lam: Tensor) -> Tensor:
    """The prior of each output (S, M, M) with `lam` (S, M) for its own image; the others share the rest as before."""
    own = torch.eye(prior.shape[-1], dtype=torch.bool, device=prior.device)
    others = prior.masked_fill(own, 0)
    others = others / others.sum(dim=-1, keepdim=True).clamp(min=torch.finfo(prior.dtype).tiny)
    lam = lam.unsqueeze(-1).to(prior.dtype)
    return torch.where(own, lam, (1 - lam) * others)


# --- the outputs -----------------------------------------------------------------------------------------------------


def objective(cost: Tensor, labels: Tensor, beta: float, gamma: float, tau: float = 0.0) -> Tensor:
    """Compute F of each sub-batch.

    Weights are per block: beta and gamma of the paper divided by n, tau multiplied by n.

    Args:
        cost: Cost of showing image k in a block of output j, ``(S, M or 1, M, g, g)``.
        labels: Image in each block of each output, ``(S, M, g, g)``.
        beta: Weight of the coherence.
        gamma: Weight of the diversity.
        tau: Number of blocks in other outputs before diversity counts.

    Returns:
        F, ``(S,)``.
    """
    shown = _one_hot(labels, cost.shape[2])
    single = (cost * shown).sum(dim=(1, 2, 3, 4))
    pairs = (labels.diff(dim=-1) != 0).sum(dim=(1, 2, 3)) + (labels.diff(dim=-2) != 0).sum(dim=(1, 2, 3))
    used = shown.sum(dim=(3, 4))  # o
    others = used.sum(dim=1, keepdim=True) - used
    return single + beta * pairs + gamma * (used * others * (others > tau)).sum(dim=(1, 2))


def choose_images(cost: Tensor, labels: Tensor, fixed: Tensor, beta: float, gamma: float, tau: float) -> Tensor:
    """Lower `objective` from given labels on, one output after another.

    After the first round the outputs change places, so that each shows much of its own image.

    Args:
        cost: Cost of showing image k in a block of output j, ``(S, M or 1, M, g, g)``.
        labels: Image in each block to start from, ``(S, M, g, g)``.
        fixed: Outputs that show their own image alone, ``(S, M)``.
        beta: Weight of the coherence.
        gamma: Weight of the diversity.
        tau: Number of blocks in other outputs before diversity counts.

    Returns:
        Image in each block, ``(S, M, g, g)``.
    """
    outputs, images = labels.shape[1], cost.shape[2]
    own = torch.arange(outputs, device=labels.device).reshape(1, -1, 1, 1)
    labels = torch.where(fixed[..., None, None], own, labels)
    costs = cost.expand(-1, outputs, -1, -1, -1).unbind(1)
    for round_ in range(ROUNDS):
        if round_ == 1:
            seats = seat(_one_hot(labels, images).sum(dim=(3, 4)), fixed)
            labels = labels.gather(1, seats[..., None, None].expand_as(labels))
        used = _one_hot(labels, images).sum(dim=(3, 4))
        total, chosen = used.sum(dim=1), []
        for j in range(outputs):
            others = total - used[:, j]
            # twice: what this output pays for the others, and they for it
            crowded = 2 * gamma * others * (others > tau)
            now = least_potts(costs[j] + crowded[..., None, None], beta, labels[:, j])
            chosen.append(torch.where(fixed[:, j, None, None], labels[:, j], now))
            total = others + _one_hot(chosen[j], images).sum(dim=(2, 3))
        labels = torch.stack(chosen, dim=1)
    return labels


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


def _one_hot(labels: Tensor, number: int) -> Tensor:
    """Turn (..., g, g) into (..., number, g, g), 1 where the label is the position."""
    return (labels.unsqueeze(-3) == torch.arange(number, device=labels.device).reshape(-1, 1, 1)).float()


def potts(cost: Tensor, beta: float, labels: Tensor) -> Tensor:
    """Compute the cost of labels, plus `beta` for each pair of neighbors that differ.

    Args:
        cost: Cost of each label in each block, ``(B, L, g, g)``.
        beta: Cost of neighbors that differ.
        labels: K proposals, ``(B, K, g, g)``.

    Returns:
        Cost of each proposal, ``(B, K)``.
    """
    single = cost.gather(1, labels).sum(dim=(2, 3))
    pairs = (labels.diff(dim=-1) != 0).sum(dim=(2, 3)) + (labels.diff(dim=-2) != 0).sum(dim=(2, 3))
    return single + beta * pairs


def least_potts(cost: Tensor, beta: float, before: Tensor) -> Tensor:
    """Find labels of (nearly) least `potts` by min-sum messages between neighbors; never worse than `before`.

    A message holds, for each label, what it would cost the sender: the sender's own cost of it, or beta more than its
    best label.

    Args:
        cost: Cost of each label in each block, ``(B, L, g, g)``.
        beta: Cost of neighbors that differ.
        before: Labels to improve on, ``(B, g, g)``.

    Returns:
        Labels, ``(B, g, g)``.
    """
    size, number, grid, _ = cost.shape
    senders, there = _neighbors(grid, cost.device)
    single = cost.flatten(2).unsqueeze(2)
    heard = torch.zeros((), device=cost.device).expand(size, number, 4, grid**2)  # by each block, from four sides
    for _ in range(2 * grid):
        known = single + heard.sum(dim=2, keepdim=True) - heard  # of the other three sides, to tell the fourth
        said = (known - known.amin(dim=1, keepdim=True)).clamp_(max=beta)
        heard = said.flatten(2)[..., senders].view_as(said) * there
    belief = (single + heard.sum(dim=2, keepdim=True)).view_as(cost)
    one_image = cost.sum(dim=(2, 3)).argmin(dim=1).reshape(-1, 1, 1).expand_as(before)
    proposals = torch.stack([belief.argmin(dim=1), one_image, before], dim=1)
    best = potts(cost, beta, proposals).argmin(dim=1)
    return proposals[torch.arange(size, device=cost.device), best]


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


# --- the task --------------------------------------------------------------------------------------------------------


def look(task: MixTask, x: Tensor, y: Tensor) -> dict[str, Any]:
    """Compute the saliency and the number of classes that the labels need, for `MixTask`."""
    saliency, logits = input_saliency(task.classifier, x, y)
    return {"saliency": saliency, "num_classes": count_labels(y, logits.shape[1])}


def softmax_bce(logits: Tensor, target: MixedTarget) -> Tensor:
    """Compute the binary cross-entropy of the softmax: ``-sum(t log p + (1 - t) log(1 - p)) / 2`` over the classes.

    Its authors take the mean over the classes instead, and 2 / num_classes times the clean cross-entropy. That is the
    same up to a factor, with which the learning rates of a recipe would lose their meaning.

    Args:
        logits: ``(N, num_classes)``.
        target: The label of the mixed batch; for multi-label rows it is the ordinary binary cross-entropy.

    Returns:
        The mean over the samples, a scalar.
    """
    if target.multi_label or is_multi_label(target.y_a):
        return target.bce(logits)
    log_p = at_least_float32(logits).log_softmax(dim=1)
    t = target.soft(logits.shape[1]).to(log_p)
    # log(1 - p), at least -100 as in torch's binary cross-entropy; without a gradient where p is 1
    p = log_p.exp()
    log_rest = torch.where(p < 1, (-torch.where(p < 1, p, 0)).log1p(), -100)
    return -(t * log_p.clamp(min=-100) + (1 - t) * log_rest).sum(dim=1).mean() / 2


class CoMixupTask(MixTask):
    """Has a loss of its own for mixed images, and weighs the loss on the clean ones."""

    def __init__(self, model: nn.Module, clean_lam: float, bce: bool, **options: Any) -> None:
        super().__init__(model, comixup, look=look, one_hot_loss=clean_lam > 0, **options)
        self.clean_lam = clean_lam
        self.bce = bce and type(self.criterion) is MixedLoss

    def mixed_loss(self, logits: Tensor, target: MixedTarget) -> Tensor:
        return softmax_bce(logits, target) if self.bce else self.loss(logits, target)

    def clean_term(self, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return {"loss_clean": self.clean_lam * super().clean_term(x, y)["loss_clean"]}


def create_task(
    model: nn.Module,
    *,
    clean_lam: float = 1.0,
    bce: bool = True,
    one_hot_loss: bool | None = None,
    **options: Any,
) -> Task:
    """Build the training task. The saliency is the classifier's: the teacher's if there is one, in eval mode.

    Args:
        model: The network to train.
        clean_lam: Weight of the loss on the clean images, >= 0; 0 saves a pass of the network.
        bce: Take the binary cross-entropy of the softmax on the mixed images, as its authors do, unless a criterion is
            given. False takes the cross-entropy.
        one_hot_loss: Whether there is a loss on the clean images; True with a `clean_lam` above 0 if not given.
        **options: Options of `comixup` and of `MixTask`.

    Returns:
        The task.
    """
    check_range("clean_lam", clean_lam, 0)
    if one_hot_loss is not None:
        clean_lam = (clean_lam or 1.0) if one_hot_loss else 0.0
    return CoMixupTask(model, clean_lam, bce, **options)
