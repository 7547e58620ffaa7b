"""SmoothMix: the bell, its label, and the sigma that a lam asks for."""

from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
import torch
from conftest import batch

from automix.core.draws import step_generator
from automix.methods.smoothmix import SmoothMix, smoothmix


def bell(size: tuple[int, int], center: tuple[int, int], sigma: float) -> Any:
    """scipy's normal densities, scaled to 1 at the center."""
    rows, columns = (
        scipy.stats.norm.pdf(np.arange(length), middle, sigma * length) * sigma * length * np.sqrt(2 * np.pi)
        for length, middle in zip(size, center, strict=True)
    )
    return np.outer(rows, columns)


def test_a_bell_worked_out_by_hand() -> None:
    """4 x 4 pixels, sigma half a side: the neighbor is half a sigma away, exp(-1/8) = 0.8825 of the top."""
    x = torch.stack([torch.ones(3, 4, 4), torch.zeros(3, 4, 4)])
    index, center = torch.tensor([1, 0]), torch.tensor([1, 2])
    mixed = smoothmix(x, torch.tensor([0, 1]), scope=(0.5, 0.5), index=index, center=center)
    torch.testing.assert_close(mixed.mask[0, 0, 1], 1 - torch.exp(-torch.tensor([4.0, 1, 0, 1]) / 8))
    torch.testing.assert_close(mixed.mask[0, 0, 0], 1 - torch.exp(-torch.tensor([5.0, 2, 1, 2]) / 8))
    torch.testing.assert_close(mixed.x[0], mixed.mask[0].expand(3, 4, 4))
    torch.testing.assert_close(mixed.target.lam, mixed.x[0].mean())  # x_i is white: the label is the brightness


@pytest.mark.parametrize("size", [(16, 16), (13, 22)])
@pytest.mark.parametrize("lam", [0.03, 0.2, 0.5, 0.8, 0.97])
def test_sigma_of_a_lam_is_scipys(size: tuple[int, int], lam: float) -> None:
    x, y = batch(4, *size)
    x = x.double()
    centers = [(0, 0), (8, 3), (12, size[1] - 1), (5, 11)]
    mixed = smoothmix(x, y, lam=lam, center=torch.tensor(centers))
    for mask, center in zip(mixed.mask[:, 0].numpy(), centers, strict=True):
        sigma = scipy.optimize.brentq(lambda s, c=center: 1 - bell(size, c, s).mean() - lam, 1e-3, 100, xtol=1e-12)
        np.testing.assert_allclose(mask, 1 - bell(size, center, sigma), atol=1e-6)
    torch.testing.assert_close(mixed.target.lam, torch.full((4,), lam).double(), atol=1e-6, rtol=0)


def test_lam_one_is_the_image_and_lam_zero_its_partner() -> None:
    x, y = batch()
    index = torch.tensor([1, 2, 3, 4, 5, 0])
    mixed = smoothmix(x, y, lam=torch.tensor([1.0, 0, 1, 0, 0.5, 1]), index=index, generator=step_generator(0, 0))
    assert torch.equal(mixed.x[[0, 2, 5]], x[[0, 2, 5]])
    assert torch.equal(mixed.x[[1, 3]], x[[2, 4]])
    assert mixed.target.lam[:4].tolist() == [1, 0, 1, 0]


def test_a_lam_between_one_pixel_and_none_is_labeled_as_it_is() -> None:
    """The narrowest bell covers the pixel at its center: 1 of 256."""
    x, y = batch()
    mixed = smoothmix(x, y, lam=0.9999, generator=step_generator(0, 0))
    torch.testing.assert_close(mixed.target.lam, torch.tensor(1 - 1 / 256))
    torch.testing.assert_close(mixed.mask.mean(), mixed.target.lam)


def test_without_alpha_sigma_is_uniform_in_its_scope() -> None:
    """At a center in the middle the mask's mean tells sigma: what scipy solves for it is uniform in 0.25 to 0.5."""
    x, y = torch.zeros(300, 1, 15, 15), torch.zeros(300, dtype=torch.int64)
    mixed = smoothmix(x, y, center=torch.tensor([7, 7]), per_sample=True, generator=step_generator(0, 0))
    beside = mixed.mask[:, 0, 7, 6].double().numpy()  # 1 - exp(-(1 / 15)^2 / (2 sigma^2))
    sigma = 1 / 15 / np.sqrt(-2 * np.log1p(-beside))
    assert scipy.stats.kstest(sigma, scipy.stats.uniform(0.25, 0.25).cdf).pvalue > 0.01


def test_with_alpha_lam_follows_its_beta() -> None:
    x, y = torch.zeros(1000, 1, 32, 32), torch.zeros(1000, dtype=torch.int64)
    lam = smoothmix(x, y, 2.0, per_sample=True, generator=step_generator(0, 0)).target.lam
    assert scipy.stats.kstest(lam.numpy(), scipy.stats.beta(2, 2).cdf).pvalue > 0.01


def test_centers_cover_every_pixel_evenly() -> None:
    x, y = torch.zeros(2000, 1, 4, 5), torch.zeros(2000, dtype=torch.int64)
    masks = smoothmix(x, y, per_sample=True, generator=step_generator(0, 0)).mask
    tops = (masks == 0).sum(dim=(0, 1)).flatten()
    assert int(tops.sum()) == 2000
    assert scipy.stats.chisquare(tops.numpy()).pvalue > 0.01


def test_transform_is_the_function() -> None:
    x, y = batch()
    for alpha in (None, 0.5):
        mixed, soft = SmoothMix(alpha=alpha, num_classes=5, generator=step_generator(0, 0))(x, y)
        same = smoothmix(x, y, alpha, generator=step_generator(0, 0))
        assert torch.equal(mixed, same.x)
        assert torch.equal(soft, same.target.soft(5))
    with pytest.raises(ValueError, match=r"alpha.*> 0"):
        SmoothMix(alpha=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"scope": (0.5, 0.25)}, "scope .*> 0"),
        ({"scope": (0, 0.25)}, "scope .*> 0"),
        ({"center": torch.zeros(3)}, r"center .*\(2,\) or \(6, 2\), got \(3,\)"),
    ],
)
def test_wrong_input_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        smoothmix(*batch(), **wrong)
