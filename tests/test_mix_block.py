"""The Mix Block against numbers worked out by hand and a slow version written from the equations."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import convolve1d
from scipy.optimize import brentq
from scipy.special import expit
from torch import Tensor, nn

from automix import MixBlock
from automix.methods.automix.exact_mean import bias_for_mean
from automix.methods.automix.settings import AutoMixSettings

HALF = torch.tensor(0.5)
LABELS: dict[str | None, Any] = {  # what the block gets, y_i and y_j, and the same as rows of sum 1
    None: (None, None),
    "index": (
        (torch.tensor([0, 3, 4]), torch.tensor([4, 3, 1])),
        (torch.eye(5, dtype=torch.float64)[[0, 3, 4]], torch.eye(5, dtype=torch.float64)[[4, 3, 1]]),
    ),
    "rows": ((torch.full((3, 5), 0.2), torch.eye(5)[[4, 3, 1]]),) * 2,
    "multi-label": (
        (torch.tensor([[1, 1, 0, 0, 0]] * 3), torch.tensor([[0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 0, 1, 1, 1]])),
        (
            torch.tensor([[0.5, 0.5, 0, 0, 0]] * 3, dtype=torch.float64),
            torch.tensor([[0, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0.25, 0, 0.25, 0.25, 0.25]], dtype=torch.float64),
        ),
    ),
}

PAPER = AutoMixSettings.from_preset("paper").block_options()


def block(channels: int = 4, **options: Any) -> MixBlock:
    return MixBlock(channels, **options)


def value_layer(made: MixBlock) -> nn.Conv2d:
    assert isinstance(made.w_z, nn.Conv2d)
    return made.w_z


def by_hand(lam_embedding: bool = False) -> MixBlock:
    """One channel, W_P = 1, W_Z = 4 ln 3, no biases, nothing normalized."""
    made = MixBlock(1, **{**PAPER, "reduction": 1, "lam_embedding": lam_embedding})
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
        made.w_p.weight[0, 0] = 1
        value_layer(made).weight[0, 0] = 4 * math.log(3)
    return made


def test_a_2x2_map_by_hand() -> None:
    """Similarity row of a place with z_i = ln a is (ln a, 0, 0, 0), hence P = (a, 1, 1, 1) / (a + 3).

    The value is (4 ln 3, 0, 0, 0): s_j = sigmoid(4 ln 3 * a / (a + 3)) = 3^n / (1 + 3^n) with n = 4 a / (a + 3).
    """
    z_i = torch.tensor([3.0, 1.0, 9.0, 1.0]).log().reshape(1, 1, 2, 2)
    z_j = torch.tensor([1.0, 0.0, 0.0, 0.0]).reshape(1, 1, 2, 2)
    s_i = by_hand()(z_i, z_j, HALF, (2, 2))
    expected = torch.tensor([1 / 10, 1 / 4, 1 / 28, 1 / 4]).reshape(1, 1, 2, 2)  # n = 2, 1, 3, 1
    torch.testing.assert_close(s_i, expected)


def test_lam_embedding_by_hand() -> None:
    """With z = 0 the value is u (1 - lam) everywhere: s_i = 1 - sigmoid(ln 3 * (1 - lam) * 2) = 1 / (1 + 9^(1-lam))."""
    made = by_hand(lam_embedding=True)
    with torch.no_grad():
        value_layer(made).weight[0, 1] = 2 * math.log(3)
    z = torch.zeros(3, 1, 2, 2)
    s_i = made(z, z, torch.tensor([0.0, 0.5, 1.0]), (2, 2))
    torch.testing.assert_close(s_i[:, 0, 0, 0], torch.tensor([1 / 10, 1 / 4, 1 / 2]))


def slow_mask(
    made: MixBlock, z_i: Tensor, z_j: Tensor, lam: float, labels: tuple[Tensor, Tensor] | None = None
) -> Tensor:
    """Eq. 5 and 6 place by place for one pair, maps (C, h, w); `labels` are two rows over the classes, of sum 1."""

    def prepare(z: Tensor, share: float) -> list[Tensor]:
        if made.normalize:
            z = (z - z.mean()) / (z.var(unbiased=False) + 1e-5).sqrt()
        places = [z[:, row, column] for row in range(z.shape[1]) for column in range(z.shape[2])]
        return [
            torch.cat([place, torch.tensor([share], dtype=z.dtype)]) if made.lam_embedding else place
            for place in places
        ]

    w_p, b_p = made.w_p.weight[:, :, 0, 0], made.w_p.bias
    w_z, b_z = value_layer(made).weight[0, :, 0, 0], value_layer(made).bias
    assert b_p is not None
    assert b_z is not None
    first, second = prepare(z_i, lam), prepare(z_j, 1 - lam)
    logits = []
    for place, same_place in zip(first, second, strict=True):
        query = w_p @ place + b_p
        weights = [torch.exp(query @ (w_p @ other + b_p) / math.sqrt(len(query))) for other in second]
        answer = sum(w * (w_z @ other + b_z[0]) for w, other in zip(weights, second, strict=True)) / sum(weights)
        if made.local:
            w_l = made.w_l.weight[0, :, 0, 0]
            answer = answer + w_l @ (same_place - place)[: len(w_l)]
        if labels is not None:
            w_i, w_j = (sum(share * w for share, w in zip(row, made.w_c, strict=True)) for row in labels)
            answer = answer + w_j @ same_place[: made.channels] - w_i @ place[: made.channels]
        logits.append(torch.as_tensor(answer).item())
    if made.smooth:
        grid = np.array(logits).reshape(z_i.shape[1:])
        for axis in (0, 1):
            grid = convolve1d(grid, [0.25, 0.5, 0.25], axis=axis, mode="nearest")
        logits = grid.flatten().tolist()
    b = 0.0
    if made.exact_mean:
        b = brentq(lambda b: sum(expit(value + b) for value in logits) / len(logits) - (1 - lam), -50, 50, xtol=1e-14)
    return torch.tensor([1 - expit(value + b) for value in logits], dtype=z_i.dtype).reshape(z_i.shape[1:])


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize("smooth", [True, False])
@pytest.mark.parametrize("exact_mean", [True, False])
@pytest.mark.parametrize("lam_embedding", [True, False])
@pytest.mark.parametrize("kind", [None, "index", "rows", "multi-label"])
def test_against_a_slow_version(
    normalize: bool, local: bool, smooth: bool, exact_mean: bool, lam_embedding: bool, kind: str | None
) -> None:
    made = block(
        6,
        num_classes=None if kind is None else 5,
        normalize=normalize,
        local=local,
        smooth=smooth,
        exact_mean=exact_mean,
        lam_embedding=lam_embedding,
    ).double()
    z_i, z_j = torch.randn(2, 3, 6, 3, 4, dtype=torch.float64)
    lam = torch.tensor([0.1, 0.5, 0.8], dtype=torch.float64)
    labels, rows = LABELS[kind]
    masks = made(z_i, z_j, lam, (3, 4), labels=labels)
    for n in range(3):
        pair = None if rows is None else (rows[0][n], rows[1][n])
        torch.testing.assert_close(masks[n, 0], slow_mask(made, z_i[n], z_j[n], lam[n].item(), pair))


def test_a_block_that_goes_by_the_labels_keeps_what_belongs_to_them() -> None:
    """Class 0 is the first channel, class 1 the second: each image is kept where its own class shows."""
    made = block(2, num_classes=2, normalize=False, smooth=False, exact_mean=False)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
        made.w_c.copy_(torch.eye(2))
    z = torch.tensor([[[9.0, 0, 0, 0], [0, 0, 0, 9.0]]]).reshape(1, 2, 2, 2)  # class 0 above left, 1 below right
    zero, one = torch.tensor([0]), torch.tensor([1])
    mask = made(z, z, HALF, (2, 2), labels=(zero, one)).flatten()
    torch.testing.assert_close(mask, torch.sigmoid(torch.tensor([9.0, 0, 0, -9.0])))
    torch.testing.assert_close(made(z, z, HALF, (2, 2), labels=(one, zero)).flatten(), mask.flip(0))
    assert made(z, z, HALF, (2, 2), labels=(one, one)).unique().tolist() == [0.5]


def test_lam_embedding_makes_the_mask_depend_on_lam_and_off_does_not() -> None:
    z_i, z_j = torch.randn(2, 2, 4, 3, 3)
    low, high = torch.tensor(0.2), torch.tensor(0.8)
    for embedding in (True, False):
        made = block(lam_embedding=embedding, exact_mean=False)
        same = torch.equal(made(z_i, z_j, low, (3, 3)), made(z_i, z_j, high, (3, 3)))
        assert same != embedding


def test_swapping_the_pair_is_not_one_minus_the_mask() -> None:
    """The statement in the module's docstring: rows of P are normalized, and the value is the other image's."""
    made, (z_i, z_j) = block(smooth=False), torch.randn(2, 2, 4, 3, 3)
    forward = made(z_i, z_j, torch.tensor(0.3), (3, 3))
    swapped = made(z_j, z_i, torch.tensor(0.7), (3, 3))
    assert (forward - (1 - swapped)).abs().max() > 0.01


@pytest.mark.parametrize("upsampling", ["nearest", "bilinear"])
@pytest.mark.parametrize("size", [(8, 8), (7, 13), (3, 3), (2, 2)])
def test_any_image_size(upsampling: str, size: tuple[int, int]) -> None:
    made, (z_i, z_j) = block(upsampling=upsampling), torch.randn(2, 2, 4, 3, 3)
    mask = made(z_i, z_j, HALF, size)
    assert mask.shape == (2, 1, *size)
    assert bool(((mask >= 0) & (mask <= 1)).all())
    small = made(z_i, z_j, HALF, (3, 3))
    assert mask.min() >= small.min() - 1e-6
    assert mask.max() <= small.max() + 1e-6


def test_nearest_upsampling_repeats_each_cell() -> None:
    made, (z_i, z_j) = block(upsampling="nearest"), torch.randn(2, 1, 4, 2, 2)
    small, large = made(z_i, z_j, HALF, (2, 2)), made(z_i, z_j, HALF, (6, 4))
    torch.testing.assert_close(large, small.repeat_interleave(3, dim=2).repeat_interleave(2, dim=3))


def test_extreme_features_do_not_overflow() -> None:
    made, (z_i, z_j) = block(normalize=False), torch.randn(2, 2, 4, 3, 3) * 1e4
    z_i.requires_grad_()
    mask = made(z_i, z_j, HALF, (3, 3))
    mask.sum().backward()
    assert bool(mask.isfinite().all())
    assert z_i.grad is not None
    assert bool(z_i.grad.isfinite().all())


def test_autocast_computes_the_mask_in_float32() -> None:
    made, (z_i, z_j) = block(), torch.randn(2, 2, 4, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        mask = made(z_i, z_j, HALF, (3, 3))
    assert mask.dtype == torch.float32
    assert torch.equal(mask, made(z_i, z_j, HALF, (3, 3)))


@pytest.mark.parametrize("lam", [0.0, 0.25, 0.6, 1.0])
def test_random_grids_keep_a_share_lam_of_the_cells(lam: float) -> None:
    made = block(attention=False)
    assert not list(made.parameters())
    z = torch.randn(5, 4, 4, 5)
    mask = made(z, z, torch.tensor(lam), (4, 5), generator=torch.Generator().manual_seed(0))
    assert mask.sum(dim=(1, 2, 3)).tolist() == [round(lam * 20)] * 5
    again = made(z, z, torch.tensor(lam), (4, 5), generator=torch.Generator().manual_seed(0))
    assert torch.equal(mask, again)
    assert lam in (0.0, 1.0) or not torch.equal(mask[0], mask[1])


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 10.0, 100.0])
def test_the_mean_is_lam_for_flat_and_for_nearly_binary_masks(scale: float) -> None:
    logit = scale * torch.randn(200, 36)
    lam = torch.linspace(0.01, 0.99, 200)
    masks = torch.sigmoid(logit + bias_for_mean(logit, lam))
    torch.testing.assert_close(masks.mean(dim=1), lam, rtol=0, atol=2e-5)


def test_the_gradient_through_the_solved_bias_is_exact_also_at_the_ends() -> None:
    logit = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
    lam = torch.tensor([0.01, 0.3, 0.5, 0.97])
    assert torch.autograd.gradcheck(lambda u: torch.sigmoid(u + bias_for_mean(u, lam)), logit)
    for end in (0.0, 1.0):
        (gradient,) = torch.autograd.grad(bias_for_mean(logit, torch.full((4,), end)).sum(), logit)
        assert bool(gradient.isfinite().all())


@pytest.mark.parametrize("upsampling", ["nearest", "bilinear"])
def test_the_mean_stays_lam_when_the_size_is_a_multiple(upsampling: str) -> None:
    made, (z_i, z_j) = block(upsampling=upsampling), 5 * torch.randn(2, 3, 4, 3, 4)
    lam = torch.tensor([0.2, 0.5, 0.8])
    torch.testing.assert_close(made(z_i, z_j, lam, (12, 8)).mean(dim=(1, 2, 3)), lam)


def test_the_papers_block_has_none_of_our_additions() -> None:
    made = block(**PAPER)
    assert (made.normalize, made.local, made.smooth, made.exact_mean) == (False, False, False, False)
    assert (made.upsampling, made.num_classes) == ("nearest", None)
    assert {name for name, _ in made.named_parameters()} == {"w_p.weight", "w_p.bias", "w_z.weight", "w_z.bias"}
    many = torch.cat([block(64, **PAPER).w_p.weight.flatten() for _ in range(4)])
    assert many.std().item() == pytest.approx(0.01, rel=0.05)
    assert not made.w_p.bias.any()  # type: ignore[union-attr]
    assert block(**{**PAPER, "local": True}).local


def test_reduction_divides_the_embedding() -> None:
    assert block(8, reduction=4).w_p.out_channels == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": 0}, r"reduction .*\[1, 4\]"),
        ({"reduction": 5}, r"reduction .*\[1, 4\]"),
        ({"num_classes": 0}, "num_classes.*>= 1"),
        ({"upsampling": "cubic"}, "upsampling.*bilinear, nearest"),
        ({"init": "zeros"}, "init.*torch, reference"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block(**options)


def test_wrong_maps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"z_i and z_j .*\(N, 4, h, w\)"):
        block()(torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4, 4), HALF, (4, 4))


def test_a_block_with_classes_wants_labels_that_fit() -> None:
    z = torch.zeros(2, 4, 3, 3)
    with pytest.raises(ValueError, match=r"labels .* 3 classes"):
        block(num_classes=3)(z, z, HALF, (3, 3))
    with pytest.raises(ValueError, match="num_classes=3, got 3"):
        block(num_classes=3)(z, z, HALF, (3, 3), labels=(torch.tensor([0, 1]), torch.tensor([3, 0])))
