"""ResizeMix: all of the partner, resized as torch does it, and a label to the pixel."""

from typing import Any

import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from conftest import batch

from automix.core.draws import step_generator
from automix.methods.resizemix import ResizeMix, resizemix

SWAP = torch.tensor([1, 0])


def test_a_paste_worked_out_by_hand() -> None:
    """lam 0.75: half of each side. 4 x 4 pixels become 2 x 2 at row 1, column 2."""
    partner = torch.tensor([[8.0, 8, 0, 0], [8, 8, 0, 0], [0, 0, 8, 8], [0, 0, 8, 8]])
    x = torch.stack([torch.ones(1, 4, 4), partner.unsqueeze(0)])
    mixed = resizemix(x, torch.tensor([0, 1]), lam=0.75, index=SWAP, corner=torch.tensor([1, 2]))
    # A target pixel reaches over 4 source pixels, weights 1 3 3 1: 7/8 of it lies in its own half (3 pixels at the
    # border, weights 3 3 1: 6/7). So 8 * ((6/7)^2 + (1/7)^2) = 296/49 and 8 * 2 * 6/49 = 96/49.
    high, low = 296 / 49, 96 / 49
    expected = torch.tensor([[1.0, 1, 1, 1], [1, 1, high, low], [1, 1, low, high], [1, 1, 1, 1]])
    torch.testing.assert_close(mixed.x[0, 0], expected)
    assert torch.equal(mixed.mask[0, 0], (expected == 1).float())
    torch.testing.assert_close(mixed.target.soft(2), torch.tensor([[0.75, 0.25], [0.25, 0.75]]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [(32, 32), (13, 22), (40, 17)])
def test_pixels_are_torchs_antialiased_resize(size: tuple[int, int], dtype: torch.dtype) -> None:
    x, y = batch(7, *size)
    x = x.to(dtype)
    index = torch.arange(7).roll(1)
    mixed = resizemix(x, y, per_sample=True, index=index, generator=step_generator(0, 0))
    seen = set()
    for image, mask, first, partner in zip(mixed.x, mixed.mask[:, 0], x, x[index], strict=True):
        rows, columns = (mask == 0).any(dim=1).nonzero().flatten(), (mask == 0).any(dim=0).nonzero().flatten()
        box = (slice(int(rows[0]), int(rows[-1]) + 1), slice(int(columns[0]), int(columns[-1]) + 1))
        assert int((mask == 0).sum()) == len(rows) * len(columns)  # a full box
        target = (len(rows), len(columns))
        oracle = F.interpolate(partner.unsqueeze(0), target, mode="bilinear", antialias=True)[0]
        torch.testing.assert_close(image[:, box[0], box[1]], oracle)
        assert torch.equal(image[:, mask == 1], first[:, mask == 1])
        seen.add(target)
    assert len(seen) > 3  # one tau per sample


def test_lam_zero_is_the_partner() -> None:
    x, y = batch()
    index = torch.arange(6).roll(1)
    mixed = resizemix(x, y, lam=0.0, index=index)
    assert torch.equal(mixed.x, x[index])
    assert mixed.target.lam == 0


@pytest.mark.parametrize("per_sample", [False, True])
def test_label_is_the_area_really_pasted(per_sample: bool) -> None:
    x, y = batch(5, 13, 22)
    index = torch.arange(5).roll(1)
    for step in range(10):
        mixed = resizemix(x, y, per_sample=per_sample, index=index, generator=step_generator(0, step))
        changed = (mixed.x != x).any(dim=1).float().mean(dim=(1, 2))
        torch.testing.assert_close(1 - mixed.target.lam.expand(5), changed)


def test_with_alpha_one_tau_is_uniform_and_every_place_is_as_likely() -> None:
    x, y = torch.zeros(1000, 1, 64, 64), torch.zeros(1000, dtype=torch.int64)
    pasted = 1 - resizemix(x, y, per_sample=True, generator=step_generator(0, 0)).mask[:, 0]
    sides = pasted.amax(dim=1).sum(dim=1)
    rounded = torch.rand(1000, generator=step_generator(0, 1)).mul(0.7).add(0.1).mul(64).round()
    assert float(sides.min()) >= 6  # 0.1 * 64 = 6.4
    assert float(sides.max()) <= 51  # 0.8 * 64 = 51.2
    assert scipy.stats.ks_2samp(sides.numpy(), rounded.numpy()).pvalue > 0.01
    small = 1 - resizemix(x, y, lam=torch.full((1000,), 0.75), generator=step_generator(0, 2)).mask[:, 0]
    first = small.amax(dim=2).argmax(dim=1)  # 32 of 64 rows: the first is one of 0 .. 32
    counts = torch.bincount(first, minlength=33)
    assert len(counts) == 33
    assert scipy.stats.chisquare(counts.numpy()).pvalue > 0.01


def test_other_alphas_are_laws_of_tau_and_what_falls_outside_is_drawn_evenly() -> None:
    """Beta(8, 8) lies within (0.1, 0.8) nearly always, Beta(0.02, 0.02) nearly never."""
    x, y = torch.zeros(1000, 1, 200, 200), torch.zeros(1000, dtype=torch.int64)

    def sides(alpha: float) -> Any:
        mixed = resizemix(x, y, alpha, per_sample=True, generator=step_generator(0, 0))
        return (1 - mixed.target.lam).sqrt().numpy()

    assert scipy.stats.kstest(sides(8.0), scipy.stats.beta(8, 8).cdf).pvalue > 0.01
    assert scipy.stats.kstest(sides(0.02), scipy.stats.uniform(0.1, 0.7).cdf).pvalue > 0.01


def test_a_corner_outside_is_moved_inside() -> None:
    x, y = batch(2, 8, 8)
    mask = resizemix(x, y, lam=0.75, index=SWAP, corner=torch.tensor([7, 0])).mask
    assert torch.equal((mask[0, 0] == 0).nonzero()[0], torch.tensor([4, 0]))


def test_autocast_does_not_round_the_pixels() -> None:
    x, y = batch()
    plain = resizemix(x, y, lam=0.5, generator=step_generator(0, 0))
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(resizemix(x, y, lam=0.5, generator=step_generator(0, 0)).x, plain.x)


def test_transform_is_the_function() -> None:
    x, y = batch()
    for alpha in (1.0, 0.5):
        mixed, soft = ResizeMix(alpha=alpha, num_classes=5, generator=step_generator(0, 0))(x, y)
        same = resizemix(x, y, alpha, generator=step_generator(0, 0))
        assert torch.equal(mixed, same.x)
        assert torch.equal(soft, same.target.soft(5))
    with pytest.raises(ValueError, match=r"alpha.*> 0"):
        ResizeMix(alpha=0)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"scope": (0.8, 0.1)}, r"scope .*\[0, 1\]"),
        ({"scope": (0.1, 1.1)}, r"scope .*\[0, 1\]"),
        ({"scope": (float("nan"), 0.5)}, r"scope .*\[0, 1\]"),
        ({"corner": torch.zeros(3)}, r"corner .*\(2,\) or \(6, 2\), got \(3,\)"),
    ],
)
def test_wrong_input_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        resizemix(*batch(), **wrong)
