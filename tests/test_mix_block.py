"""The Mix Block against numbers worked out by hand and a slow version written from the equations."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from automix import MixBlock

HALF = torch.tensor(0.5)


def block(channels: int = 4, **options: Any) -> MixBlock:
    return MixBlock(channels, **options)


def by_hand(lam_embedding: bool = False) -> MixBlock:
    """One channel, W_P = 1, W_Z = 4 ln 3, no biases, nothing normalised."""
    made = MixBlock(1, reduction=1, normalize=False, lam_embedding=lam_embedding)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.zero_()
        made.w_p.weight[0, 0] = 1
        made.w_z.weight[0, 0] = 4 * math.log(3)
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
        made.w_z.weight[0, 1] = 2 * math.log(3)
    z = torch.zeros(3, 1, 2, 2)
    s_i = made(z, z, torch.tensor([0.0, 0.5, 1.0]), (2, 2))
    torch.testing.assert_close(s_i[:, 0, 0, 0], torch.tensor([1 / 10, 1 / 4, 1 / 2]))


def slow_mask(made: MixBlock, z_i: Tensor, z_j: Tensor, lam: float) -> Tensor:
    """Eq. 5 and 6 place by place for one pair, maps (C, h, w)."""

    def prepare(z: Tensor, share: float) -> list[Tensor]:
        if made.normalize:
            z = (z - z.mean()) / (z.var(unbiased=False) + 1e-5).sqrt()
        places = [z[:, row, column] for row in range(z.shape[1]) for column in range(z.shape[2])]
        return [
            torch.cat([place, torch.tensor([share], dtype=z.dtype)]) if made.lam_embedding else place
            for place in places
        ]

    w_p, b_p, w_z, b_z = (made.w_p.weight[:, :, 0, 0], made.w_p.bias, made.w_z.weight[0, :, 0, 0], made.w_z.bias)
    assert b_p is not None
    assert b_z is not None
    first, second = prepare(z_i, lam), prepare(z_j, 1 - lam)
    mask = []
    for place in first:
        query = w_p @ place + b_p
        weights = [torch.exp(query @ (w_p @ other + b_p) / math.sqrt(len(query))) for other in second]
        answer = sum(w * (w_z @ other + b_z[0]) for w, other in zip(weights, second, strict=True)) / sum(weights)
        mask.append(1 - 1 / (1 + torch.exp(-torch.as_tensor(answer))))
    return torch.stack(mask).reshape(z_i.shape[1:])


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("lam_embedding", [True, False])
def test_against_a_slow_version(normalize: bool, lam_embedding: bool) -> None:
    made = block(6, normalize=normalize, lam_embedding=lam_embedding).double()
    z_i, z_j = torch.randn(2, 3, 6, 3, 4, dtype=torch.float64)
    lam = torch.tensor([0.1, 0.5, 0.8], dtype=torch.float64)
    masks = made(z_i, z_j, lam, (3, 4))
    for n in range(3):
        torch.testing.assert_close(masks[n, 0], slow_mask(made, z_i[n], z_j[n], lam[n].item()))


def test_lam_embedding_makes_the_mask_depend_on_lam_and_off_does_not() -> None:
    z_i, z_j = torch.randn(2, 2, 4, 3, 3)
    low, high = torch.tensor(0.2), torch.tensor(0.8)
    for embedding in (True, False):
        made = block(lam_embedding=embedding)
        same = torch.equal(made(z_i, z_j, low, (3, 3)), made(z_i, z_j, high, (3, 3)))
        assert same != embedding


def test_swapping_the_pair_is_not_one_minus_the_mask() -> None:
    """The statement in the module's docstring: rows of P are normalised, and the value is the other image's."""
    made, (z_i, z_j) = block(), torch.randn(2, 2, 4, 3, 3)
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
    assert mask.min() >= small.min()
    assert mask.max() <= small.max()


def test_nearest_upsampling_repeats_each_cell() -> None:
    made, (z_i, z_j) = block(), torch.randn(2, 1, 4, 2, 2)
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
    mask = made(z, z, torch.tensor(lam), (4, 5), torch.Generator().manual_seed(0))
    assert mask.sum(dim=(1, 2, 3)).tolist() == [round(lam * 20)] * 5
    again = made(z, z, torch.tensor(lam), (4, 5), torch.Generator().manual_seed(0))
    assert torch.equal(mask, again)
    assert lam in (0.0, 1.0) or not torch.equal(mask[0], mask[1])


def test_reduction_divides_the_embedding() -> None:
    assert block(8, reduction=4).w_p.out_channels == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": 0}, "reduction=0: accepted are whole numbers from 1 to channels=4"),
        ({"reduction": 5}, "reduction=5"),
        ({"upsampling": "cubic"}, "upsampling='cubic': accepted are nearest, bilinear"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        block(**options)


def test_wrong_maps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"z_i has shape \(2, 3, 4, 4\), .* accepted are two \(N, 4, h, w\)"):
        block()(torch.zeros(2, 3, 4, 4), torch.zeros(2, 3, 4, 4), HALF, (4, 4))
