"""SaliencyMix: the spectral residual finds what is odd, and each pair's box is cut there."""

from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import torch
from conftest import batch
from torch import Tensor

import automix
from automix.core.draws import step_generator
from automix.data import draw_shapes
from automix.methods.saliencymix import SaliencyMix, most_salient, saliencymix, spectral_residual


def chequered(size: tuple[int, int], row: int, column: int, odd: int) -> Tensor:
    """A fine regular texture with a patch of another one around (row, column)."""
    rows, columns = torch.meshgrid(torch.arange(size[0]), torch.arange(size[1]), indexing="ij")
    image = ((rows // 2 + columns // 2) % 2).float()
    inside = ((rows - row).abs() <= odd) & ((columns - column).abs() <= odd)
    image[inside] = ((rows // 3) % 2).float()[inside]
    return image.expand(3, *size)


@pytest.mark.parametrize("size", [(32, 32), (48, 32), (64, 64), (96, 160)])
def test_the_odd_patch_wins(size: tuple[int, int]) -> None:
    odd = max(size) // 10
    places = [(row * size[0] // 4, column * size[1] // 4) for row in (1, 2, 3) for column in (1, 2, 3)]
    x = torch.stack([chequered(size, *place, odd) for place in places])
    saliency = spectral_residual(x)
    assert saliency.shape == (9, *size)
    assert bool((saliency >= 0).all())
    assert bool(((most_salient(saliency) - torch.tensor(places)).abs() <= odd).all())


def test_spectral_residual_is_numpys() -> None:
    """Hou and Zhang's formula word for word: exp of the residual with the image's phase, blurred by scipy."""
    x, _ = batch(3, 20, 28)
    x = x.double()
    for image, ours in zip(x.numpy(), spectral_residual(x).numpy(), strict=True):
        gray = image.mean(axis=0)
        transform = np.fft.fft2(gray - gray.mean())
        logarithm = np.log(np.abs(transform).clip(1e-6 * np.abs(transform).max()))
        residual = logarithm - scipy.ndimage.uniform_filter(logarithm, 3, mode="wrap")
        phase = np.angle(transform)
        picture = np.fft.ifft2(np.abs(transform) / np.exp(logarithm) * np.exp(residual + 1j * phase))
        theirs = scipy.ndimage.gaussian_filter(np.abs(picture) ** 2, 28 / 8, mode="constant", truncate=20)
        np.testing.assert_allclose(ours, theirs, rtol=1e-2)  # scipy's Gaussian is normalized over whole pixels


@pytest.mark.parametrize("shape", [(2, 3, 16, 16), (2, 3, 1, 1), (1, 1, 2, 7)])
def test_images_without_anything_have_a_finite_saliency(shape: tuple[int, ...]) -> None:
    assert bool(spectral_residual(torch.full(shape, 0.7)).isfinite().all())
    assert bool(spectral_residual(torch.zeros(shape)).isfinite().all())


def test_contrast_and_brightness_do_not_matter() -> None:
    x = draw_shapes(24).images.float() / 255
    assert torch.equal(most_salient(spectral_residual(x)), most_salient(spectral_residual(4 * x - 1)))


def test_objects_are_found_more_often_than_by_chance() -> None:
    """The center lies on the object in far more of the drawn shapes than the object's share of the pixels."""
    shapes = draw_shapes(480)
    center = most_salient(spectral_residual(shapes.images.float() / 255))
    on_object = (shapes.masks > 0)[torch.arange(480), center[:, 0], center[:, 1]].float().mean()
    assert float(on_object) > 2 * float((shapes.masks > 0).float().mean())


def test_boxes_are_cutmixs_at_the_partners_most_salient_pixel() -> None:
    x, y = batch(4, 9, 12)
    saliency = torch.zeros(4, 9, 12)
    tops = torch.tensor([[0, 0], [4, 6], [8, 11], [2, 9]])
    saliency[torch.arange(4), tops[:, 0], tops[:, 1]] = 1
    index = torch.tensor([2, 0, 3, 1])
    for lam in (0.6, torch.tensor([0.2, 0.5, 0.7, 1.0])):
        mixed = saliencymix(x, y, lam=lam, index=index, saliency=saliency)
        same = automix.cutmix(x, y, lam=lam, index=index, center=tops[index])
        assert torch.equal(mixed.x, same.x)
        assert torch.equal(mixed.target.lam, same.target.lam)


def test_each_pair_has_its_own_box_labeled_after_clipping() -> None:
    places = [(4, 4), (16, 16), (27, 16)]
    x = torch.stack([chequered((32, 32), *place, 4) for place in places])
    index = torch.tensor([1, 2, 0])
    mixed = saliencymix(x, torch.arange(3), lam=0.75, index=index)
    found = most_salient(spectral_residual(x))[index].tolist()
    for mask, lam, (row, column) in zip(mixed.mask[:, 0], mixed.target.lam, found, strict=True):
        box = np.zeros((32, 32))  # side 16 around the center, clipped
        box[max(0, row - 8) : row + 8, max(0, column - 8) : column + 8] = 1
        assert torch.equal(1 - mask, torch.from_numpy(box).float())
        assert float(lam) == 1 - box.mean()
    assert len(set(mixed.target.lam.tolist())) > 1


def test_autocast_does_not_move_the_box() -> None:
    x = draw_shapes(24).images.float() / 255
    with torch.autocast("cpu", torch.bfloat16):
        low = spectral_residual(x)
    assert torch.equal(low, spectral_residual(x))


def test_transform_is_the_function() -> None:
    x, y = batch()
    mixed, soft = SaliencyMix(alpha=0.2, num_classes=5, generator=step_generator(0, 0))(x, y)
    same = saliencymix(x, y, 0.2, generator=step_generator(0, 0))
    assert torch.equal(mixed, same.x)
    assert torch.equal(soft, same.target.soft(5))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [({"saliency": torch.zeros(6, 8, 8)}, r"saliency .*\(6, 16, 16\), got \(6, 8, 8\)")],
)
def test_wrong_input_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        saliencymix(*batch(), **wrong)
