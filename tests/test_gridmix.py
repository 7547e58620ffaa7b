"""GridMix: whole cells, as many as lam says, each as likely as the other."""

from typing import Any

import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from conftest import batch

from automix.core.draws import step_generator
from automix.methods.gridmix import GridMix, gridmix


def test_a_grid_worked_out_by_hand() -> None:
    x = torch.stack([torch.ones(3, 4, 6), torch.zeros(3, 4, 6)])
    order = torch.tensor([[[3.0, 1], [2, 4]], [[0, 1], [2, 3]]])
    lam, index = torch.tensor([0.5, 0.25]), torch.tensor([1, 0])
    mixed = gridmix(x, torch.tensor([0, 1]), grid=2, lam=lam, index=index, order=order)
    top, bottom = [0.0, 0, 0, 1, 1, 1], [1.0, 1, 1, 0, 0, 0]
    assert torch.equal(mixed.x[0, 0], torch.tensor([top, top, bottom, bottom]))
    assert torch.equal(mixed.x[1, 1], torch.tensor([top, top, [1.0] * 6, [1.0] * 6]))
    torch.testing.assert_close(mixed.target.soft(2), torch.tensor([[0.5, 0.5], [0.75, 0.25]]))


@pytest.mark.parametrize(("size", "grid"), [((32, 32), 4), ((32, 32), 1), ((24, 40), 8), ((13, 22), 4), ((3, 5), 4)])
@pytest.mark.parametrize("lam", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_cells_are_enlarged_as_torch_enlarges(size: tuple[int, int], grid: int, lam: float) -> None:
    """Sides that the grid does not divide are what F.interpolate makes of them."""
    x, y = batch(5, *size)
    order = torch.stack([torch.randperm(grid**2) for _ in range(5)]).view(5, grid, grid)
    cells = (order < round(lam * grid**2)).double().unsqueeze(1)
    mixed = gridmix(x, y, grid=grid, lam=lam, order=order, generator=step_generator(0, 0))
    assert torch.equal(mixed.mask, F.interpolate(cells, size).float())


def test_area_follows_lam_within_half_a_cell() -> None:
    x, y = batch(64, 32, 32)
    lam = torch.rand(64, generator=step_generator(0, 0))
    mixed = gridmix(x, y, lam=lam, generator=step_generator(0, 1))
    assert float((mixed.target.lam - lam).abs().max()) <= 1 / 32 + 1e-6
    assert torch.equal(mixed.target.lam, mixed.mask.mean(dim=(1, 2, 3)))


def test_each_cell_is_as_likely_as_the_other() -> None:
    x, y = torch.zeros(3000, 1, 8, 8), torch.zeros(3000, dtype=torch.int64)
    masks = gridmix(x, y, lam=1 / 16, generator=step_generator(0, 0)).mask
    assert masks.sum(dim=(1, 2, 3)).unique().tolist() == [4]  # one cell of 2 x 2 pixels in each image
    assert scipy.stats.chisquare(masks[:, 0, ::2, ::2].sum(dim=0).flatten().numpy()).pvalue > 0.01


def test_transform_is_the_function() -> None:
    x, y = batch()
    mixed, soft = GridMix(alpha=0.2, num_classes=5, generator=step_generator(0, 0))(x, y)
    same = gridmix(x, y, 0.2, generator=step_generator(0, 0))
    assert torch.equal(mixed, same.x)
    assert torch.equal(soft, same.target.soft(5))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"grid": 0}, "grid.*>= 1"),
        ({"grid": 2.5}, "grid.*integer"),
        ({"order": torch.zeros(6, 16)}, r"order .*\(6, 4, 4\), got \(6, 16\)"),
    ],
)
def test_wrong_input_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        gridmix(*batch(), **wrong)
