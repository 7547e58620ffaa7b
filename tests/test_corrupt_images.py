"""The corruptions themselves, each against scipy, Pillow, colorsys, a loop over pixels, or its statistics."""

import colorsys
import io
import itertools
import math

import numpy as np
import pytest
import scipy.ndimage
import torch
from PIL import Image
from torch import Tensor

from automix.core.errors import AutomixError
from automix.data import draw_shapes
from automix.evaluation.corruptions import BENCHMARK, EXTRA, NAMES, corrupt
from automix.evaluation.corruptions.apply import CORRUPTIONS
from automix.evaluation.corruptions.blur import (
    convolve,
    copy_sources,
    directional_blur,
    disk_kernel,
    glass_blur,
    zoom_blur,
)
from automix.evaluation.corruptions.digital import (
    brightness,
    elastic_transform,
    inverse_affine,
    jpeg_compression,
    pixelate,
    sample_bilinear,
    saturate,
)
from automix.evaluation.corruptions.noise import gaussian_noise, impulse_noise, shot_noise, speckle_noise
from automix.evaluation.corruptions.separable import gaussian_filter, zoom_center
from automix.evaluation.corruptions.severities import CIFAR, IMAGENET, TINY_IMAGENET, severity_table
from automix.evaluation.corruptions.spatter import canny_edges, distance_transform, equalize_histogram, spatter
from automix.evaluation.corruptions.weather import fog, frost, frost_textures, plasma_fractal, snow


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pixels(count: int = 2, height: int = 32, width: int = 32) -> Tensor:
    """Images of 256 values each, in [0, 1]."""
    return torch.randint(256, (count, 3, height, width), generator=seeded(5)) / 255


def gray(level: float, size: int = 64) -> Tensor:
    return torch.full((4, 3, size, size), level)


def shapes(count: int = 24, size: int = 32) -> Tensor:
    return draw_shapes(count, size).images


# --- all of them -----------------------------------------------------------------------------------------------------


def test_every_corruption_has_the_five_published_strengths() -> None:
    assert (len(BENCHMARK), len(EXTRA), len(set(NAMES))) == (15, 4, 19)
    for table in (CIFAR, TINY_IMAGENET, IMAGENET):
        assert set(table) == set(NAMES) == set(CORRUPTIONS)
        assert all(len(levels) == 5 for levels in table.values())
    assert [severity_table(side)[0] for side in (32, 63, 64, 127, 128, 224)] == [
        *["CIFAR-C"] * 2, *["Tiny-ImageNet-C"] * 2, *["ImageNet-C"] * 2,
    ]  # fmt: skip
    # The original lists zoom factors by numpy's arange, which sometimes has the end in it.
    published = {0.01: (1.06, 1.11, 1.16, 1.21, 1.26)}
    assert CIFAR["zoom_blur"] == tuple((len(np.arange(1, end, 0.01)), 0.01) for end in published[0.01])
    ends = ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03))
    assert IMAGENET["zoom_blur"] == tuple((len(np.arange(1, end, step)), step) for end, step in ends)


@pytest.mark.parametrize("name", NAMES)
def test_shape_type_and_determinism_of_every_corruption(name: str) -> None:
    images = shapes(6)
    kept, state = images.clone(), torch.get_rng_state()
    for shape in ((32, 32), (20, 33), (64, 70), (130, 128)):
        wide = torch.nn.functional.interpolate(images.float(), shape).byte()
        changed = corrupt(wide, name, 5, generator=seeded(1))
        assert changed.shape == wide.shape
        assert changed.dtype == torch.uint8
        assert not torch.equal(changed, wide)
        assert torch.equal(changed, corrupt(wide, name, 5, generator=seeded(1)))
    assert torch.equal(corrupt(images, name, 0, generator=seeded()), images)
    assert corrupt(images[:1], name, 3, generator=seeded()).shape == (1, 3, 32, 32)
    assert corrupt(images[:0], name, 3, generator=seeded()).shape == (0, 3, 32, 32)
    for extreme in (0, 255):  # nothing to divide by, nothing to see
        flat = torch.full((2, 3, 16, 16), extreme, dtype=torch.uint8)
        assert corrupt(flat, name, 5, generator=seeded()).shape == flat.shape
    assert torch.equal(images, kept)
    assert torch.equal(torch.get_rng_state(), state)


def distances(name: str, images: Tensor) -> list[float]:
    """How far severities 1 to 5 take the images from where they were, root mean square of 255."""
    changed = (corrupt(images, name, severity, generator=seeded(3)).float() for severity in range(1, 6))
    return [float((image - images.float()).square().mean().sqrt()) for image in changed]


# Of these the published strengths themselves do not rise in everything that they consist of: glass blurs softer after
# two rounds, frost dims the image under more ice, mud follows water, saturation first falls and then rises, and the
# elastic map bends more and more finely while its affine part shrinks.
UNEVEN = ("glass_blur", "frost", "elastic_transform", "spatter", "saturate")


@pytest.mark.parametrize("name", [name for name in NAMES if name not in UNEVEN])
def test_images_get_worse_with_severity(name: str) -> None:
    found = distances(name, shapes(60))
    assert all(lower <= higher + 0.01 for lower, higher in itertools.pairwise(found)), found
    assert found[4] > 1.2 * found[0] > 0


@pytest.mark.parametrize("name", [name for name in UNEVEN if name != "elastic_transform"])
def test_the_strongest_is_worse_than_the_weakest(name: str) -> None:
    found = distances(name, shapes(60))
    assert found[4] > 1.1 * found[0] > 0


@pytest.mark.parametrize("name", [name for name in NAMES if "noise" in name or name in ("snow", "frost", "spatter")])
def test_images_of_a_batch_have_their_own_random_numbers(name: str) -> None:
    same = torch.full((2, 3, 32, 32), 128, dtype=torch.uint8)
    first, second = corrupt(same, name, 3, generator=seeded())
    assert not torch.equal(first, second)
    assert not torch.equal(first, corrupt(same, name, 3, generator=seeded(1))[0])


def test_wrong_input_is_refused() -> None:
    images = torch.zeros(2, 3, 32, 32, dtype=torch.uint8)
    with pytest.raises(ValueError, match=r"corruption.*gausian_noise.*gaussian_noise"):
        corrupt(images, "gausian_noise", 1, generator=seeded())
    for severity in (-1, 6, 1.5, True, "2"):
        with pytest.raises(AutomixError, match=r"^severity.*\[0, 5\]"):
            corrupt(images, "snow", severity, generator=seeded())  # type: ignore[arg-type]
    for wrong in (images.float(), images[0], images[:, :1], images[..., :7]):
        with pytest.raises(AutomixError, match=r"^images.*uint8.*\(N, 3, H, W\).*8 px"):
            corrupt(wrong, "snow", 1, generator=seeded())


# --- noises: their statistics ----------------------------------------------------------------------------------------


def test_noises_have_the_published_variance() -> None:
    x = gray(0.4)
    assert float((gaussian_noise(x, seeded(), 0.1) - x).std()) == pytest.approx(0.1, rel=0.02)
    assert float((speckle_noise(x, seeded(), 0.2) - x).std()) == pytest.approx(0.2 * 0.4, rel=0.02)
    shot = shot_noise(x, seeded(), 50)
    assert float(shot.mean()) == pytest.approx(0.4, abs=0.003)
    assert float(shot.var()) == pytest.approx(0.4 / 50, rel=0.03)
    torch.testing.assert_close(shot * 50, (shot * 50).round())  # photons are counted
    salted = impulse_noise(x, seeded(), 0.1)
    assert float((salted == 1).float().mean()) == pytest.approx(0.05, abs=0.004)
    assert float((salted == 0).float().mean()) == pytest.approx(0.05, abs=0.004)
    assert float((salted == 0.4).float().mean()) == pytest.approx(0.9, abs=0.006)


def test_impulse_noise_is_drawn_for_each_channel() -> None:
    salted = impulse_noise(gray(0.4), seeded(), 0.1) == 1
    assert 0 < int(salted.all(dim=1).sum()) < 0.1 * int(salted.any(dim=1).sum())


# --- blurs -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.05, 0.4, 1.0, 2.5, 20.0])
@pytest.mark.parametrize(("mirror", "mode", "truncate"), [(False, "nearest", 4.0), (True, "reflect", 3.0)])
def test_gaussian_blur_is_scipys(sigma: float, mirror: bool, mode: str, truncate: float) -> None:
    x = pixels(height=20)
    expected = scipy.ndimage.gaussian_filter(x.double().numpy(), (0, 0, sigma, sigma), mode=mode, truncate=truncate)
    torch.testing.assert_close(
        gaussian_filter(x, sigma, mirror=mirror, truncate=truncate).double(),
        torch.from_numpy(expected), atol=1e-5, rtol=0,
    )  # fmt: skip


def clipped_zoom(image: np.ndarray, factor: float) -> np.ndarray:
    """The middle of a square image, enlarged by scipy."""
    size = len(image)
    middle = math.ceil(size / factor)
    top = (size - middle) // 2
    part = image[top : top + middle, top : top + middle]
    large = scipy.ndimage.zoom(part, factor, order=1)
    start = (len(large) - size) // 2
    return large[start : start + size, start : start + size]


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.06, 1.25, 1.75, 2.25, 4.5])
@pytest.mark.parametrize("size", [32, 65])
def test_zoom_is_scipys(size: int, factor: float) -> None:
    x = pixels(1, size, size)
    expected = np.stack([clipped_zoom(channel, factor) for channel in x[0].double().numpy()])
    torch.testing.assert_close(zoom_center(x, factor)[0].double(), torch.from_numpy(expected), atol=1e-4, rtol=0)


def test_zoom_blur_is_the_mean_of_the_image_and_its_enlargements() -> None:
    x = pixels(1)
    enlarged = [clipped_zoom(x[0, 0].numpy(), 1 + 0.01 * number) for number in range(7)]
    expected = (x[0, 0].numpy() + sum(enlarged)) / 8
    torch.testing.assert_close(zoom_blur(x, seeded(), 7, 0.01)[0, 0], torch.from_numpy(expected), atol=1e-4, rtol=0)


def brute_disc(radius: float, softening: float) -> np.ndarray:
    """The disk on a grid, then softened point by point, mirrored at the grid's edge."""
    reach = max(8, int(radius))
    grid = range(-reach, reach + 1)
    hard = np.array([[float(x * x + y * y <= radius * radius) for x in grid] for y in grid])
    hard /= hard.sum()
    near = range(-1, 2) if radius <= 8 else range(-2, 3)
    weight = {(dy, dx): math.exp(-(dy * dy + dx * dx) / (2 * softening**2)) for dy in near for dx in near}
    total = sum(weight.values())
    padded = np.pad(hard, 2, mode="reflect")
    size = len(hard)
    soft = np.zeros_like(hard)
    for (dy, dx), value in weight.items():
        soft += padded[2 + dy : 2 + dy + size, 2 + dx : 2 + dx + size] * (value / total)
    return soft


@pytest.mark.parametrize("level", [*CIFAR["defocus_blur"], *IMAGENET["defocus_blur"]])
def test_the_disk_of_defocus_blur(level: tuple[float, float]) -> None:
    expected, found = brute_disc(*level), disk_kernel(*level)
    inner = (len(expected) - len(found)) // 2
    whole = np.pad(found.numpy(), inner)
    np.testing.assert_allclose(whole, expected, atol=1e-12)
    assert float(found.sum()) == pytest.approx(1, abs=2e-2)


def test_convolution_is_scipys_with_opencvs_border() -> None:
    x, kernel = pixels(1, 9, 12), disk_kernel(3, 0.1)
    expected = scipy.ndimage.correlate(x[0, 1].double().numpy(), kernel.numpy(), mode="mirror")
    torch.testing.assert_close(convolve(x, kernel)[0, 1].double(), torch.from_numpy(expected), atol=1e-6, rtol=0)


@pytest.mark.parametrize("reach", [1, 2, 4])
def test_glass_blur_copies_pixels_in_order(reach: int) -> None:
    height, width = 14, 17
    down, across = torch.randint(-reach, reach, (2, 3, height, width), generator=seeded(2))
    found = copy_sources(down, across, reach).view(3, height, width)
    for image in range(3):
        place = np.arange(height * width).reshape(height, width)
        for h in range(height - reach, reach, -1):
            for w in range(width - reach, reach, -1):
                place[h, w] = place[h + int(down[image, h, w]), w + int(across[image, h, w])]
        assert torch.equal(found[image], torch.from_numpy(place))
    assert not torch.equal(found[0], found[1])


def test_glass_blur_without_blur_moves_pixels_by_its_reach() -> None:
    x = pixels(1, 16, 16)
    moved = glass_blur(x, seeded(), 0.05, 1, 1)
    for h in range(16):
        for w in range(16):
            around = x[0, :, max(h - 1, 0) : h + 2, max(w - 1, 0) : w + 2].flatten(1)
            assert bool(((around - moved[0, :, h, w].unsqueeze(1)).abs() < 1e-4).all(dim=0).any())


@pytest.mark.parametrize("angle", [0.0, 30.0, -45.0, -120.0])
def test_directional_blur_is_half_a_gaussian_to_one_side(angle: float) -> None:
    point = torch.zeros(1, 1, 31, 31)
    point[0, 0, 15, 15] = 1
    radius, sigma = 4, 2.0
    weights = [math.exp(-(i**2) / (2 * sigma**2)) for i in range(2 * radius + 1)]
    expected = torch.zeros(31, 31)
    for i, weight in enumerate(weights):  # the pixel that looks i steps along the angle finds the point there
        dy, dx = (math.ceil(i * f(math.radians(angle)) - 0.5) for f in (math.sin, math.cos))
        expected[15 - dy, 15 - dx] += weight / sum(weights)
    found = directional_blur(point, torch.tensor([angle]), radius, sigma)[0, 0]
    torch.testing.assert_close(found, (expected * 255).round() / 255)


def test_directional_blur_keeps_a_flat_image_and_repeats_the_border() -> None:
    x = torch.zeros(1, 1, 9, 9)
    x[..., 8] = 1
    torch.testing.assert_close(
        directional_blur(torch.full((2, 3, 9, 9), 0.4), torch.tensor([0.0, -77.0]), 9, 2.5), gray(0.4, 9)[:2]
    )
    assert float(directional_blur(x, torch.tensor([0.0]), 6, 2)[0, 0, 4, 8]) == pytest.approx(1)
    assert float(directional_blur(x, torch.tensor([180.0]), 6, 2)[0, 0, 4, 0]) == 0


# --- weather ---------------------------------------------------------------------------------------------------------


def test_plasma_fills_the_range_and_is_rougher_the_slower_its_noise_decays() -> None:
    def roughness(decay: float) -> float:
        clouds = plasma_fractal(torch.zeros(20, 3, 1, 1), 64, decay, seeded())
        assert float(clouds.amin(dim=(1, 2, 3)).max()) == 0
        assert float(clouds.amax(dim=(1, 2, 3)).min()) == 1
        return float(clouds.diff(dim=3).abs().mean())

    assert roughness(1.4) > 1.5 * roughness(2) > 1.5 * roughness(3)


def test_the_first_points_of_plasma_are_means_of_their_neighbors_and_noise() -> None:
    uniform = torch.rand(3, generator=seeded()) * 2 - 1
    center = 1e4 * uniform[0]  # corners are 0
    expected = torch.stack([torch.zeros(()), center / 2 + 1e4 * uniform[1], center / 2 + 1e4 * uniform[2], center])
    expected = (expected - expected.min()) / (expected.max() - expected.min())
    found = plasma_fractal(torch.zeros(1, 3, 1, 1), 2, 3.0, seeded())
    torch.testing.assert_close(found.flatten(), expected)


def test_without_new_noise_plasma_is_the_mean_of_four_neighbors_on_a_torus() -> None:
    clouds = plasma_fractal(torch.zeros(1, 3, 1, 1), 8, 1e9, seeded())[0, 0]  # noise on the coarsest points alone
    for half in (2, 1):
        for y in range(0, 8, half):
            for x in range(0, 8, half):
                odd_y, odd_x = y // half % 2, x // half % 2
                if odd_y or odd_x:
                    aslant = [(-1, -1), (-1, 1), (1, -1), (1, 1)]
                    around = aslant if odd_y and odd_x else [(-1, 0), (1, 0), (0, -1), (0, 1)]
                    mean = sum(float(clouds[(y + dy * half) % 8, (x + dx * half) % 8]) for dy, dx in around) / 4
                    assert float(clouds[y, x]) == pytest.approx(mean, abs=1e-5)


def test_fog_keeps_the_brightest_value_possible() -> None:
    x = pixels() * 0.6
    foggy = fog(x, seeded(), 1.5, 2.0)
    assert float(foggy.amax()) <= float(x.amax()) + 1e-6
    assert float(fog(torch.zeros(1, 3, 16, 16), seeded(), 1.5, 2.0).abs().max()) == 0


def test_snow_brightens_and_its_layer_is_added_twice() -> None:
    x = torch.zeros(3, 3, 32, 48)
    white = snow(x, seeded(), 0.3, 0.3, 1.25, 0.65, 14, 12, 1.0)
    torch.testing.assert_close(white, white.flip(-1, -2))
    assert float(white.mean()) > 0.05
    none = snow(x, seeded(), -9.0, 0.0, 1.25, 0.65, 14, 12, 0.8)
    torch.testing.assert_close(none, torch.full_like(x, 0.2 * 0.5))  # gray * 1.5 + 0.5, by a fifth


def test_frost_is_a_crop_of_the_textures_with_the_published_weights() -> None:
    x = pixels()
    ice = frost(x, seeded(), 0.0, 1.0, 0.2)
    sheets = frost_textures(0.2)
    torus = torch.nn.functional.pad(sheets, (0, 32, 0, 32), mode="circular")
    for cut in ice:
        matches = (torus.unfold(2, 32, 1).unfold(3, 32, 1)[:, 0, :, :, 0] - cut[0, 0]).abs().amax(dim=-1)
        sheet, top, left = (matches < 1e-6).nonzero()[0].tolist()
        torch.testing.assert_close(torus[sheet, :, top : top + 32, left : left + 32], cut)
    torch.testing.assert_close(frost(x, seeded(), 0.75, 0.45, 0.2), 0.75 * x + 0.45 * ice)
    assert 0 <= float(sheets.min()) < 0.2
    assert 0.8 < float(sheets.max()) <= 1
    assert 0.4 < float(sheets.mean()) < 0.6
    larger = frost(torch.zeros(1, 3, 600, 40), seeded(), 0.0, 1.0, 1.0)  # than a sheet: it goes on
    torch.testing.assert_close(larger[:, :, :88], larger[:, :, 512:])


# --- digital ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("added", [0.05, 0.3, 0.5])
def test_brightness_is_v_of_hsv(added: float) -> None:
    x = pixels(1, 16, 16)
    x[0, :, 0, 0], x[0, :, 0, 1] = 0.0, 0.5  # black and gray
    found = brightness(x, seeded(), added).clamp(0, 1)
    for h in range(16):
        for w in range(16):
            hue, saturation, value = colorsys.rgb_to_hsv(*x[0, :, h, w].tolist())
            expected = colorsys.hsv_to_rgb(hue, saturation, min(value + added, 1))
            assert found[0, :, h, w].tolist() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("level", [(0.3, 0.0), (2.0, 0.1), (20.0, 0.2)])
def test_saturate_is_s_of_hsv(level: tuple[float, float]) -> None:
    x = pixels(1, 16, 16)
    x[0, :, 0, 0], x[0, :, 0, 1] = 0.0, 0.5
    found = saturate(x, seeded(), *level)
    for h in range(16):
        for w in range(16):
            hue, saturation, value = colorsys.rgb_to_hsv(*x[0, :, h, w].tolist())
            expected = colorsys.hsv_to_rgb(hue, min(saturation * level[0] + level[1], 1), value)
            assert found[0, :, h, w].tolist() == pytest.approx(expected, abs=1e-5)


def test_contrast_keeps_each_images_mean_color() -> None:
    images = shapes(4)
    weak = corrupt(images, "contrast", 5, generator=seeded()).float()
    mean = images.float().mean(dim=(2, 3), keepdim=True)
    expected = ((images.float() - mean) * 0.15 + mean + 1e-3).floor()
    assert float((weak - expected).abs().max()) <= 1
    assert float((weak != expected).float().mean()) < 0.01


def as_pil(image: Tensor) -> Image.Image:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def as_tensor(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


@pytest.mark.parametrize(("height", "width"), [(32, 32), (64, 64), (40, 33), (130, 151)])
@pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
def test_pixelate_is_pillows(severity: int, height: int, width: int) -> None:
    images = (pixels(3, height, width) * 255).round().byte()
    found = corrupt(images, "pixelate", severity, generator=seeded())
    share = severity_table(min(height, width))[1]["pixelate"][severity - 1][0]
    for image, changed in zip(images, found, strict=True):
        small = as_pil(image).resize((int(width * share), int(height * share)), Image.Resampling.BOX)
        assert torch.equal(changed, as_tensor(small.resize((width, height), Image.Resampling.BOX)))


def test_jpeg_is_pillows() -> None:
    images = shapes(5)
    found = corrupt(images, "jpeg_compression", 3, generator=seeded())
    for image, changed in zip(images, found, strict=True):
        written = io.BytesIO()
        as_pil(image).save(written, "JPEG", quality=58)
        assert torch.equal(changed, as_tensor(Image.open(written)))
    assert jpeg_compression(images / 255, seeded(), 58).dtype == torch.float32
    assert pixelate(images / 255, seeded(), 0.01).unique(dim=2).shape[2] == 1  # one pixel is left


def test_the_affine_map_moves_its_three_points() -> None:
    shift = torch.randn(2, 3, 2, generator=seeded()) * 2
    back = inverse_affine(shift, 32, 48)
    points = torch.tensor([[34.0, 26.0], [34.0, 6.0], [14.0, 6.0]])  # 24, 16 and a third of 32 around it; x before y
    after = torch.cat([points + shift, torch.ones(2, 3, 1)], dim=2)
    torch.testing.assert_close(after @ back, points.expand(2, -1, -1), atol=1e-4, rtol=0)


def test_elastic_transform_is_scipys_sampling() -> None:
    x = pixels(1, 32, 40)
    amount, sigma = 0.1, 0.04
    generator = seeded(4)
    torch.rand(1, 3, 2, generator=generator)  # the three points, which do not move
    field = (torch.rand(1, 2, 32, 40, generator=generator) * 2 - 1)[0].double().numpy()
    dx, dy = (
        scipy.ndimage.gaussian_filter(part, sigma * 32, mode="reflect", truncate=3) * amount * 32 for part in field
    )
    y, x_ = np.meshgrid(np.arange(32), np.arange(40), indexing="ij")
    expected = scipy.ndimage.map_coordinates(x[0, 2].double().numpy(), [y + dy, x_ + dx], order=1, mode="reflect")
    found = elastic_transform(x, seeded(4), amount, sigma, 0.0)[0, 2].double()
    torch.testing.assert_close(found, torch.from_numpy(expected), atol=1e-4, rtol=0)
    torch.testing.assert_close(elastic_transform(x, seeded(4), 0.0, 0.0, 0.0), x, atol=1e-5, rtol=0)


def test_a_shifted_square_is_sampled_with_the_mirror_image_beyond_the_border() -> None:
    """All three points move by (2, 0): what is at x comes from x - 2, and -1 is 1, -2 is 2."""
    x = torch.arange(12.0).expand(1, 3, 12, 12)

    back = inverse_affine(torch.tensor([[[2.0, 0.0]] * 3]), 12, 12)
    torch.testing.assert_close(torch.tensor([[5.0, 7.0, 1.0]]) @ back[0], torch.tensor([[3.0, 7.0]]))
    places = torch.stack(torch.meshgrid(torch.arange(12.0) - 2, torch.arange(12.0), indexing="xy"), dim=-1)
    row = sample_bilinear(x, places.unsqueeze(0), repeat_edge=False)[0, 0, 5]
    torch.testing.assert_close(row, torch.tensor([2.0, 1.0, *range(10)]), atol=1e-4, rtol=0)


# --- spatter ---------------------------------------------------------------------------------------------------------


def test_distances_are_scipys() -> None:
    marked = torch.rand(3, 1, 40, 60, generator=seeded()) < 0.003
    marked[2] = False
    found = distance_transform(marked)
    for image in range(2):
        expected = scipy.ndimage.distance_transform_edt(~marked[image, 0].numpy()).clip(max=20)
        torch.testing.assert_close(found[image, 0].double(), torch.from_numpy(expected), atol=1e-4, rtol=0)
    assert bool((found[2] == 20).all())


def test_edges_of_a_square_are_its_outline() -> None:
    depth = torch.zeros(1, 1, 20, 20)
    depth[..., 5:15, 5:15] = 200
    found = canny_edges(depth)[0, 0]
    assert 30 <= int(found.sum()) <= 44
    assert not bool(found[7:13, 7:13].any())
    assert not bool(found[:3].any())
    assert float(distance_transform(found[None, None])[0, 0, 10, 10]) in (4.0, 5.0)


def test_a_weak_edge_counts_where_it_leads_to_a_strong_one() -> None:
    height = torch.full((20,), 30.0)
    height[:6] = 200
    connected, alone = (torch.zeros(1, 1, 20, 20) for _ in range(2))
    connected[..., 8:] = height.view(-1, 1)
    alone[..., 8:] = 25
    assert bool(canny_edges(connected)[0, 0, 9:, 7:9].any())
    assert not bool(canny_edges(alone).any())


def test_equalizing_a_histogram() -> None:
    levels = torch.tensor([[2.0, 2.0, 2.0, 2.0, 5.0, 5.0, 7.0, 9.0]]).view(1, 1, 2, 4)
    # The smallest becomes 0; the 4 others are spread: after 2, 3 and 4 of them.
    expected = [0, 0, 0, 0, 128, 128, 191, 255]
    assert equalize_histogram(levels).flatten().tolist() == expected
    assert equalize_histogram(torch.full((1, 1, 2, 2), 7.0)).flatten().tolist() == [7] * 4


def test_mud_covers_with_its_color_and_water_brightens() -> None:
    muddy = spatter(gray(1.0, 32), seeded(), 0.65, 0.1, 0.5, 0.68, 0.6, 1)
    covered = muddy < 0.999
    share = float(covered.any(dim=1).float().mean())
    assert 0.01 < share < 0.5
    darkest = muddy.flatten(2).min(dim=2).values[0] * 255
    torch.testing.assert_close(darkest, torch.tensor([63.0, 42.0, 20.0]), atol=8, rtol=0)
    x = gray(0.3, 32)
    wet = spatter(x, seeded(), 0.65, 0.3, 1.0, 0.69, 0.5, 0)
    assert float((wet - x).min()) >= 0
    added = (wet - x).flatten(2).max(dim=2).values
    torch.testing.assert_close(added, 0.5 * torch.tensor([175, 238, 238.0]).expand(4, -1) / 255, atol=1e-4, rtol=0)
    dry = spatter(x, seeded(), 0.1, 0.01, 1.0, 0.69, 0.5, 0)
    torch.testing.assert_close(dry, x)
