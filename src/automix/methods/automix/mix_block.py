"""The Mix Block M_phi (Eq. 4-6): which pixels of two images to keep, from their feature maps, classes and lam.

    P   = softmax( (W_P z_i)^T (W_P z_j) / sqrt(d) )                                  Eq. 6, each row sums to 1
    e   = w_L (z_j - z_i) + w_[y_j] z_j - w_[y_i] z_i                                 ours
    s_j = U( sigmoid( G (P W_Z z_j + e) + b ) )                                       Eq. 5, with G and b ours
    x_mix = s_i * x_i + (1 - s_i) * x_j,   s_i = 1 - s_j                              Eq. 4, `blend` in core/blend.py

with z_i = concat(z_i, lam) and z_j = concat(z_j, 1 - lam), and U the upsampling to the size of the image.

Eq. 5 of the paper takes the value from z_i. P would then have to be transposed, because its rows are the positions of
z_i and its columns those of z_j. As in the reference implementation, the value comes from z_j here: s_j at a position
of x_i says how much of x_j to show there.

Five additions are ours. docs/results has their measurements, and the preset "paper" has none of them:

- `normalize`: the map of each image gets mean 0 and variance 1 before lam is appended, and W_P starts with queries of
  unit variance. Without it the attention starts uniform, hardly learns, and the mask stays constant over the image.
- `local`: w_L compares the two images at the same position. P alone tells which positions of x_j look like x_i here,
  but not whether x_j has its object here.
- class vectors: w_c, one vector for each class c, finds where an image shows its class. Without labels the block has
  to find an object of any kind.
- `smooth`: G averages each cell with its neighbors (weights 1, 2, 1 in both directions), so that a mask keeps connected
  parts of an object.
- `exact_mean`: b, one number for each mask, is solved for, so that the mean of s_i is lam and the label is right. A
  learned mean drifts away from lam.

Four options make it the block of SAMix (Li et al., 2021), the successor by the same authors, in the preset "samix":

- `lam_curve`: lam scales the maps, z_i (1 + g(lam)) and z_j (2 - g(lam)), instead of being a channel (`scale_by_lam`).
- `pair_attention`: query and key come from both maps, W_Q [z_i; z_j] and W_K [z_i; z_j].
- `hidden_value`: the value has a hidden layer with BatchNorm and ReLU.
- upsampling "bilinear-logits": U before the sigmoid.

One symmetry does NOT hold: swapping the pair and replacing lam by 1 - lam does not give 1 - s_i, because the swapped
block normalizes the rows of P^T and takes its value from the other image. s_i + s_j = 1 holds exactly within one call.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import as_map, at_least_float32
from automix.core.draws import draw_uniform
from automix.core.errors import AutomixError
from automix.core.tensor_checks import as_lam, check_classes
from automix.core.validation import check_choice, check_range, check_whole
from automix.methods.automix.exact_mean import bias_for_mean
from automix.methods.automix.masks import ENLARGE, partition

UPSAMPLING = ("bilinear", "nearest", "bilinear-logits")
INITS = ("torch", "reference")


class MixBlock(nn.Module):
    """Predict the mask s_i of a pair of images from their feature maps.

    The defaults are those of the preset "tuned".

    Args:
        channels: Channels of the feature maps.
        num_classes: Number of classes, for class vectors; None for a block that ignores the labels.
        reduction: Divides the channels of the embedding W_P.
        upsampling: How masks grow to the size of the images, "bilinear" or "nearest"; "bilinear-logits": bilinear,
            before the sigmoid.
        normalize: Normalize the map of each image.
        local: Compare the two images at the same position.
        smooth: Average each cell of the mask with its neighbors.
        exact_mean: Solve for the mean of the mask, which then is `lam`.
        lam_embedding: Append `lam` to the features.
        attention: False replaces the block by random grids, in which a share `lam` of the cells, drawn at random,
            belongs to x_i.
        init: "torch", or "reference": weights with std 0.01 and bias 0, as in the reference implementation.
        pair_attention: Take query and key from both maps, each with weights of its own.
        hidden_value: Take the value from a hidden layer with BatchNorm and ReLU.
        lam_curve: Scale the maps by `lam` along a curve with this parameter, >= 0; see `scale_by_lam`. None does not.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int | None = None,
        *,
        reduction: int = 2,
        upsampling: str = "bilinear",
        normalize: bool = True,
        local: bool = True,
        smooth: bool = True,
        exact_mean: bool = True,
        lam_embedding: bool = True,
        attention: bool = True,
        init: str = "torch",
        pair_attention: bool = False,
        hidden_value: bool = False,
        lam_curve: float | None = None,
    ) -> None:
        super().__init__()
        if reduction < 1 or channels // reduction < 1:
            raise AutomixError(f"reduction must be in [1, {channels}], the number of channels; got {reduction}")
        check_choice("upsampling", upsampling, UPSAMPLING)
        check_choice("init", init, INITS)
        check_whole("num_classes", num_classes, 1)
        if lam_curve is not None:
            check_range("lam_curve", lam_curve, 0)
        if exact_mean and upsampling == "bilinear-logits":
            raise AutomixError("upsampling must be bilinear or nearest with exact_mean=True, got 'bilinear-logits'")
        self.channels = channels
        self.num_classes = num_classes
        self.reduction = reduction
        self.upsampling = upsampling
        self.normalize = normalize
        self.local = local
        self.smooth = smooth
        self.exact_mean = exact_mean
        self.lam_embedding = lam_embedding
        self.attention = attention
        self.init = init
        self.pair_attention = pair_attention
        self.hidden_value = hidden_value
        self.lam_curve = lam_curve
        if attention:
            self._create_parameters()

    def _create_parameters(self) -> None:
        channels, inputs = self.channels, self.channels + self.lam_embedding
        embedded = channels // self.reduction
        if self.pair_attention:
            self.w_q, self.w_k = (nn.Conv2d(2 * inputs, embedded, 1) for _ in range(2))
            embeddings = [self.w_q, self.w_k]
        else:
            self.w_p = nn.Conv2d(inputs, embedded, 1)
            embeddings = [self.w_p]
        self.w_z: nn.Module
        if self.hidden_value:
            first, last = nn.Conv2d(inputs, embedded, 1), nn.Conv2d(embedded, 1, 1)
            self.w_z = nn.Sequential(first, nn.BatchNorm2d(embedded), nn.ReLU(), last)
        else:
            self.w_z = nn.Conv2d(inputs, 1, 1)
        if self.local:
            self.w_l = nn.Conv2d(channels, 1, 1, bias=False)
            nn.init.normal_(self.w_l.weight, std=0.1 * channels**-0.5)
        if self.normalize:
            for convolution in embeddings:
                nn.init.normal_(convolution.weight, std=convolution.in_channels**-0.5)
        elif self.init == "reference":
            for module in self.modules():
                if isinstance(module, nn.Conv2d):
                    nn.init.normal_(module.weight, std=0.01)
                    if module.bias is not None:
                        nn.init.zeros_(module.bias)
        if self.num_classes is not None:
            self.w_c = nn.Parameter(torch.empty(self.num_classes, channels).normal_(std=0.1 * channels**-0.5))

    @property
    def value_weight(self) -> Tensor:
        """The weights that give the value, which every step trains."""
        last: Any = self.w_z[-1] if isinstance(self.w_z, nn.Sequential) else self.w_z
        return last.weight

    def forward(
        self,
        z_i: Tensor,
        z_j: Tensor,
        lam: Tensor,
        size: tuple[int, int],
        *,
        labels: tuple[Tensor, Tensor] | None = None,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        """Compute the mask s_i, in float32 at least, also under autocast.

        Args:
            z_i: Feature maps of the first images, ``(N, C, h, w)``.
            z_j: Feature maps of their partners.
            lam: Share of the first image, ``()`` or ``(N,)``.
            size: Height and width of the images.
            labels: y_i and y_j, class indices ``(N,)`` or rows ``(N, num_classes)``, for a block with class vectors.
            generator: Source of randomness, for random grids only.

        Returns:
            The masks, ``(N, 1, *size)``, with values in [0, 1].
        """
        if z_i.shape != z_j.shape or z_i.ndim != 4 or z_i.shape[1] != self.channels:
            raise AutomixError(
                f"z_i and z_j must both be (N, {self.channels}, h, w), got {tuple(z_i.shape)} and {tuple(z_j.shape)}"
            )
        lam = as_lam(lam, len(z_i)).to(z_i.device)
        if not self.attention:
            s_i = _random_grid(z_i, lam, generator)
        else:
            if self.num_classes is not None and labels is None:
                raise AutomixError(f"labels are missing: this Mix Block has vectors for {self.num_classes} classes")
            with torch.autocast(z_i.device.type, enabled=False):
                logit = self._attend(z_i, z_j, lam, labels)
            if self.upsampling == "bilinear-logits":
                return 1 - torch.sigmoid(F.interpolate(logit, size=size, mode="bilinear", align_corners=False))
            s_i = 1 - torch.sigmoid(logit)  # Eq. 5
        return F.interpolate(s_i, size=size, **ENLARGE[self.upsampling])

    def masks(
        self, z: Tensor, members: Tensor, weights: Tensor, size: tuple[int, int], labels: Tensor | None = None
    ) -> Tensor:
        """Compute the masks of mixtures of K images (masks.py), in float32 at least, also under autocast.

        Args:
            z: Feature maps of the batch, ``(N, C, h, w)``.
            members: Positions of the images of each mixture, ``(K, N)``.
            weights: Weights of the images, ``(K,)`` or ``(N, K)``.
            size: Height and width of the images.
            labels: Labels of the batch, for a block with class vectors.

        Returns:
            The masks, ``(N, K, *size)``, which sum to 1 over K.
        """
        weights = weights.expand(members.shape[1], -1)
        lam = weights[:, :1] / (weights[:, :1] + weights[:, 1:]).clamp(min=1e-6)  # (N, K - 1)
        first, others = members[:1].expand(len(members) - 1, -1).flatten(), members[1:].flatten()
        pair_labels = None if labels is None else (labels[first], labels[others])
        with torch.autocast(z.device.type, enabled=False):
            logit = self.pair_logit(z[first], z[others], lam.T.flatten(), pair_labels)
            logit = logit.reshape(len(members) - 1, -1, *logit.shape[-2:]).transpose(0, 1)
            logit = F.pad(logit, (0, 0, 0, 0, 1, 0))  # of the first image: 0
            return partition(logit, weights, size, self.upsampling, exact_mean=self.exact_mean)

    def _attend(self, z_i: Tensor, z_j: Tensor, lam: Tensor, labels: tuple[Tensor, Tensor] | None) -> Tensor:
        """The logits of s_j, (N, 1, h, w)."""
        logit = self.pair_logit(z_i, z_j, lam, labels)
        if self.exact_mean:
            logit = logit + bias_for_mean(logit.flatten(1), 1 - lam)[..., None, None]
        return logit

    def pair_logit(self, z_i: Tensor, z_j: Tensor, lam: Tensor, labels: tuple[Tensor, Tensor] | None) -> Tensor:
        """Compute the logits of s_j, before their mean is solved for.

        Args:
            z_i: Feature maps of the first images, ``(N, C, h, w)``.
            z_j: Feature maps of their partners.
            lam: Share of the first image, ``()`` or ``(N,)``.
            labels: y_i and y_j, as of `forward`.

        Returns:
            Logits, ``(N, 1, h, w)``.
        """
        weight = self.value_weight
        z_i, z_j = z_i.to(weight), z_j.to(weight)
        if self.normalize:
            z_i, z_j = F.group_norm(z_i, 1), F.group_norm(z_j, 1)
        local_terms = [self.w_l(z_j - z_i)] if self.local else []
        if self.num_classes is not None and labels is not None:
            check_classes(torch.cat(labels), self.num_classes)
            local_terms.append(self._evidence(z_j, labels[1]) - self._evidence(z_i, labels[0]))
        if self.lam_curve is not None:
            z_i, z_j = scale_by_lam(z_i, z_j, lam, self.lam_curve)
        if self.lam_embedding:
            z_i, z_j = _concat(z_i, lam), _concat(z_j, 1 - lam)
        if self.pair_attention:
            pair = torch.cat([z_i, z_j], dim=1)
            query, key = self.w_q(pair), self.w_k(pair)
        else:
            query, key = self.w_p(z_i), self.w_p(z_j)
        dtype = torch.promote_types(weight.dtype, torch.float32)
        query, key, value = query.flatten(2).to(dtype), key.flatten(2).to(dtype), self.w_z(z_j).flatten(2).to(dtype)
        similarity = query.transpose(1, 2) @ key / math.sqrt(query.shape[1])
        p = similarity.softmax(dim=-1)  # (N, positions of z_i, positions of z_j), Eq. 6
        logit = (p @ value.transpose(1, 2)).reshape(len(z_i), 1, *z_i.shape[-2:])
        for term in local_terms:
            logit = logit + term.to(dtype)
        return _average_neighbors(logit) if self.smooth else logit

    def _evidence(self, z: Tensor, y: Tensor) -> Tensor:
        """Compute w_y z, (N, 1, h, w); for rows the mean over their classes."""
        if y.ndim == 1:
            w = self.w_c[y]
        else:
            rows = y.to(self.w_c)
            w = rows @ self.w_c / rows.sum(dim=1, keepdim=True).clamp(min=1)
        return torch.einsum("nc,nchw->nhw", w, z).unsqueeze(1)


def scale_by_lam(z_i: Tensor, z_j: Tensor, lam: Tensor, k: float) -> tuple[Tensor, Tensor]:
    """Scale two maps by lam, as SAMix does: z_i (1 + g) and z_j (2 - g), with

        g(lam) = (4/3 lam^3 - 2 lam^2 + (k + 1) lam) / (k + 1/3)

    g rises from 0 at lam = 0 through 0.5 at 0.5 to 1 at 1. It is flat around 0.5 for a small k, and nearly lam for a
    large one.

    Args:
        z_i: Feature maps of the first images, ``(N, C, h, w)``.
        z_j: Feature maps of their partners.
        lam: Share of the first image, ``()`` or ``(N,)``.
        k: Parameter of the curve, >= 0; its authors use 0.25 on CIFAR and 1 on CUB.

    Returns:
        Both maps, scaled.
    """
    g = as_map((4 / 3 * lam**3 - 2 * lam**2 + (k + 1) * lam) / (k + 1 / 3)).to(z_i)
    return z_i * (1 + g), z_j * (2 - g)


def _average_neighbors(cells: Tensor) -> Tensor:
    """Each cell of (N, 1, h, w) averaged with its neighbors, weights 1, 2, 1 both ways; edges are repeated."""
    pairs = F.avg_pool2d(F.pad(cells, (1, 1, 1, 1), mode="replicate"), kernel_size=2, stride=1)
    return F.avg_pool2d(pairs, kernel_size=2, stride=1)


def _concat(z: Tensor, lam: Tensor) -> Tensor:
    """z_lam = concat(z, lam): one more channel, constant over the map."""
    return torch.cat([z, as_map(lam).to(z.dtype).expand(len(z), 1, *z.shape[-2:])], dim=1)


def _random_grid(z: Tensor, lam: Tensor, generator: torch.Generator | None) -> Tensor:
    """A share lam of the cells, to the nearest whole cell, is 1."""
    cells = z.shape[-2] * z.shape[-1]
    rank = draw_uniform(z, (len(z), cells), generator).argsort(dim=1).argsort(dim=1)
    kept = rank < (lam.reshape(-1, 1) * cells).round()
    return kept.to(at_least_float32(z).dtype).reshape(len(z), 1, *z.shape[-2:])
