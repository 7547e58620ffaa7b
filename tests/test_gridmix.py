"""GridMix: whole cells, as many as lam says, each as likely as the other."""

from typing import Any

import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch

import automix
from automix.core.draws import step_generator
from automix.methods.gridmix import GridMix, GridMixTask, gridmix, hole_mask


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


# --- the second loss -------------------------------------------------------------------------------------------------


def small_resnet() -> Any:
    torch.manual_seed(0)
    options: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (8, 8, 8, 8)}
    return automix.create_model("resnet18", num_classes=5, image_size=32, **options)


@pytest.mark.parametrize("grid", [4, 8])
def test_the_loss_on_the_cells_in_a_loop(grid: int) -> None:
    """The last map of 32 px images is 4 x 4: with a grid of 8, a position has four cells and their mixed label."""
    x, y = batch(6, 32, 32)
    task = automix.create_task("gridmix", small_resnet(), grid=grid, patch_weight=0.5)
    assert isinstance(task, GridMixTask)
    out = task(x, y)
    mixed = gridmix(x, y, grid=grid, generator=step_generator(0, 0))
    student: Any = task.student
    z = student.forward_features(mixed.x)
    weight, bias = task.patch_head.weight[:, :, 0, 0], task.patch_head.bias
    assert bias is not None
    losses = []
    for sample in range(6):
        for row in range(4):
            for column in range(4):
                logits = weight @ z[sample, :, row, column] + bias
                share = mixed.mask[sample, 0, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8].mean()
                cell = F.one_hot(y[sample], 5) * share + F.one_hot(mixed.target.y_b[sample], 5) * (1 - share)
                losses.append(-(cell * logits.log_softmax(dim=0)).sum())
    torch.testing.assert_close(out.metrics["loss_patches"], 0.5 * torch.stack(losses).mean())
    plain = mixed.target.cross_entropy(task.student(mixed.x))
    torch.testing.assert_close(out.loss, plain + out.metrics["loss_patches"])


def test_the_second_layer_is_trained_and_not_deployed() -> None:
    x, y = batch(6, 32, 32)
    task = automix.create_task("gridmix", small_resnet(), mix_until=0.5, one_hot_loss=True)
    assert isinstance(task, GridMixTask)
    weight = task.patch_head.weight
    assert [group["name"] for group in task.param_groups(lr=0.1)] == ["student", "patch_head"]
    out = task(x, y)
    assert set(out.metrics) >= {"loss_mixed", "loss_patches", "loss_clean"}
    out.loss.backward()
    assert weight.grad is not None
    assert bool((weight.grad != 0).any())
    assert not any("patch" in name for name in task.deploy().state_dict())
    task.update(0.6)
    task.zero_grad()
    task(x, y).loss.backward()  # the clean end
    assert bool((weight.grad == 0).all())


def test_where_there_is_no_second_loss() -> None:
    for task in (
        automix.create_task("gridmix", HandWritten()),  # does not describe its stages
        automix.create_task("gridmix", small_resnet(), patch_weight=0.0),
        automix.create_task("gridmix", small_resnet(), form="holes"),
        automix.create_task("gridmix", small_resnet(), mix_share=0.5),
    ):
        assert "loss_patches" not in task(*batch(6, 32, 32)).metrics
    with pytest.raises(ValueError, match="patch_weight must be 0: HandWritten"):
        automix.create_task("gridmix", HandWritten(), patch_weight=1.0)


# --- holes -----------------------------------------------------------------------------------------------------------


def test_holes_worked_out_by_hand() -> None:
    """All of a 12 x 24 image, cut at the border, is the crop; 4 tiles of 6 px in a row, whose holes have 3 px."""
    uniform = torch.tensor([1.0, 1.0, 0.0, 0.0])  # the whole area at the widest: 17 x 34 px before the cut
    holes = hole_mask(torch.tensor(0.75), uniform, 4, (12, 24))
    row = [True, True, True, False, False, False] * 4
    empty = [False] * 24
    assert holes[0].tolist() == [row, row, row, empty, empty, empty] * 2


def test_holes_have_the_share_of_the_crop() -> None:
    uniform = torch.rand(2000, 4, generator=step_generator(0, 0))
    lam = torch.rand(2000, generator=step_generator(0, 1))
    share = hole_mask(lam, uniform, 4, (64, 64)).float().mean(dim=(1, 2))
    assert bool((share <= 1 - lam + 0.1).all())
    assert scipy.stats.spearmanr(share, 1 - lam).statistic > 0.9
    ratio = (share / (1 - lam))[lam < 0.8]
    assert 0.5 < ratio.mean() < 0.85  # the crop has 1/2 to 1 of the image, less what is cut at the border


def test_holes_as_a_method() -> None:
    x, y = batch(6, 32, 32)
    one = gridmix(x, y, form="holes", grid=4, lam=0.5, generator=step_generator(0, 0))
    assert torch.equal(one.mask[0], one.mask[5])
    torch.testing.assert_close(one.x, one.mask * x + (1 - one.mask) * x[one.index])
    torch.testing.assert_close(one.target.lam, one.mask.mean(dim=(1, 2, 3)))
    each = gridmix(x, y, form="holes", grid=4, per_sample=True, generator=step_generator(0, 0))
    assert not torch.equal(each.mask[0], each.mask[5])
    assert torch.equal(gridmix(x, y, form="holes", lam=1.0).x, x)
    with pytest.raises(ValueError, match="order has no effect"):
        gridmix(x, y, form="holes", order=torch.rand(6, 20, 20))
    with pytest.raises(ValueError, match=r"form.*cells, holes"):
        gridmix(x, y, form="regular")
