"""The label of every pixel of a mixed batch, for segmentation.

A pixel of a mixed image shows the first image with the share s and its partner with 1 - s, and so does its label:

    y_mix = s * y_i + (1 - s) * y_j        at each pixel

With binary masks (CutMix, FMix) every pixel has one class; with soft ones (Mixup, AutoMix) it has two.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.blend import Resize, at_least_float32, resize_mask
from automix.core.errors import AutomixError
from automix.core.target import Mixed
from automix.core.tensor_checks import check_shape

IGNORED = 255
"""The value of pixels without a class in most segmentation datasets."""


@dataclass(frozen=True)
class PixelTarget:
    """The label of a mixed batch at each pixel: `y_a` with weight `mask`, `y_b` with weight ``1 - mask``.

    Attributes:
        y_a: Class maps of the first images, ``(N, h, w)`` int64.
        y_b: Class maps of their partners.
        mask: Weight of `y_a` at each pixel, ``(N, h, w)``, in [0, 1].
        ignore_index: Value of pixels that have no class. The share of such a pixel counts in no loss.
    """

    y_a: Tensor
    y_b: Tensor
    mask: Tensor
    ignore_index: int = IGNORED

    @classmethod
    def from_mixed(
        cls, mixed: Mixed, labels: Tensor, ignore_index: int = IGNORED, mode: Resize = "nearest"
    ) -> "PixelTarget":
        """Make the target of a mixed batch.

        Args:
            mixed: The mixed batch.
            labels: Class maps of the images that were mixed, ``(N, h, w)`` of an integer type, in the same order.
            ignore_index: Value of pixels that have no class.
            mode: How the mask is resized where class maps have another size than the images: "nearest" or "bilinear".

        Returns:
            The target.
        """
        check_shape("labels", labels, (len(mixed.x), "h", "w"))
        if labels.is_floating_point() or labels.dtype == torch.bool:
            raise AutomixError(f"labels must be class maps of an integer type, got dtype {labels.dtype}")
        mask = resize_mask(mixed.mask.to(labels.device), (labels.shape[-2], labels.shape[-1]), mode).squeeze(1)
        labels = labels.long()
        return cls(labels, labels[mixed.partners().to(labels.device)], mask, ignore_index)

    def cross_entropy(self, logits: Tensor) -> Tensor:
        """Compute the mixed cross-entropy of all pixels: the mean of ``s * CE(y_a) + (1 - s) * CE(y_b)``.

        The sum is divided by that of the weights, as torch does with an `ignore_index`. Computed in float32 at least.

        Args:
            logits: The network's output, ``(N, num_classes, h, w)``.

        Returns:
            The mean loss, a scalar; 0 where no pixel has a class.
        """
        check_shape("logits", logits, (len(self.y_a), "num_classes", *self.y_a.shape[1:]))
        logits = at_least_float32(logits)
        total, weights = logits.new_zeros(()), logits.new_zeros(())
        for y, share in self._labels():
            losses = F.cross_entropy(logits, y, ignore_index=self.ignore_index, reduction="none")
            total = total + (share.to(losses) * losses).sum()
            weights = weights + share.to(losses).sum()
        return total / weights.clamp(min=torch.finfo(logits.dtype).tiny)

    def soft(self, num_classes: int) -> Tensor:
        """Return the mixed label as one map per class.

        Args:
            num_classes: Number of classes.

        Returns:
            Shares of the classes, ``(N, num_classes, h, w)``: their sum is 1, or less at pixels without a class.
        """
        maps = at_least_float32(self.mask).new_zeros(len(self.y_a), num_classes, *self.y_a.shape[1:])
        for y, share in self._labels():
            maps.scatter_add_(1, y.masked_fill(y == self.ignore_index, 0).unsqueeze(1), share.to(maps).unsqueeze(1))
        return maps

    def _labels(self) -> list[tuple[Tensor, Tensor]]:
        """Both class maps, with the share that counts of each pixel."""
        shares = (self.mask, 1 - self.mask)
        return [(y, share * (y != self.ignore_index)) for y, share in zip((self.y_a, self.y_b), shares, strict=True)]
