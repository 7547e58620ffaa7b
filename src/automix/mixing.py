"""What every mixing method shares: the words, the random draws, the blend and the mixed label.

The convention, everywhere: `lam` belongs to the FIRST image. The partner of sample i is sample ``index[i]``, and

    x_mix = s * x_i + (1 - s) * x_j        mean(s) ~ lam
    y_mix = lam * y_i + (1 - lam) * y_j

Randomness is drawn here and nowhere else; whatever comes after is a function of ``(x, lam, index, ...)``.
"""

import hashlib
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.checks import as_lam, check_alpha, check_classes, check_index, check_smoothing


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


def at_least_float32(x: Tensor) -> Tensor:
    """float64 stays; everything else becomes float32."""
    return x if x.dtype == torch.float64 else x.float()


def is_multi_label(y: Tensor) -> bool:
    return y.ndim == 2 and not y.is_floating_point()


# --- randomness ------------------------------------------------------------------------------------------------------


def step_seed(seed: int, step: int, part: int = 0, stream: str = "mixing") -> int:
    """A seed that depends on nothing but its arguments, so that a resumed run draws the same numbers.

    `part` is the piece of the step's batch, counted over all processes: piece p of process r out of n is p * n + r.
    Two processes, or one that accumulates two pieces, thus draw alike. `stream` keeps apart draws for other purposes.
    """
    digest = hashlib.blake2b(repr((stream, seed, step, part)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def step_generator(seed: int, step: int, part: int = 0, stream: str = "mixing") -> torch.Generator:
    """A fresh CPU generator seeded by `step_seed`."""
    return torch.Generator().manual_seed(step_seed(seed, step, part, stream))


def draw_lam(
    x: Tensor,
    alpha: float,
    *,
    lam: float | Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """lam ~ Beta(alpha, alpha), one for the batch or one per sample; a given `lam` is checked and used as it is."""
    check_alpha(alpha)
    if lam is not None:
        return as_lam(lam, len(x)).to(
            device=x.device, dtype=torch.float64 if x.dtype == torch.float64 else torch.float32
        )
    # A pair of Dirichlet(alpha, alpha) is (lam, 1 - lam); torch.distributions.Beta cannot take a generator.
    return draw_dirichlet(x, (len(x), 2) if per_sample else (2,), alpha, generator)[..., 0]


def draw_dirichlet(x: Tensor, shape: tuple[int, ...], alpha: float, generator: torch.Generator | None = None) -> Tensor:
    """Weights with sum 1 over the last axis, on the device of `x`."""
    check_alpha(alpha)
    concentration = torch.full(shape, alpha, dtype=at_least_float32(x).dtype, device=_device(generator))
    return torch._sample_dirichlet(concentration, generator).to(x.device)


def draw_index(x: Tensor, *, index: Tensor | None = None, generator: torch.Generator | None = None) -> Tensor:
    """A random permutation of the batch; a given `index` is checked and used as it is."""
    if index is None:
        return torch.randperm(len(x), generator=generator, device=_device(generator)).to(x.device)
    check_index(index, len(x))
    return index.to(x.device)


def draw_uniform(x: Tensor, shape: tuple[int, ...], generator: torch.Generator | None = None) -> Tensor:
    """Uniform numbers in [0, 1) on the device of `x`."""
    return torch.rand(shape, generator=generator, device=_device(generator)).to(x.device)


def _device(generator: torch.Generator | None) -> torch.device:
    return generator.device if generator is not None else torch.device("cpu")


# --- the blend -------------------------------------------------------------------------------------------------------


def blend(x: Tensor, index: Tensor, mask: Tensor) -> Tensor:
    """``mask * x + (1 - mask) * x[index]``, exact where the mask is 0 or 1, differentiable in the mask."""
    return torch.lerp(x[index], x, mask.to(x.dtype))


def as_map(lam: Tensor) -> Tensor:
    """lam, shape () or (N,), as a constant mask that broadcasts over (N, 1, H, W)."""
    return lam.reshape(-1, 1, 1, 1)


def full_mask(mask: Tensor, x: Tensor) -> Tensor:
    """A mask that broadcasts, as the (N, 1, H, W) view that callers see."""
    return mask.expand(len(x), 1, *x.shape[-2:])


def mask_spread(mask: Tensor) -> Tensor:
    """The standard deviation over the pixels of each mask (N, 1, H, W): 0 for Mixup."""
    return mask.float().flatten(1).std(dim=1, correction=0)
