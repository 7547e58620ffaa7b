"""Co-Mixup (Kim et al., 2021): a batch is mixed jointly, each output from any number of its images.

m images become m outputs. A block of a g x g grid of an output shows one image, or half of each of two. With o_jk the
number of blocks in which output j shows image k, sal_k the saliency of its blocks (sum 1) and n = g^2, the outputs have
the least

    F = - sum over outputs and blocks of the saliency that is shown
        + beta / n   * pairs of neighboring blocks that show different images          coherence
        + gamma / n  * sum over j != j', k of o_jk o_j'k                                diversity: outputs share little
        - eta / n    * sum over outputs and blocks of log p_k                           prior of the images

where a product counts only if the other outputs together use image k in more than tau n blocks. How F is lowered is in
`_shared/joint_blocks.py`. The label is the sum of the labels shown, each with its area.

`lam` has no place in the original: there p ~ Dirichlet(alpha) is one draw for a sub-batch, and so it is here unless
`lam` is given. Then p = lam for an output's own image (output j is sample j's) and the draw is shared by the others.
The loss is its authors': the binary cross-entropy of the softmax on the mixed images, and `clean_lam` times the
cross-entropy on the clean ones (`create_task`). Left out is the original's distance between images (weight 0.001). An
addition of ours is that outputs change places, so that the one in place j shows much of image j. For small images and
long schedules; a step costs three to four plain ones, most of it for the saliency and the clean loss.
"""

from typing import Any

import torch
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.criteria import MixedLoss
from automix.core.draws import draw_dirichlet, draw_index, draw_lam, draw_uniform
from automix.core.target import Mixed, MixedTarget, is_multi_label
from automix.core.tensor_checks import check_batch
from automix.core.validation import check_alpha, check_range, check_whole
from automix.methods._shared.joint_blocks import NEVER, choose_shares
from automix.methods._shared.labels import count_labels, label_rows
from automix.methods._shared.saliency import blocks_to_pixels, check_saliency, input_saliency, pool
from automix.tasks.mix_task import MixTask
from automix.tasks.task import Task

__all__ = ["comixup", "create_task"]


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
    half_blocks: bool = True,
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
        half_blocks: Whether a block may show two of the output's images, half of each.
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
    shares = choose_shares(cost, start, fixed, beta / grid**2, gamma / grid**2, tau * grid**2, half_blocks=half_blocks)

    first, second = (
        blocks_to_pixels(deal.collect(deal.slots.gather(1, slot.flatten(1)).view_as(slot)), size)
        for slot in _two_images(shares)
    )  # (N, H, W): the images that each pixel is from, twice the same one in most blocks
    own = torch.arange(len(x), device=x.device).reshape(-1, 1, 1)
    half = torch.full_like(first, 0.5, dtype=rows.dtype).flatten(1)
    area = torch.zeros(len(x), len(x), device=x.device, dtype=rows.dtype)
    area.scatter_add_(1, first.flatten(1), half).scatter_add_(1, second.flatten(1), half)
    mixed_rows = area @ rows / (size[0] * size[1])
    mask = (((first == own).float() + (second == own).float()) / 2).unsqueeze(1).to(at_least_float32(x).dtype)
    target = MixedTarget(mixed_rows, mixed_rows, mask.mean(dim=(1, 2, 3)), multi_label=is_multi_label(y))
    mixed_x = torch.where((first == second).unsqueeze(1), _take(x, first), (_take(x, first) + _take(x, second)) / 2)
    return Mixed(mixed_x, target, mask)


def _two_images(shares: Tensor) -> tuple[Tensor, Tensor]:
    """The two images of each block, (S, M, g, g) each, from shares (S, M, M, g, g); a whole block has one twice."""
    first = shares.argmax(dim=2)
    rest = shares.scatter(2, first.unsqueeze(2), 0)
    return first, torch.where(rest.amax(dim=2) > 0, rest.argmax(dim=2), first)


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
