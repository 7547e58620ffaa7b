"""PixMix: its mixings by hand, the rounds against a loop over images, the draws, and the fractals."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from conftest import HandWritten, batch
from PIL import Image, ImageOps
from torch import Tensor

import automix
from automix.core.draws import step_generator
from automix.data import draw_shapes
from automix.methods._shared import fractals as fractals_file
from automix.methods._shared import pictures as pictures_file
from automix.methods._shared.fractals import draw_fractals, fractals
from automix.methods._shared.pictures import folder_pictures
from automix.methods._shared.pixels import NOTHING, TRANSLATE_X, Operations, augment
from automix.methods.pixmix import PixMixDraws, _draw, add, multiply, pixmix

PLAIN: dict[str, Any] = {"mean": (0.0,) * 3, "std": (1.0,) * 3}  # x is pixels already


def pixel_batch(count: int = 6, size: int = 32) -> tuple[Tensor, Tensor]:
    drawn = draw_shapes(count, size)
    return drawn.images / 255, drawn.labels


def draws_for(pixels: Tensor, pictures: Tensor, step: int = 0, k: int = 4) -> PixMixDraws:
    return _draw(pixels, pictures, 3.0, k, 3.0, step_generator(0, step))


# --- the mixings -----------------------------------------------------------------------------------------------------


def test_the_mixings_by_hand() -> None:
    x, picture = torch.tensor([0.0, 0.5, 1.0, 0.25]), torch.tensor([1.0, 0.5, 0.0, 0.75])
    a, b = torch.tensor(0.5), torch.tensor(0.25)
    # (0.5 * (-1, 0, 1, -0.5) + 0.25 * (1, 0, -1, 0.5) + 1) / 2
    torch.testing.assert_close(add(x, picture, a, b), torch.tensor([0.375, 0.5, 0.625, 0.4375]))
    # (0, 1, 2, 0.5) squared times (2, 1, 0, 1.5) inverted, halved; black in the picture is white after clipping
    product = multiply(x, picture, torch.tensor(2.0), torch.tensor(-1.0)).clamp(0, 1)
    torch.testing.assert_close(product, torch.tensor([0.0, 0.5, 1.0, 1 / 12]))
    gray = torch.full((4,), 0.5)
    torch.testing.assert_close(add(x, gray, torch.tensor(1.0), b), x)
    torch.testing.assert_close(multiply(x, gray, torch.tensor(1.0), b), x)


def test_given_draws_decide_everything() -> None:
    """Two rounds with a picture of one value; the third image takes one, the fourth none."""
    x = torch.full((4, 3, 8, 8), 0.6)
    picture = torch.full((1, 3, 8, 8), 0.2)
    nothing = Operations(torch.full((4,), NOTHING), torch.ones(4))
    draws = PixMixDraws(
        rounds=torch.tensor([2, 2, 1, 0]),
        start=nothing,
        copy=Operations(torch.full((4, 2), NOTHING), torch.ones(4, 2)),
        multiply=torch.tensor([[False, False], [True, False], [True, True], [True, True]]),
        a=torch.full((4, 2), 0.5),
        b=torch.full((4, 2), 0.5),
        picture=torch.zeros(4, dtype=torch.int64),
        top=torch.zeros(4, dtype=torch.int64),
        left=torch.zeros(4, dtype=torch.int64),
    )
    y = torch.arange(4)
    mixed = pixmix(x, y, pictures=picture, draws=draws, **PLAIN)
    once, product = 0.4, (1.2 * 0.4) ** 0.5 / 2  # add: (0.6 + 0.2) / 2
    wanted = torch.tensor([(once + 0.2) / 2, (product + 0.2) / 2, product, 0.6])
    torch.testing.assert_close(mixed.x, wanted.view(4, 1, 1, 1).expand_as(x))
    assert torch.equal(mixed.target.y_a, y)
    assert torch.equal(mixed.target.soft(4), torch.eye(4))
    assert mixed.mask.shape == (4, 1, 8, 8)
    assert bool((mixed.mask == 1).all())
    moved = replace(draws, start=replace(nothing, kind=torch.full((4,), TRANSLATE_X), level=torch.full((4,), 9.9)))
    again = pixmix(x, y, pictures=picture, draws=moved, **PLAIN).x[3]
    assert torch.equal(again[:, :, -2:], torch.zeros(3, 8, 2))  # 9.9 / 10 of a third of 8 px
    torch.testing.assert_close(again[:, :, :-2], x[3, :, :, :-2])


def one_by_one(x: Tensor, pictures: Tensor, draws: PixMixDraws) -> Tensor:
    """The original's loop, an image at a time."""
    out = []
    for n in range(len(x)):
        image = x[n : n + 1]
        top, left = int(draws.top[n]), int(draws.left[n])
        picture = pictures[draws.picture[n], :, top : top + x.shape[2], left : left + x.shape[3]]
        mixed = augment(image, draws.start[n : n + 1])
        for r in range(int(draws.rounds[n])):
            copy = draws.copy[n : n + 1, r]
            other = picture if copy.kind[0] == NOTHING else augment(image, copy)
            mixing = multiply if draws.multiply[n, r] else add
            mixed = mixing(mixed, other, draws.a[n, r], draws.b[n, r]).clamp(0, 1)
        out.append(mixed)
    return torch.cat(out)


@pytest.mark.parametrize("step", range(3))
def test_the_batch_is_what_a_loop_over_images_gives(step: int) -> None:
    x, y = pixel_batch(32)
    pictures = torch.rand(5, 3, 37, 35)
    draws = draws_for(x, pictures, step)
    ours = pixmix(x, y, pictures=pictures, draws=draws, **PLAIN).x
    torch.testing.assert_close(ours, one_by_one(x, pictures, draws), atol=1e-5, rtol=1e-5)
    assert torch.equal(ours, pixmix(x, y, pictures=pictures, generator=step_generator(0, step), **PLAIN).x)


def test_draws_follow_their_laws() -> None:
    x, pictures = torch.zeros(4000, 3, 2, 2), torch.zeros(7, 3, 5, 4)
    draws = draws_for(x, pictures)
    rounds = draws.rounds.bincount()
    assert len(rounds) == 5
    assert (rounds - 800).abs().max() < 110
    for place, below in ((draws.picture, 7), (draws.top, 4), (draws.left, 3)):
        assert place.unique().tolist() == list(range(below))
    for half in (draws.start.kind >= 0, draws.copy.kind >= 0, draws.multiply, draws.b > 0):
        assert abs(half.float().mean() - 0.5) < 0.04
    average = draws.b > 0
    for sample, law in (
        (draws.a[average], scipy.stats.beta(3, 1)),
        (draws.b[average], scipy.stats.beta(1, 3)),
        (draws.a[~average] - 1, scipy.stats.beta(1, 3)),
        (-draws.b[~average], scipy.stats.beta(1, 3)),
    ):
        assert scipy.stats.kstest(sample.numpy(), law.cdf).pvalue > 1e-3


# --- on normalized batches -------------------------------------------------------------------------------------------


def test_normalized_images_are_mixed_as_their_pixels() -> None:
    values, y = pixel_batch()
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.3])
    x = (values - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    wanted = pixmix(values, y, generator=step_generator(0, 1), **PLAIN).x
    exact = pixmix(x, y, mean=mean.tolist(), std=std.tolist(), generator=step_generator(0, 1)).x
    back = exact * std.view(3, 1, 1) + mean.view(3, 1, 1)
    assert (back - wanted).abs().mean() < 1e-3  # rounding moves a few pixels over a threshold
    guessed = pixmix(x, y, generator=step_generator(0, 1)).x
    assert (guessed * std.view(3, 1, 1) + mean.view(3, 1, 1) - wanted).abs().mean() < 0.02
    assert guessed.amin() >= x.amin() - 1e-5
    assert guessed.amax() <= x.amax() + 1e-5


def test_lam_one_leaves_an_image_alone() -> None:
    x, y = batch()
    free = pixmix(x, y, generator=step_generator(0, 0)).x
    lam = torch.tensor([1.0, 0.3, 1.0, 0.0, 0.5, 0.9])
    some = pixmix(x, y, lam=lam, index=torch.arange(6), generator=step_generator(0, 0)).x
    assert torch.equal(some[lam == 1], x[lam == 1])
    assert torch.equal(some[lam != 1], free[lam != 1])
    assert not torch.equal(some[lam != 1], x[lam != 1])


@pytest.mark.parametrize("shape", [(3, 1, 9, 14), (1, 3, 8, 8), (2, 4, 5, 3)])
def test_any_channels_and_size(shape: tuple[int, int, int, int]) -> None:
    mixed = pixmix(torch.randn(shape), torch.zeros(shape[0], dtype=torch.int64), generator=step_generator(0, 0))
    assert mixed.x.shape == shape
    assert mixed.x.isfinite().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": 0.0}, "beta.*> 0"),
        ({"beta": float("nan")}, "beta.*> 0"),
        ({"k": -1}, "^k must be .*>= 0"),
        ({"severity": 0.0}, r"severity.*in \["),
        ({"mean": [0.5] * 3}, "mean and std must"),
        ({"pictures": torch.rand(2, 3, 15, 16)}, r"pictures .*h >= 16.*got \(2, 3, 15, 16\)"),
        ({"pictures": torch.rand(2, 1, 16, 16)}, r"pictures .*\(P, 3, h, w\)"),
        ({"pictures": torch.zeros(2, 3, 16, 16, dtype=torch.uint8)}, "pictures .*floating.*torch.uint8"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pixmix(*batch(), **options)
    with pytest.raises(ValueError, match=message):
        automix.PixMix(num_classes=5, **options)(*batch())


def test_the_transform_is_the_function() -> None:
    x, y = pixel_batch()
    transform = automix.PixMix(
        beta=2.0, num_classes=12, k=2, severity=1.0, label_smoothing=0.1, generator=step_generator(0, 0), **PLAIN
    )
    mixed, soft = transform(x, y)
    same = pixmix(x, y, 2.0, k=2, severity=1.0, generator=step_generator(0, 0), **PLAIN)
    assert torch.equal(mixed, same.x)
    assert torch.equal(soft, same.target.soft(12, label_smoothing=0.1))
    assert repr(transform).startswith("PixMix(beta=2.0, k=2, severity=1.0")
    with pytest.raises(ValueError, match="pixmix has no option 'alpha'"):
        automix.PixMix(alpha=1.0)


# --- fractals --------------------------------------------------------------------------------------------------------


def test_fractals_are_pictures_and_always_the_same() -> None:
    place = (torch.device("cpu"), torch.float32)
    pictures = fractals(27, 36, 3, *place)
    assert pictures.shape == (32, 3, 27, 36)
    assert pictures.amin() >= 0
    assert pictures.amax() <= 1
    assert fractals(27, 36, 3, *place) is pictures
    draw_fractals.cache_clear()
    state = torch.get_rng_state()
    assert torch.equal(fractals(27, 36, 3, *place), pictures)
    assert torch.equal(torch.get_rng_state(), state)
    spread = pictures.std(dim=(2, 3)).amax(dim=1)
    assert spread.min() > 0.03  # something to see on each
    assert len(pictures.unique(dim=0)) == 32
    assert fractals(200, 150, 1, *place).shape == (32, 1, 200, 150)


def test_the_chaos_game_draws_the_sierpinski_triangle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its maps halve and move to three corners; of 16 x 16 cells exactly those without a common bit are visited."""
    monkeypatch.setattr(fractals_file, "_frame", lambda place: torch.tensor([0.0, 1.0]).view(2, 1, 1))
    count = fractals_file.PICTURES
    shift = torch.tensor([[0.0, 0.0], [0.5, 0.0], [0.0, 0.5], [9.0, 9.0]])  # the last is never jumped by
    systems = fractals_file._Systems(
        linear=(torch.eye(2) / 2).expand(count, 4, 2, 2),
        shift=shift.expand(count, 4, 2),
        share=torch.tensor([1.0, 1.0, 1.0, 0.0]).expand(count, 4),
        tone=torch.tensor([0.0, 1.0, 0.0, 0.0]).expand(count, 4),
    )
    visits, tone = fractals_file._play(systems, 16, 16, step_generator(0, 0))
    side = torch.arange(16)
    expected = (side.view(-1, 1) & side) == 0
    assert torch.equal(visits.sum(dim=0)[0] > 0, expected)
    left, right = tone[:, :, :, :8], tone[:, :, :, 8:]
    assert left.max() <= 0.5  # came by a map of tone 0
    assert right[visits[:, :, :, 8:] > 0].min() >= 0.5


def test_pictures_of_a_folder(tmp_path: Path) -> None:
    """Read, enlarged and cut as by Pillow; the same numbers drawn then give the same images as with a tensor."""
    (tmp_path / "more").mkdir()
    generator = np.random.default_rng(0)
    for name, size in (("a.png", (50, 40)), ("more/b.png", (36, 36)), ("more/c.PNG", (20, 30))):
        Image.fromarray(generator.integers(0, 256, (*size, 3), dtype=np.uint8)).save(tmp_path / name)
    (tmp_path / "note.txt").write_text("no picture")
    paths = [tmp_path / name for name in ("a.png", "more/b.png", "more/c.PNG")]
    fitted = [np.array(ImageOps.fit(Image.open(path), (36, 36))) for path in paths]
    pictures = torch.from_numpy(np.stack(fitted)).permute(0, 3, 1, 2)
    assert torch.equal(folder_pictures(str(tmp_path), 36, 36, 3), pictures)
    x, y = pixel_batch()
    ours = pixmix(x, y, pictures=tmp_path, generator=step_generator(0, 0), **PLAIN)
    theirs = pixmix(x, y, pictures=pictures / 255, generator=step_generator(0, 0), **PLAIN)
    torch.testing.assert_close(ours.x, theirs.x)
    plain = pixmix(x, y, generator=step_generator(0, 0), **PLAIN)
    assert not torch.equal(ours.x, plain.x)
    automix.create_task("pixmix", HandWritten(), pictures=str(tmp_path))(*batch(4, 32, 32)).loss.backward()


def test_wrong_folders_of_pictures(tmp_path: Path) -> None:
    x, y = pixel_batch()
    with pytest.raises(ValueError, match=r"pictures: no image .*folder"):
        pixmix(x, y, pictures=tmp_path)
    with pytest.raises(ValueError, match=r"pictures must be a tensor or a folder.*none"):
        pixmix(x, y, pictures="none")
    (tmp_path / "broken.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"pictures: .*broken.png cannot be read"):
        pixmix(x, y, pictures=str(tmp_path))


def test_a_large_folder_is_read_in_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in range(6):
        Image.new("L", (8, 8), value).save(tmp_path / f"{value}.png")
    monkeypatch.setattr(pictures_file, "MOST_BYTES", 3 * 81)
    assert folder_pictures(str(tmp_path), 9, 9, 1)[:, 0, 4, 4].tolist() == [0, 2, 4]
