"""The label of a mixed batch, its losses, and the mixed batch itself.

The convention, everywhere: `lam` belongs to the FIRST image. The partner of sample i is sample ``index[i]``, and

    x_mix = s * x_i + (1 - s) * x_j        mean(s) ~ lam
    y_mix = lam * y_i + (1 - lam) * y_j
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.blend import at_least_float32
from automix.core.validation import check_classes, check_smoothing


@dataclass(frozen=True)
class MixedTarget:
    """The label of a mixed batch: `y_a` with weight `lam`, `y_b` with weight ``1 - lam``.

    Labels are class indices (N,), soft rows (N, C) of a floating type, or multi-label rows (N, C) of bool or integers.
    `lam` is one number for the batch, shape (), or one per sample, shape (N,). Three or more images have rows as label,
    mixed already, as `y_a` and `y_b` both; `multi_label` says that they come from multi-label rows.
    """

    y_a: Tensor
    y_b: Tensor
    lam: Tensor
    multi_label: bool = False

    @classmethod
    def clean(cls, y: Tensor) -> "MixedTarget":
        """The label of a batch that was not mixed."""
        return cls(y, y, torch.ones((), device=y.device))

    def loss(self, logits: Tensor) -> Tensor:
        """The loss that fits the labels: `bce` for multi-label rows, `cross_entropy` for the others."""
        several = self.multi_label or is_multi_label(self.y_a)
        return self.bce(logits) if several else self.cross_entropy(logits)

    def cross_entropy(self, logits: Tensor, label_smoothing: float = 0.0) -> Tensor:
        """Mixup cross-entropy (Eq. 2): the mean over samples of lam * CE(y_a) + (1 - lam) * CE(y_b).

        Each sample is weighted by its own lam before the mean. Computed in float32 at least.
        """
        logits = at_least_float32(logits)
        check_smoothing(label_smoothing)
        check_classes(self.y_a, logits.shape[1])

        def per_sample(y: Tensor) -> Tensor:
            y = y if y.ndim == 1 else y.to(logits.dtype)
            return F.cross_entropy(logits, y, reduction="none", label_smoothing=label_smoothing)

        if self.y_b is self.y_a:
            return per_sample(self.y_a).mean()
        lam = self.lam.to(logits)
        return (lam * per_sample(self.y_a) + (1 - lam) * per_sample(self.y_b)).mean()

    def bce(self, logits: Tensor, threshold: float | None = None, label_smoothing: float = 0.0) -> Tensor:
        """Binary cross-entropy over the classes, averaged over samples and classes.

        With a `threshold`, every class whose mixed label exceeds it counts as fully present (1) and all others as
        absent (0), as in "ResNet strikes back" (threshold 0.2): both images of a pair are then simply there.
        """
        logits = at_least_float32(logits)
        target = self.soft(logits.shape[1], label_smoothing).to(logits.dtype)
        if threshold is not None:
            if not 0 <= threshold < 1:
                raise ValueError(f"threshold={threshold}: accepted is None or a number in [0, 1)")
            target = (target > threshold).to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, target)

    def accuracy(self, logits: Tensor) -> Tensor:
        """The share of the label that the first answer earns: lam if it is y_a, 1 - lam if it is y_b.

        The mean over a mixed batch stays well below the accuracy on clean images: at lam = 0.5 nobody earns more than
        half. A row earns what it says of the class, 1 for each class that a multi-label row contains.
        """
        answer = logits.argmax(dim=1)

        def earned(y: Tensor) -> Tensor:
            return (y == answer).float() if y.ndim == 1 else y.gather(1, answer.unsqueeze(1)).squeeze(1).float()

        lam = self.lam.float()
        return (lam * earned(self.y_a) + (1 - lam) * earned(self.y_b)).mean()

    def soft(self, num_classes: int | None = None, label_smoothing: float = 0.0) -> Tensor:
        """The mixed label as rows (N, num_classes); `num_classes` may be left out where the labels are rows already."""
        check_smoothing(label_smoothing)
        if num_classes is None:
            if self.y_a.ndim == 1:
                raise ValueError("num_classes is missing: class indices need it to become rows")
            num_classes = self.y_a.shape[1]
        check_classes(self.y_a, num_classes)
        rows_a, rows_b = (_rows(y, num_classes) for y in (self.y_a, self.y_b))
        lam = self.lam.to(rows_a).reshape(-1, 1)
        rows = lam * rows_a + (1 - lam) * rows_b
        if label_smoothing:
            rows = rows * (1 - label_smoothing) + label_smoothing / num_classes
        return rows


@dataclass(frozen=True)
class Mixed:
    """A mixed batch: images `x` (N, C, H, W), their `target`, and `mask` (N, 1, H, W), the share of the first image."""

    x: Tensor
    target: MixedTarget
    mask: Tensor


def _rows(y: Tensor, num_classes: int) -> Tensor:
    return at_least_float32(F.one_hot(y.long(), num_classes) if y.ndim == 1 else y)


def is_multi_label(y: Tensor) -> bool:
    return y.ndim == 2 and not y.is_floating_point()
