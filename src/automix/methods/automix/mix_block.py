"""The Mix Block M_phi (Eq. 4-6): which pixels of two images to keep, from their feature maps, classes and lam.

    P   = softmax( (W_P z_i)^T (W_P z_j) / sqrt(d) )                                  Eq. 6, each row sums to 1
    e   = w_L (z_j - z_i) + w_[y_j] z_j - w_[y_i] z_i                                 ours
    s_j = U( sigmoid( G (P W_Z z_j + e) + b ) )                                       Eq. 5, with G and b ours
    x_mix = s_i * x_i + (1 - s_i) * x_j,   s_i = 1 - s_j                              Eq. 4, `blend` in mixing.py

with z_i = concat(z_i, lam) and z_j = concat(z_j, 1 - lam), and U the upsampling to the size of the image.

Eq. 5 of the paper takes the value from z_i; then P, whose rows are the positions of z_i and whose columns are those of
z_j, would have to be transposed. As the reference implementation does, we take the value from z_j: a row of P asks "how
much does this place want x_j", and the answer, s_j, stands at the positions of the image it is about.

Five things are ours, each measured in docs/results/mix-block.md; ``paper=True`` leaves them out:

- `normalize`: each image's map has mean 0 and variance 1 (concat(z, lam) after that), and W_P starts with queries of
  unit variance. Else the attention starts uniform, hardly learns, and the mask stays one number for the whole image.
- `local`: w_L compares the two images at the same place. Through P alone the mask knows which places of x_j look like
  x_i here, but not whether x_j has its object here.
- `classes`: w_c, one vector for each class c, tells where an image shows what makes it a c. Without it the block has to
  find "an object" of whatever kind; in training the labels are there, and with them it knows which.
- `smooth`: G averages each cell with its neighbors (weights 1, 2, 1 both ways), so that a mask keeps parts of an
  object and does not shred it.
- `exact_mean`: b, one number for each mask, is solved for, such that the mean of s_i is lam: the label then is true. A
  learned mean drifts away from lam, or ignores it.

A symmetry that does NOT hold: swapping the pair and lam for 1 - lam does not give 1 - s_i. The swapped block normalizes
the rows of P^T instead of those of P, and reads its value from the other image. What holds exactly, and what mixup
needs, is s_i + s_j = 1 within one call.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import as_map, at_least_float32
from automix.core.draws import draw_uniform
from automix.core.validation import as_lam, check_choice, check_classes, check_whole

UPSAMPLING = ("bilinear", "nearest")


class MixBlock(nn.Module):
    """Predicts the mask s_i of a pair from maps of `channels` channels.

    `classes` is how many classes there are, for a block that goes by the labels too; without it, labels are not looked
    at. `reduction` divides the channels of the embedding W_P; `upsampling` is bilinear or nearest. `normalize`,
    `local`, `smooth` and `exact_mean` are explained above; they are on, unless ``paper=True``, which is the block of
    the paper, nearest upsampling and the reference implementation's initialization.

    For the ablations (the paper's table "modules in MixBlock"): ``lam_embedding=False`` leaves lam out of the features,
    and ``attention=False`` replaces the whole block by random grids, in which a share lam of the map's cells, drawn at
    random, belongs to x_i.
    """

    def __init__(
        self,
        channels: int,
        *,
        paper: bool = False,
        classes: int | None = None,
        reduction: int = 2,
        upsampling: str | None = None,
        normalize: bool | None = None,
        local: bool | None = None,
        smooth: bool | None = None,
        exact_mean: bool | None = None,
        lam_embedding: bool = True,
        attention: bool = True,
    ) -> None:
        super().__init__()
        if reduction < 1 or channels // reduction < 1:
            raise ValueError(f"reduction={reduction}: accepted are whole numbers from 1 to channels={channels}")
        if upsampling is None:
            upsampling = "bilinear" if attention and not paper else "nearest"
        check_choice("upsampling", upsampling, UPSAMPLING)
        check_whole("classes", classes, 1)
        self.channels = channels
        self.classes = classes
        self.reduction = reduction
        self.upsampling = upsampling
        self.normalize, self.local, self.smooth, self.exact_mean = (
            not paper if given is None else given for given in (normalize, local, smooth, exact_mean)
        )
        self.lam_embedding = lam_embedding
        self.attention = attention
        if attention:
            inputs = channels + lam_embedding
            self.w_p = nn.Conv2d(inputs, channels // reduction, 1)
            self.w_z = nn.Conv2d(inputs, 1, 1)
            if self.local:
                self.w_l = nn.Conv2d(channels, 1, 1, bias=False)
                nn.init.normal_(self.w_l.weight, std=0.1 * channels**-0.5)
            if self.normalize:
                nn.init.normal_(self.w_p.weight, std=inputs**-0.5)
            elif paper:
                for name, parameter in self.named_parameters():
                    nn.init.normal_(parameter, std=0.01) if name.endswith("weight") else nn.init.zeros_(parameter)
            if classes is not None:
                self.w_c = nn.Parameter(torch.empty(classes, channels).normal_(std=0.1 * channels**-0.5))

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
        """The mask s_i (N, 1, *size) of images with maps `z_i`, `z_j` (N, C, h, w), `lam` of shape () or (N,).

        `labels` are y_i and y_j, class indices (N,) or rows (N, classes), for a block with `classes`. Computed in
        float32 at least, also under autocast. `generator` is for the random grids only.
        """
        if z_i.shape != z_j.shape or z_i.ndim != 4 or z_i.shape[1] != self.channels:
            raise ValueError(
                f"z_i has shape {tuple(z_i.shape)}, z_j {tuple(z_j.shape)}: accepted are two (N, {self.channels}, h, w)"
            )
        lam = as_lam(lam, len(z_i)).to(z_i.device)
        if not self.attention:
            s_i = _random_grid(z_i, lam, generator)
        else:
            if self.classes is not None and labels is None:
                raise ValueError(f"labels are missing: accepted are those of the pairs, of {self.classes} classes")
            with torch.autocast(z_i.device.type, enabled=False):
                s_i = self._attend(z_i, z_j, lam, labels)
        if self.upsampling == "nearest":
            return F.interpolate(s_i, size=size, mode="nearest")
        return F.interpolate(s_i, size=size, mode="bilinear", align_corners=False)

    def _attend(self, z_i: Tensor, z_j: Tensor, lam: Tensor, labels: tuple[Tensor, Tensor] | None) -> Tensor:
        z_i, z_j = z_i.to(self.w_p.weight), z_j.to(self.w_p.weight)
        if self.normalize:
            z_i, z_j = F.group_norm(z_i, 1), F.group_norm(z_j, 1)
        here = [self.w_l(z_j - z_i)] if self.local else []
        if self.classes is not None and labels is not None:
            here.append(self._evidence(z_j, labels[1]) - self._evidence(z_i, labels[0]))
        if self.lam_embedding:
            z_i, z_j = _concat(z_i, lam), _concat(z_j, 1 - lam)
        query, key, value = (at_least_float32(z.flatten(2)) for z in (self.w_p(z_i), self.w_p(z_j), self.w_z(z_j)))
        similarity = query.transpose(1, 2) @ key / math.sqrt(query.shape[1])
        p = similarity.softmax(dim=-1)  # (N, places of z_i, places of z_j), Eq. 6
        logit = (p @ value.transpose(1, 2)).reshape(len(z_i), 1, *z_i.shape[-2:])
        logit = sum((at_least_float32(term) for term in here), logit)
        if self.smooth:
            logit = _average_neighbors(logit)
        if self.exact_mean:
            logit = logit + as_map(bias_for_mean(logit.flatten(1), 1 - lam))
        return 1 - torch.sigmoid(logit)  # Eq. 5

    def _evidence(self, z: Tensor, y: Tensor) -> Tensor:
        """w_y z (N, 1, h, w); for rows the mean over their classes."""
        check_classes(y, self.w_c.shape[0])
        if y.ndim == 1:
            w = self.w_c[y]
        else:
            rows = y.to(self.w_c)
            w = rows @ self.w_c / rows.sum(dim=1, keepdim=True).clamp(min=1)
        return torch.einsum("nc,nchw->nhw", w, z).unsqueeze(1)


def bias_for_mean(logit: Tensor, mean: Tensor) -> Tensor:
    """The numbers b, (N, 1), with mean(sigmoid(logit + b)) = `mean` in each row of `logit` (N, places).

    Newton's steps, kept inside a bracket that halves, find b without a graph. One more step from there, with a graph,
    moves nothing but carries the derivative of the implicit function. `mean` is held in [0.01, 0.99]: at 0 and 1 there
    is no such b.
    """
    mean = mean.to(logit).reshape(-1, 1).clamp(0.01, 0.99)
    with torch.no_grad():
        low, high = (mean.logit() - bound(logit, dim=1, keepdim=True) for bound in (torch.amax, torch.amin))
        b = (low + high) / 2
        for _ in range(12):  # enough for float32, from nearly flat to nearly binary masks
            gap, slope = _gap_and_slope(logit, b, mean)
            low, high = torch.where(gap < 0, b, low), torch.where(gap < 0, high, b)
            newton = b - gap / slope
            b = torch.where((newton >= low) & (newton <= high), newton, (low + high) / 2)
        slope = _gap_and_slope(logit, b, mean)[1]
    return b - (torch.sigmoid(logit + b).mean(dim=1, keepdim=True) - mean) / slope


def _gap_and_slope(logit: Tensor, b: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(logit + b)
    return s.mean(dim=1, keepdim=True) - mean, (s * (1 - s)).mean(dim=1, keepdim=True).clamp(min=1e-6)


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
