"""Pixels and the nine operations, against torchvision and Pillow on 8-bit images."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms.v2.functional as tv
from PIL import Image, ImageOps
from torch import Tensor

from automix.core.draws import step_generator
from automix.data import draw_shapes
from automix.methods._shared import pixels
from automix.methods._shared.pixels import Operations, augment, draw_operations, pixel_range

BILINEAR = tv.InterpolationMode.BILINEAR


def images(count: int = 6, height: int = 40, width: int = 31) -> Tensor:
    """8-bit images that differ: shapes, one of them dark, one flat in a channel, one of few values."""
    drawn = draw_shapes(count, max(height, width)).images[:, :, :height, :width].clone()
    drawn[1] //= 3
    drawn[2, 0] = 77
    drawn[3] = drawn[3] // 100 * 100
    return drawn


def eight_bit(values: Tensor) -> Tensor:
    return (values * 255).round().to(torch.uint8)


# --- normalized values and pixels ------------------------------------------------------------------------------------


def test_mean_and_std_lead_back_to_the_pixels() -> None:
    values = images() / 255
    mean, std = [0.5, 0.4, 0.3], [0.2, 0.25, 0.3]
    x = (values - torch.tensor(mean).view(3, 1, 1)) / torch.tensor(std).view(3, 1, 1)
    scale = pixel_range(x, mean, std)
    torch.testing.assert_close(scale.to_pixels(x), values)
    torch.testing.assert_close(scale.from_pixels(values, like=x), x)


def test_without_them_each_channel_fills_the_range() -> None:
    x = torch.tensor([[-1.0, 0.0, 3.0], [5.0, 5.0, 5.0]]).view(1, 2, 1, 3)
    scale = pixel_range(x)
    assert scale.to_pixels(x).tolist() == [[[[0.0, 0.25, 1.0]], [[0.0, 0.0, 0.0]]]]
    assert torch.equal(scale.from_pixels(scale.to_pixels(x), like=x), x)


def test_the_range_of_a_normalized_batch_is_close_to_the_truth() -> None:
    values = draw_shapes(64, 32).images / 255
    x = (values - 0.4) / 0.3
    assert (pixel_range(x).to_pixels(x) - values).abs().max() < 0.02


@pytest.mark.parametrize(
    ("mean", "std", "message"),
    [
        ([0.5] * 3, None, "mean and std must"),
        ([0.5], [0.2], "mean and std must have 3 numbers.*1"),
        ([0.5] * 3, [0.2, 0.0, 0.2], r"std must be > 0.*\(0.2, 0.0, 0.2\)"),
    ],
)
def test_wrong_mean_and_std_are_refused(mean: Any, std: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pixel_range(torch.rand(2, 3, 4, 4), mean, std)


# --- single operations: torchvision ----------------------------------------------------------------------------------


def test_posterize_is_torchvisions() -> None:
    drawn = images(8)
    ours = pixels.posterize(drawn / 255, torch.arange(1.0, 9.0))
    theirs = torch.stack([tv.posterize(image, bits) for bits, image in enumerate(drawn, start=1)])
    assert torch.equal(eight_bit(ours), theirs)


def test_solarize_is_torchvisions() -> None:
    drawn = images(5)
    thresholds = [0, 1, 100, 128, 255]
    ours = pixels.solarize(drawn / 255, torch.tensor(thresholds))
    theirs = torch.stack([tv.solarize(image, at) for at, image in zip(thresholds, drawn, strict=True)])
    assert torch.equal(eight_bit(ours), theirs)


@pytest.mark.parametrize("size", [(40, 31), (15, 15), (7, 5)], ids=["usual", "small", "too few to spread"])
def test_equalize_is_torchvisions(size: tuple[int, int]) -> None:
    drawn = images(6, *size)
    assert torch.equal(eight_bit(pixels.equalize(drawn / 255)), tv.equalize(drawn))


def test_autocontrast_is_torchvisions() -> None:
    drawn = images()
    torch.testing.assert_close(pixels.autocontrast(drawn / 255), tv.autocontrast(drawn / 255))


@pytest.mark.parametrize("size", [(40, 31), (24, 24)])
def test_rotation_is_torchvisions(size: tuple[int, int]) -> None:
    values = images(4, *size)[:2] / 255
    ours = augment(values, Operations(torch.full((2,), pixels.ROTATE), torch.tensor([2.5, -2.5])))
    for image, theirs, angle in zip(ours, values, (7, -7), strict=True):
        oracle = tv.affine(theirs, angle=-angle, translate=[0, 0], scale=1.0, shear=[0.0, 0.0], interpolation=BILINEAR)
        torch.testing.assert_close(image, oracle, atol=2e-5, rtol=0)


def test_shear_and_translation_are_torchvisions() -> None:
    values = images(4) / 255
    kinds = torch.tensor([pixels.SHEAR_X, pixels.SHEAR_Y, pixels.TRANSLATE_X, pixels.TRANSLATE_Y])
    ours = augment(values, Operations(kinds, torch.tensor([2.0, -2.0, 2.0, -2.0])))
    slant = float(np.rad2deg(np.arctan(0.06)))
    moved: list[dict[str, Any]] = [
        {"shear": [slant, 0.0], "translate": [0, 0]},
        {"shear": [0.0, -slant], "translate": [0, 0]},
        {"shear": [0.0, 0.0], "translate": [-2, 0]},  # 2 / 10 of a third of 31 px
        {"shear": [0.0, 0.0], "translate": [0, 2]},  # of 40 px
    ]
    for image, theirs, how in zip(ours, values, moved, strict=True):
        oracle = tv.affine(theirs, angle=0, scale=1.0, center=[0, 0], interpolation=BILINEAR, **how)
        torch.testing.assert_close(image, oracle, atol=2e-5, rtol=0)


# --- levels: the original's operations in Pillow ---------------------------------------------------------------------


def pillow_operations(level: float, width: int, height: int) -> dict[int, Callable[[Image.Image], Image.Image]]:
    """What the papers' code does at a (signed) level, written with Pillow."""

    def affine(*coefficients: float) -> Callable[[Image.Image], Image.Image]:
        return lambda image: image.transform(
            (width, height), Image.Transform.AFFINE, coefficients, resample=Image.Resampling.BILINEAR
        )

    strength = abs(level)
    return {
        pixels.AUTOCONTRAST: ImageOps.autocontrast,
        pixels.EQUALIZE: ImageOps.equalize,
        pixels.POSTERIZE: lambda image: ImageOps.posterize(image, 4 - int(strength * 4 / 10)),
        pixels.SOLARIZE: lambda image: ImageOps.solarize(image, 256 - int(strength * 256 / 10)),
        pixels.ROTATE: lambda image: image.rotate(int(level * 30 / 10), resample=Image.Resampling.BILINEAR),
        pixels.SHEAR_X: affine(1, level * 0.3 / 10, 0, 0, 1, 0),
        pixels.SHEAR_Y: affine(1, 0, 0, level * 0.3 / 10, 1, 0),
        pixels.TRANSLATE_X: affine(1, 0, int(level * (width / 3) / 10), 0, 1, 0),
        pixels.TRANSLATE_Y: affine(1, 0, 0, 0, 1, int(level * (height / 3) / 10)),
    }


@pytest.mark.parametrize("level", [0.3, 2.9, -2.9, 7.1, -9.9])
@pytest.mark.parametrize("kind", range(pixels.COUNT))
def test_every_operation_at_every_level_is_pillows(kind: int, level: float) -> None:
    drawn = images(5)
    ours = augment(drawn / 255, Operations(torch.full((5,), kind), torch.full((5,), level)))
    operation = pillow_operations(level, width=31, height=40)[kind]
    theirs = torch.stack(
        [
            torch.from_numpy(np.array(operation(Image.fromarray(image.permute(1, 2, 0).numpy())))).permute(2, 0, 1)
            for image in drawn
        ]
    )
    # Pillow cuts fractions off and does not let black shine in at the border.
    apart = (ours * 255 - theirs.float()).abs()
    assert (apart > 1.01).float().mean() < (0.001 if kind in (0, 1, 2, 3, 7, 8) else 0.12)
    assert apart.median() <= 1.01


# --- many at once ----------------------------------------------------------------------------------------------------


def test_each_image_gets_its_own_operation() -> None:
    values = images(10) / 255
    kinds = torch.tensor([*range(9), pixels.NOTHING]).roll(3)
    operations = Operations(kinds, torch.linspace(-3, 3, 10))
    kept = values.clone()
    together = augment(values, operations)
    assert torch.equal(values, kept)
    for place in range(10):
        alone = augment(values[place : place + 1], operations[place : place + 1])
        torch.testing.assert_close(together[place : place + 1], alone)
    assert torch.equal(together[kinds == pixels.NOTHING], values[kinds == pixels.NOTHING])
    changed = (together - values).abs().amax(dim=(1, 2, 3)) > 0.01
    assert int(changed.sum()) >= 8


def test_operations_are_drawn_evenly() -> None:
    drawn = draw_operations((9000,), 3.0, step_generator(0, 0))
    counts = drawn.kind.bincount()
    assert len(counts) == 9
    assert (counts - 1000).abs().max() < 120  # 4 standard deviations
    strength = drawn.level.abs()
    assert 0.1 <= strength.min() < 0.11
    assert 2.99 < strength.max() <= 3.0
    assert abs(strength.mean() - 1.55) < 0.04
    assert abs((drawn.level > 0).float().mean() - 0.5) < 0.022
    with pytest.raises(ValueError, match=r"severity.*in \["):
        draw_operations((2,), 11, None)
