"""Losses of mixed batches: our own, which use both labels of a pair, and any loss of logits and soft rows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError, one_line
from automix.core.target import MixedTarget, is_multi_label
from automix.core.validation import check_range

Criterion = Callable[[Tensor, Any], Tensor]
"""A loss of logits ``(N, num_classes)`` and a target.

A `MixedLoss` gets the `MixedTarget`. Everything else, such as ``nn.CrossEntropyLoss()`` or timm's losses, gets the
mixed label as rows ``(N, num_classes)``.
"""


class MixedLoss:
    """Base class of losses that take the `MixedTarget` itself.

    The default follows the labels: binary cross-entropy for multi-label rows, cross-entropy for everything else.
    """

    def __call__(self, logits: Tensor, target: MixedTarget) -> Tensor:
        """Compute the loss.

        Args:
            logits: The network's output, ``(N, num_classes)``.
            target: The label of the mixed batch.

        Returns:
            The mean loss, a scalar.
        """
        return target.loss(logits)


@dataclass(frozen=True)
class CrossEntropy(MixedLoss):
    """Mixup cross-entropy (Eq. 2): ``lam * CE(y_a) + (1 - lam) * CE(y_b)``, each sample with its own `lam`.

    Attributes:
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        class_weights: Weight of each class, for instance larger for rare ones; None if all count the same.
    """

    label_smoothing: float = 0.0
    class_weights: tuple[float, ...] | None = None

    def __call__(self, logits: Tensor, target: MixedTarget) -> Tensor:
        weights = None if self.class_weights is None else torch.tensor(self.class_weights, device=logits.device)
        return target.cross_entropy(logits, self.label_smoothing, weights)


@dataclass(frozen=True)
class BinaryCrossEntropy(MixedLoss):
    """Binary cross-entropy over the classes of the mixed label.

    Attributes:
        threshold: Count a class as present (1) where its mixed label exceeds this and as absent (0) elsewhere, as in
            "ResNet strikes back" (0.2); None keeps the soft label.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
    """

    threshold: float | None = None
    label_smoothing: float = 0.0

    def __call__(self, logits: Tensor, target: MixedTarget) -> Tensor:
        return target.bce(logits, self.threshold, self.label_smoothing)


@dataclass(frozen=True)
class Decoupled(MixedLoss):
    """DecoupledMix (Liu et al., 2023): a loss plus `eta` times `decoupled_loss`.

    Attributes:
        base: The loss of mixed batches that it is added to.
        eta: Weight of the decoupled term, >= 0; the authors use 0.1 for transformers and up to 1 for ResNets.
    """

    base: MixedLoss = CrossEntropy()
    eta: float = 0.1

    def __post_init__(self) -> None:
        check_range("eta", self.eta, 0)

    def __call__(self, logits: Tensor, target: MixedTarget) -> Tensor:
        return self.base(logits, target) + self.eta * decoupled_loss(logits, target)


def decoupled_loss(logits: Tensor, target: MixedTarget) -> Tensor:
    """Compute the decoupled term of DecoupledMix, which asks for every mixed class whatever its share.

    Each class i of a mixed image has its cross-entropy against the classes that are not in the mixture, without the
    logits of the other mixed classes S:

        sum over i in S of -log(exp(z_i) / (exp(z_i) + sum over k not in S of exp(z_k)))

    In the ordinary loss a higher logit of one mixed class lowers the probability of the other one. Here both can be
    high. A sample of one class (a clean image, or a pair of the same class) has no such term.

    Args:
        logits: The network's output, ``(N, num_classes)``.
        target: The label of the mixed batch; not of multi-label rows.

    Returns:
        The mean over the samples, a scalar.
    """
    if target.multi_label or is_multi_label(target.y_a):
        raise AutomixError("the decoupled loss is for class indices and soft rows, got multi-label rows")
    logits = at_least_float32(logits)
    shown = target.soft(logits.shape[1]) > 0
    # the lowest number instead of -inf: where all classes are mixed, gradients stay 0 instead of becoming NaN
    others = logits.masked_fill(shown, torch.finfo(logits.dtype).min).logsumexp(dim=1, keepdim=True)
    losses = torch.where(shown, torch.logaddexp(logits, others) - logits, 0).sum(dim=1)
    return torch.where(shown.sum(dim=1) > 1, losses, 0).mean()


def balanced_weights(counts: Sequence[int]) -> tuple[float, ...]:
    """Weigh the classes so that each counts the same in a sum over all images: ``n / (k * n_c)``.

    Args:
        counts: Number of images of each class.

    Returns:
        The weight of each class; 1 for a class without images, which is not among the k classes.
    """
    present = [count for count in counts if count]
    return tuple(sum(present) / (len(present) * count) if count else 1.0 for count in counts)


def mixed_loss(criterion: Criterion, logits: Tensor, target: MixedTarget) -> Tensor:
    """Apply a criterion to a mixed batch.

    Args:
        criterion: A `MixedLoss`, or any function of logits and soft rows.
        logits: The network's output, ``(N, num_classes)``.
        target: The label of the mixed batch.

    Returns:
        The loss, a scalar.

    Raises:
        AutomixError: The criterion takes class indices alone, or returns a loss for each sample.
    """
    if isinstance(criterion, MixedLoss):
        return criterion(logits, target)
    rows = target.soft(logits.shape[1]).to(logits.dtype)
    try:
        loss = criterion(logits, rows)
    except (RuntimeError, IndexError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        raise AutomixError(
            f"criterion must take soft rows (N, num_classes), as nn.CrossEntropyLoss() does; {_name(criterion)} "
            f"says: {one_line(error)}"
        ) from error
    if loss.ndim:
        raise AutomixError(
            f"criterion must return a scalar, got shape {tuple(loss.shape)} from {_name(criterion)}: use the mean"
        )
    return loss


def _name(criterion: Criterion) -> str:
    return getattr(criterion, "__name__", type(criterion).__name__)
