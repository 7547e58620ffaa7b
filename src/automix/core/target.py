"""The label of a mixed batch, its losses, and the mixed batch itself.

Everywhere `lam` belongs to the FIRST image. The partner of sample i is sample ``index[i]``, and

    x_mix = s * x_i + (1 - s) * x_j        mean(s) ~ lam
    y_mix = lam * y_i + (1 - lam) * y_j

A mixture of K images has masks s_1, ..., s_K that sum to 1 in every pixel and weights w_1, ..., w_K that sum to 1. The
pair is K = 2 with w = (lam, 1 - lam).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.blend import Resize, at_least_float32, blend_maps, full_mask
from automix.core.errors import AutomixError
from automix.core.tensor_checks import check_classes, check_shape, check_weights
from automix.core.validation import check_range, check_smoothing


@dataclass(frozen=True)
class MixedTarget:
    """The label of a mixed batch: `y_a` with weight `lam`, `y_b` with weight ``1 - lam``.

    Labels are class indices ``(N,)`` of any integer type, soft rows ``(N, num_classes)`` of a floating type, or
    multi-label rows ``(N, num_classes)`` of bool or integers. A mixture of three or more images has further labels with
    weights of their own, and `y_b` has the weight that they and `lam` leave; `of` makes it from labels and weights.
    Co-Mixup and SuperMix, which mix rows themselves, pass them as `y_a` and `y_b` both.

    Attributes:
        y_a: Labels of the first images; class indices are kept as int64.
        y_b: Labels of their partners.
        lam: Weight of `y_a`, in [0, 1]: one number for the batch, shape ``()``, or one per sample, ``(N,)``.
        multi_label: Whether rows of a floating type are mixed multi-label rows.
        more: Labels of further images with their weights, shape ``()`` or ``(N,)``; none for a pair.
    """

    y_a: Tensor
    y_b: Tensor
    lam: Tensor
    multi_label: bool = False
    more: tuple[tuple[Tensor, Tensor], ...] = ()

    def __post_init__(self) -> None:
        if self.y_a.dtype == self.y_b.dtype == torch.int64 and not self.more:
            return
        y_a = as_int64(self.y_a)
        object.__setattr__(self, "y_b", y_a if self.y_b is self.y_a else as_int64(self.y_b))
        object.__setattr__(self, "y_a", y_a)
        object.__setattr__(self, "more", tuple((as_int64(y), weight) for y, weight in self.more))

    @classmethod
    def clean(cls, y: Tensor) -> "MixedTarget":
        """Make the target of a batch that was not mixed.

        Args:
            y: Class indices ``(N,)``, or rows ``(N, num_classes)``.

        Returns:
            The target, with ``lam`` 1.
        """
        return cls(y, y, torch.ones((), device=y.device))

    @classmethod
    def of(cls, labels: Sequence[Tensor], weights: Tensor) -> "MixedTarget":
        """Make the target of a mixture of K images.

        Args:
            labels: The labels of the K images, K >= 2, each as `y_a`.
            weights: Their weights, ``(K,)`` or ``(N, K)``, which sum to 1; values are checked on the CPU only.

        Returns:
            The target; for K = 2 that of the pair.
        """
        if len(labels) < 2:
            raise AutomixError(f"labels must be of two images or more, got {len(labels)}")
        check_shape("weights", weights, (len(labels),), (len(labels[0]), len(labels)))
        check_weights(weights)
        more = tuple(zip(labels[2:], weights.unbind(-1)[2:], strict=True))
        return cls(labels[0], labels[1], weights[..., 0], more=more)

    @property
    def labels(self) -> tuple[Tensor, ...]:
        """The labels of all images: `y_a`, `y_b` and those of `more`."""
        return (self.y_a, self.y_b, *(y for y, _ in self.more))

    @property
    def weights(self) -> Tensor:
        """The weights of `labels`, which sum to 1, ``(K,)`` or ``(N, K)``."""
        return torch.stack(torch.broadcast_tensors(*self._weights(self.lam)), dim=-1)

    def _weights(self, like: Tensor) -> list[Tensor]:
        """The weight of each label, () or (N,), in the type of `like`."""
        lam, *further = (weight.to(like) for weight in (self.lam, *(weight for _, weight in self.more)))
        rest = 1 - lam
        if further:
            rest = (rest - torch.stack(further).sum(dim=0)).clamp(min=0)
        return [lam, rest, *further]

    def loss(self, logits: Tensor) -> Tensor:
        """Compute the loss that fits the labels: `bce` for multi-label rows, `cross_entropy` for all others.

        Args:
            logits: The network's output, ``(N, num_classes)``.

        Returns:
            The mean loss, a scalar.
        """
        if self.y_a.ndim == 2 and (self.multi_label or is_multi_label(self.y_a)):
            return self.bce(logits)
        return self.cross_entropy(logits)

    def cross_entropy(
        self, logits: Tensor, label_smoothing: float = 0.0, class_weights: Tensor | None = None
    ) -> Tensor:
        """Compute the mixup cross-entropy (Eq. 2): the mean of ``lam * CE(y_a) + (1 - lam) * CE(y_b)``.

        Each sample is weighted by its own `lam` before the mean. A mixture of K images has K terms. Computed in float32
        at least.

        Args:
            logits: The network's output, ``(N, num_classes)``.
            label_smoothing: Share of each label that is spread over all classes, in [0, 1).
            class_weights: Weight of each class, ``(num_classes,)``: the sum of ``lam * w[y_a] * CE(y_a) + (1 - lam) *
                w[y_b] * CE(y_b)`` is divided by that of the weights ``lam * w[y_a] + (1 - lam) * w[y_b]``, as torch
                does for one label. All classes count the same if not given.

        Returns:
            The mean loss, a scalar.
        """
        logits = at_least_float32(logits)
        if label_smoothing != 0:
            check_smoothing(label_smoothing)
        check_classes(self.y_a, logits.shape[1])

        weights = None if class_weights is None else class_weights.to(logits)
        if weights is not None and weights.shape != logits.shape[1:]:
            raise AutomixError(f"class_weights must have shape ({logits.shape[1]},), got {tuple(weights.shape)}")

        def per_sample(y: Tensor) -> Tensor:
            y = y if y.ndim == 1 else y.to(logits.dtype)
            return F.cross_entropy(logits, y, weights, reduction="none", label_smoothing=label_smoothing)

        losses = self._mix(per_sample)
        if weights is None:
            return losses.mean()
        return losses.sum() / self._mix(lambda y: weights[y] if y.ndim == 1 else y.to(weights) @ weights).sum()

    def _mix(self, of: Callable[[Tensor], Tensor]) -> Tensor:
        """Mix a value of each label, ``(N,)``, as the labels are mixed."""
        first = of(self.y_a)
        if self.more:
            return _weighted_sum(self._weights(first), [first, *map(of, self.labels[1:])])
        if self.y_b is self.y_a:
            return first
        lam = self.lam.to(first)
        return lam * first + (1 - lam) * of(self.y_b)

    def bce(self, logits: Tensor, threshold: float | None = None, label_smoothing: float = 0.0) -> Tensor:
        """Compute the binary cross-entropy, averaged over samples and classes.

        Args:
            logits: The network's output, ``(N, num_classes)``.
            threshold: Count a class as present (1) where its mixed label exceeds this and as absent (0) elsewhere, as
                in "ResNet strikes back" (0.2): both images of a pair are then present. In [0, 1); None keeps the soft
                label.
            label_smoothing: Share of each label that is spread over all classes, in [0, 1).

        Returns:
            The mean loss, a scalar.
        """
        logits = at_least_float32(logits)
        target = self.soft(logits.shape[1], label_smoothing).to(logits.dtype)
        if threshold is not None:
            check_range("threshold", threshold, 0, 1, bounds="[)")
            target = (target > threshold).to(logits.dtype)
        return F.binary_cross_entropy_with_logits(logits, target)

    def accuracy(self, logits: Tensor) -> Tensor:
        """Compute the accuracy on the mixed batch: a prediction of `y_a` counts `lam`, one of `y_b` ``1 - lam``.

        The mean stays well below the accuracy on clean images: at lam = 0.5 no prediction counts more than half. For
        rows, a prediction counts what the row holds for its class: 1 for each class of a multi-label row.

        Args:
            logits: The network's output, ``(N, num_classes)``.

        Returns:
            The mean over the batch, a scalar.
        """
        prediction = logits.argmax(dim=1)

        def credit(y: Tensor) -> Tensor:
            return (y == prediction).float() if y.ndim == 1 else y.gather(1, prediction.unsqueeze(1)).squeeze(1).float()

        if self.more:
            credits = [credit(y) for y in self.labels]
            return _weighted_sum(self._weights(credits[0]), credits).mean()
        lam = self.lam.float()
        return (lam * credit(self.y_a) + (1 - lam) * credit(self.y_b)).mean()

    def soft(self, num_classes: int | None = None, label_smoothing: float = 0.0) -> Tensor:
        """Return the mixed label as rows.

        Args:
            num_classes: Number of classes; required for class indices.
            label_smoothing: Share of each label that is spread over all classes, in [0, 1).

        Returns:
            Rows, ``(N, num_classes)``.
        """
        check_smoothing(label_smoothing)
        if num_classes is None:
            if self.y_a.ndim == 1:
                raise AutomixError("num_classes is missing: class indices need it to become rows")
            num_classes = self.y_a.shape[1]
        check_classes(self.y_a, num_classes)
        of_each = [_rows(y, num_classes) for y in self.labels]
        rows = _weighted_sum([weight.reshape(-1, 1) for weight in self._weights(of_each[0])], of_each)
        if label_smoothing:
            rows = rows * (1 - label_smoothing) + label_smoothing / num_classes
        return rows


@dataclass(frozen=True)
class Mixed:
    """A mixed batch.

    Attributes:
        x: The mixed images, ``(N, C, H, W)``.
        target: Their label.
        mask: Share of the first image at each pixel, ``(N, 1, H, W)``, in [0, 1].
        index: Partners ``(N,)``, where the mixed images are ``mask * x + (1 - mask) * x[index]``; each image is its own
            partner where nothing is mixed. None where pixels are moved or changed otherwise, or more than two images
            are mixed.
        masks: Share of each of K > 2 images at each pixel, ``(N, K, H, W)``, where the method knows them; `mask` is the
            first one. None for pairs.
    """

    x: Tensor
    target: MixedTarget
    mask: Tensor
    index: Tensor | None = None
    masks: Tensor | None = None

    @classmethod
    def clean(cls, x: Tensor, y: Tensor) -> "Mixed":
        """Make the batch of images that are not mixed.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.

        Returns:
            The batch, with a mask of ones.
        """
        mask = full_mask(at_least_float32(x).new_ones(1, 1, 1, 1), x)
        return cls(x, MixedTarget.clean(y), mask, torch.arange(len(x), device=x.device))

    def apply(self, other: Tensor, mode: Resize = "nearest") -> Tensor:
        """Mix what lies on the pixels of the images as they were mixed: by the same mask, with the same partners.

        Depth, heat maps and soft masks, of a floating type, are blended. Class maps, of bool or integers, take each
        pixel from the image that has the larger share of it; `PixelTarget` keeps both classes with their shares.

        Args:
            other: Maps of the images that were mixed, ``(N, h, w)`` or ``(N, channels, h, w)``, in the same order.
            mode: How the mask is resized where the maps have another size than the images: "nearest" or "bilinear".

        Returns:
            The mixed maps, in the shape and type of `other`.
        """
        return blend_maps(other, self.partners().to(other.device), self.mask.to(other.device), mode)

    def partners(self) -> Tensor:
        """Return `index`, with a readable error where there is none.

        Returns:
            Partners, ``(N,)``.
        """
        if self.index is None:
            raise AutomixError(
                "this batch has no index: pixels were moved or changed, or more than two images were mixed, "
                "so that nothing else can be mixed in the same way"
            )
        return self.index


def join_mixed(first: Mixed, second: Mixed) -> Mixed:
    """Join two mixed batches into one, for a single pass of a network.

    Args:
        first: A mixed batch.
        second: Another one, with images of the same size.

    Returns:
        The samples of both, one `lam` each; partners are counted over both. Where one has more images in a mixture than
        the other, the other gets labels of weight 0.
    """
    a, b = first.target, second.target
    count = max(len(a.more), len(b.more))
    padded = [one.more + ((one.y_a, torch.zeros_like(one.lam)),) * (count - len(one.more)) for one in (a, b)]

    def join_weights(of_first: Tensor, of_second: Tensor) -> Tensor:
        return torch.cat([of_first.expand(len(first.x)), of_second.expand(len(second.x)).to(a.lam)])

    ys = [(a.y_a, b.y_a), (a.y_b, b.y_b), *((one[0], other[0]) for one, other in zip(*padded, strict=True))]
    classes = next((y.shape[1] for pair in ys for y in pair if y.ndim == 2), 0)
    y_a, y_b, *labels = (
        torch.cat(pair if pair[0].ndim == pair[1].ndim else [_rows(y, classes) for y in pair]) for pair in ys
    )
    weights = [join_weights(one[1], other[1]) for one, other in zip(*padded, strict=True)]
    more = tuple(zip(labels, weights, strict=True))
    multi_label = a.multi_label or b.multi_label or (is_multi_label(a.y_a) and y_a.is_floating_point())
    mask = torch.cat([one.mask.expand(-1, 1, *first.x.shape[-2:]) for one in (first, second)])
    index = None
    if first.index is not None and second.index is not None:
        index = torch.cat([first.index, len(first.x) + second.index])
    target = MixedTarget(y_a, y_b, join_weights(a.lam, b.lam), multi_label, more)
    return Mixed(torch.cat([first.x, second.x]), target, mask, index)


def is_multi_label(y: Tensor) -> bool:
    """Tell whether labels are multi-label rows.

    Args:
        y: Class indices ``(N,)``, or rows ``(N, num_classes)``.

    Returns:
        True for rows of bool or integers.
    """
    return y.ndim == 2 and not y.is_floating_point()


def as_int64(y: Tensor) -> Tensor:
    """Convert class indices to int64, the type that indexing and torch's losses need.

    Args:
        y: Class indices ``(N,)`` of any integer type, or rows ``(N, num_classes)``.

    Returns:
        Class indices as int64, rows as they are.
    """
    return y.long() if y.ndim == 1 else y


def _weighted_sum(weights: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
    total = weights[0] * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total = total + weight * value
    return total


def _rows(y: Tensor, num_classes: int) -> Tensor:
    return at_least_float32(F.one_hot(y, num_classes) if y.ndim == 1 else y)
