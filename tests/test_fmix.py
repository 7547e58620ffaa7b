"""FMix: exact areas, the landscape's power law, one mask per sample."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from conftest import batch

from automix.core.draws import step_generator
from automix.methods.fmix import FMix, fmix, fourier_noise


def test_the_highest_pixels_are_the_first_image() -> None:
    x = torch.stack([torch.ones(3, 2, 3), torch.zeros(3, 2, 3)])
    noise = torch.tensor([[[0.1, 0.9, 0.3], [0.8, 0.2, 0.7]], [[5.0, 1.0, 2.0], [4.0, 6.0, 3.0]]])
    lam, index = torch.tensor([0.5, 1 / 3]), torch.tensor([1, 0])
    mixed = fmix(x, torch.tensor([0, 1]), lam=lam, index=index, noise=noise)
    expected = torch.tensor([[[0.0, 1, 0], [1, 0, 1]], [[1, 0, 0], [0, 1, 0]]]).unsqueeze(1)
    assert torch.equal(mixed.mask, expected)
    assert torch.equal(mixed.x[0], expected[0].expand(3, 2, 3))
    assert torch.equal(mixed.x[1], 1 - expected[1].expand(3, 2, 3))
    torch.testing.assert_close(mixed.target.soft(2), torch.tensor([[0.5, 0.5], [2 / 3, 1 / 3]]))


@pytest.mark.parametrize("size", [(7, 32, 32), (7, 13, 22), (7, 5, 1), (7, 1, 1)])
@pytest.mark.parametrize("lam", [0.0, 0.013, 0.5, 0.77, 1.0])
def test_area_is_exact_to_the_pixel(size: tuple[int, int, int], lam: float) -> None:
    x, y = batch(*size)
    mixed = fmix(x, y, lam=lam, generator=step_generator(0, 0))
    pixels = size[1] * size[2]
    assert torch.equal(mixed.mask.sum(dim=(1, 2, 3)), torch.full((7,), float(round(lam * pixels))))
    assert mixed.target.lam.shape == ()
    assert mixed.target.lam == pytest.approx(round(lam * pixels) / pixels)


def test_area_is_exact_where_all_pixels_tie() -> None:
    x, y = batch(2, 8, 8)
    assert fmix(x, y, lam=0.25, noise=torch.zeros(2, 8, 8)).mask.sum(dim=(1, 2, 3)).tolist() == [16, 16]


def test_every_sample_has_its_own_mask_of_one_lam() -> None:
    x, y = batch(6, 16, 16)
    masks = fmix(x, y, lam=0.5, generator=step_generator(0, 0)).mask.flatten(1)
    assert len(torch.unique(masks, dim=0)) == 6


@pytest.mark.parametrize("decay", [0.0, 1.5, 3.0])
@pytest.mark.parametrize("size", [(16, 24), (15, 9)])
def test_the_power_of_a_frequency_falls_as_the_decay_says(size: tuple[int, int], decay: float) -> None:
    """numpy's full transform of the landscapes: the mean power at frequency f is 2 / f^(2 decay)."""
    noise = fourier_noise(torch.empty(4000, 3, *size), decay, step_generator(0, 0))
    power = (np.abs(np.fft.fft2(noise.numpy())) ** 2).mean(axis=0)
    rows, columns = np.meshgrid(np.fft.fftfreq(size[0]), np.fft.fftfreq(size[1]), indexing="ij")
    expected = 2 * np.hypot(rows, columns).clip(1 / max(size)) ** (-2 * decay)
    # In the columns 0 and w/2 of a real image's spectrum only the part that is symmetric survives: half the power.
    inner = (columns != 0) & (columns != -0.5)
    np.testing.assert_allclose(power[inner] / expected[inner], 1, atol=0.1)  # the mean of 4000: about 0.016 off
    np.testing.assert_allclose(power[~inner] / expected[~inner], 0.5, atol=0.1)


def test_the_landscape_is_gaussian() -> None:
    noise = fourier_noise(torch.empty(2000, 3, 8, 8), 3.0, step_generator(0, 0))[:, 2, 5]
    assert scipy.stats.kstest((noise / noise.std()).numpy(), "norm").pvalue > 0.01


def test_shapes_are_larger_with_more_decay() -> None:
    """The length of the border between the images falls."""
    x, y = batch(50, 32, 32)
    borders = []
    for decay in (0.0, 1.0, 2.0, 3.0):
        mask = fmix(x, y, decay=decay, lam=0.5, generator=step_generator(0, 0)).mask
        borders.append(float(mask.diff(dim=2).abs().sum() + mask.diff(dim=3).abs().sum()) / 50)
    assert borders[0] > 900  # white noise: half of the 2 * 32 * 31 neighbors differ
    assert borders[3] < 120
    assert borders == sorted(borders, reverse=True)


def test_transform_is_the_function() -> None:
    x, y = batch()
    mixed, soft = FMix(alpha=0.2, num_classes=5, per_sample=True, generator=step_generator(0, 0))(x, y)
    same = fmix(x, y, 0.2, per_sample=True, generator=step_generator(0, 0))
    assert torch.equal(mixed, same.x)
    assert torch.equal(soft, same.target.soft(5))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"noise": torch.zeros(6, 1, 16, 16)}, r"noise .*\(6, 16, 16\), got \(6, 1, 16, 16\)"),
        ({"decay": -1.0}, "decay.*>= 0"),
        ({"decay": float("inf")}, "decay.*>= 0"),
    ],
)
def test_wrong_input_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fmix(*batch(), **wrong)
