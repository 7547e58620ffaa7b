"""PuzzleMix: masks against brute force and minimum cuts, transport against a greedy matching, the look."""

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from conftest import HandWritten, batch
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor

import automix
from automix.core.draws import step_generator
from automix.methods import puzzlemix as module
from automix.methods._shared.saliency import input_saliency, pool
from automix.methods.puzzlemix import energy, find_mask, least_energy, match_blocks, move_blocks

BETA, ETA = 1.2, 0.2


def blobs(size: int, height: int = 32, width: int = 32, sharpness: float = 3.0) -> Tensor:
    """Saliency as networks have it: a few bright regions and some noise."""
    generator = torch.Generator().manual_seed(5)
    coarse = torch.rand(size, 1, 4, 4, generator=generator) ** sharpness
    smooth = torch.nn.functional.interpolate(coarse, size=(height, width), mode="bilinear")
    return smooth.squeeze(1) + 0.05 * torch.rand(size, height, width, generator=generator)


def written_energy(
    s: Any, sal: Any, other: Any, image: Any, partner: Any, lam: float, beta: float, gamma: float
) -> float:
    """E(s) of one pair for a mask of the levels 0 and 1, in loops, as the docstring has it; images (C, G, G)."""
    grid, cells = len(s), image.shape[-1]
    k, weight = cells // grid, beta / (16 * len(s))
    total = float((s * other + (1 - s) * sal).sum())
    for (a, b), (c, d) in itertools.product(itertools.product(range(grid), repeat=2), ((1, 0), (0, 1))):
        if a + c == grid or b + d == grid:
            continue
        this, that = (image if s[a, b] else partner), (image if s[a + c, b + d] else partner)
        jumps = []
        for step in range(k):  # cells along the border
            y, x = (a * k + k - 1, b * k + step) if c else (a * k + step, b * k + k - 1)
            jumps.append(np.abs(this[:, y, x] - that[:, y + c, x + d]).mean())
        total += weight * ((s[a, b] - s[a + c, b + d]) ** 2 + gamma * float(np.mean(jumps)))
    kept = s.mean()
    return total - ETA * (kept * math.log(lam) + (1 - kept) * math.log(1 - lam))


@pytest.mark.parametrize("grid", [2, 3])
@pytest.mark.parametrize(("beta", "gamma"), [(1.2, 0.5), (2.0, 1.0)], ids=["defaults", "colors count"])
def test_masks_have_the_least_energy_of_all(grid: int, beta: float, gamma: float) -> None:
    size, k = 12, 8 // grid
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(size, 3, grid * k, grid * k, generator=generator).round()  # a pixel for each cell, in [0, 1]
    saliency = torch.rand(size, grid * k, grid * k, generator=generator) ** 6
    lam = torch.linspace(0.1, 0.9, size)
    index = torch.arange(size).roll(1)
    ours = find_mask(x, saliency, lam, index, grid, beta, gamma, ETA, levels=2).double().numpy()
    blocks = saliency.reshape(size, grid, k, grid, k).mean(dim=(2, 4)).double().numpy()
    blocks = blocks / blocks.sum(axis=(1, 2), keepdims=True)
    pixels, mixed = x.double().numpy(), 0
    for i in range(size):
        j = int(index[i])

        def written(s: Any, i: int = i, j: int = j) -> float:
            return written_energy(s, blocks[i], blocks[j], pixels[i], pixels[j], float(lam[i]), beta, gamma)

        least = min(written(np.reshape(s, (grid, grid))) for s in itertools.product([0.0, 1.0], repeat=grid**2))
        assert written(ours[i]) == pytest.approx(least, rel=1e-4)
        mixed += 0 < ours[i].mean() < 1
    assert mixed >= 3  # or there was nothing to find


def costs(grid: int, levels: int, size: int = 40) -> tuple[Tensor, Tensor, Tensor]:
    """The energy of PuzzleMix for random saliency, half of it noise and half of it blobs."""
    generator = torch.Generator().manual_seed(grid)
    noise = torch.rand(size // 2, grid, grid, generator=generator) ** 2
    sal = torch.cat([noise, pool(blobs(size // 2), grid)])
    sal = sal / sal.sum(dim=(1, 2), keepdim=True)
    prior = module._prior(torch.rand(size, generator=generator), levels).reshape(size, 1, 1, levels)
    shares = torch.linspace(0, 1, levels)
    cost = torch.lerp(sal.unsqueeze(-1), sal.roll(1, 0).unsqueeze(-1), shares) + ETA / grid**2 * prior
    down, right = (
        0.5 + torch.rand(size, *shape, generator=generator) for shape in ((grid - 1, grid), (grid, grid - 1))
    )
    return cost, BETA / (16 * grid) * down, BETA / (16 * grid) * right


def minimum_cut(cost: Any, down: Any, right: Any) -> float:
    """The least energy of masks of 0 and 1, as the maximum flow from a source (s = 1) to a sink (s = 0)."""
    grid, unit = len(cost), 1e7
    number = np.arange(grid**2).reshape(grid, grid)
    gain = cost[..., 1] - cost[..., 0]
    source, sink = np.full_like(number, grid**2), np.full_like(number, grid**2 + 1)
    edges = [(source, number, np.maximum(-gain, 0)), (number, sink, np.maximum(gain, 0))]
    for a, b, weight in ((number[:-1], number[1:], down), (number[:, :-1], number[:, 1:], right)):
        edges += [(a, b, weight), (b, a, weight)]
    rows, columns, weights = (np.concatenate([edge[part].ravel() for edge in edges]) for part in range(3))
    capacity = np.round(weights * unit).astype(np.int32)
    graph = scipy.sparse.csr_matrix((capacity, (rows, columns)), shape=(grid**2 + 2, grid**2 + 2))
    flow = maximum_flow(graph, grid**2, grid**2 + 1).flow_value / unit
    return float(cost[..., 0].sum() + np.minimum(gain, 0).sum() + flow)


@pytest.mark.parametrize("grid", [2, 4, 8, 16])
def test_energies_come_close_to_minimum_cuts(grid: int) -> None:
    cost, down, right = costs(grid, levels=2)
    masks = least_energy(cost, down, right)
    least = torch.tensor([minimum_cut(*(part[i].double().numpy() for part in (cost, down, right))) for i in range(40)])
    gap = energy(cost, down, right, masks).double() / least - 1
    assert bool((gap > -1e-5).all())  # else the oracle is wrong
    assert float(gap.mean()) < 1e-3
    assert float(gap.max()) < 1e-2
    assert set(masks.unique().tolist()) == {0.0, 1.0}


@pytest.mark.parametrize("grid", [2, 3])
def test_three_levels_come_close_to_brute_force(grid: int) -> None:
    cost, down, right = costs(grid, levels=3)
    masks = least_energy(cost, down, right)
    every = torch.tensor(list(itertools.product([0, 0.5, 1], repeat=grid**2))).reshape(-1, 1, grid, grid)
    least = energy(cost, down, right, every.expand(-1, 40, -1, -1)).amin(dim=0)
    gap = energy(cost, down, right, masks) / least - 1
    assert bool((gap > -1e-5).all())
    assert float(gap.mean()) < 1e-3
    assert float(gap.max()) < 1e-2
    assert set(masks.unique().tolist()) == {0.0, 0.5, 1.0}


def test_each_image_keeps_its_salient_half() -> None:
    x, y = torch.full((2, 3, 32, 32), 0.5), torch.tensor([0, 1])
    saliency = torch.zeros(2, 32, 32)
    saliency[0, :, :16], saliency[1, :, 16:] = 1, 1
    for grid in (2, 4, 8, 16):
        mixed = automix.puzzlemix(x, y, saliency=saliency, lam=0.5, index=torch.tensor([1, 0]), grid=grid)
        assert bool((mixed.mask[0, :, :, :16] == 1).all())
        assert bool((mixed.mask[0, :, :, 16:] == 0).all())
        assert torch.equal(mixed.mask[1], 1 - mixed.mask[0])
        assert torch.equal(mixed.target.lam, torch.tensor([0.5, 0.5]))


def test_the_prior_moves_the_mean_with_lam() -> None:
    x, y = batch(40, 32, 32)
    means = [
        float(automix.puzzlemix(x, y, saliency=blobs(40), lam=lam, index=torch.arange(40).roll(1), grid=8).mask.mean())
        for lam in (0.02, 0.3, 0.5, 0.7, 0.98)
    ]
    assert means == sorted(means)
    assert means[0] < 0.2
    assert 0.4 < means[2] < 0.6
    assert means[4] > 0.8


# --- transport -------------------------------------------------------------------------------------------------------


def greedy(saliency: Any, shown: Any, t_eps: float) -> dict[int, int]:
    """place -> block: the best pair first, as long as it earns; the only stable matching of blocks and places."""
    grid = len(saliency)
    gains = []
    for block, place in itertools.product(range(grid**2), repeat=2):
        squared = (block // grid - place // grid) ** 2 + (block % grid - place % grid) ** 2
        gain = saliency.flat[block] - t_eps * squared / (grid - 1) ** 2
        if shown.flat[place] and gain > 0 and squared <= module.FARTHEST**2:
            gains.append((-gain, block, place))
    matched: dict[int, int] = {}
    for _, block, place in sorted(gains):
        if place not in matched and block not in matched.values():
            matched[place] = block
    return matched


@pytest.mark.parametrize(("grid", "t_eps"), [(2, 0.1), (4, 0.8), (4, 0.1), (8, 0.8), (8, 0.2)])
def test_blocks_move_as_in_a_greedy_matching(grid: int, t_eps: float) -> None:
    generator = torch.Generator().manual_seed(3)
    saliency = torch.rand(30, grid, grid, generator=generator) ** 6
    saliency = saliency / saliency.sum(dim=(1, 2), keepdim=True)
    shown = torch.rand(30, grid, grid, generator=generator) < 0.5
    source = match_blocks(saliency, shown, t_eps).flatten(1)
    moves = 0
    for i in range(30):
        for place, block in greedy(saliency[i].numpy(), shown[i].numpy(), t_eps).items():
            assert source[i, place] == block
            moves += place != block
        visible = source[i][shown[i].flatten()]
        assert len(visible.unique()) == len(visible)  # no block is seen twice
    assert moves >= 10


def test_a_salient_block_moves_next_door() -> None:
    saliency = torch.tensor([[[0.1, 0.7], [0.1, 0.1]]])
    shown = torch.tensor([[[True, False], [True, False]]])  # the salient block is not
    assert match_blocks(saliency, shown, t_eps=0.5)[0, :, 0].tolist() == [1, 2]  # 0.7 - 0.5 beats 0.1
    assert match_blocks(saliency, shown, t_eps=0.8)[0, :, 0].tolist() == [0, 2]


def test_moved_blocks_keep_their_pixels() -> None:
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    swapped = move_blocks(x, torch.tensor([[[1, 0], [2, 3]]]))
    assert swapped[0, 0].tolist() == [[2, 3, 0, 1], [6, 7, 4, 5], [8, 9, 10, 11], [12, 13, 14, 15]]
    odd, _ = batch(2, 13, 22)
    assert torch.equal(move_blocks(odd, torch.arange(36).reshape(1, 6, 6).expand(2, 6, 6)), odd)
    strip = torch.arange(5.0).expand(1, 1, 5, 5)  # blocks of 3 and 2 columns
    assert move_blocks(strip, torch.tensor([[[1, 0], [3, 2]]]))[0, 0, 0].tolist() == [3, 4, 4, 0, 1]


def test_with_transport_the_mask_is_the_share_of_the_image() -> None:
    """Images of one color each: wherever a pixel comes from, the mask says how much of it is the image's."""
    y, index = torch.arange(6), torch.arange(6).roll(1)
    x = torch.arange(6.0).reshape(6, 1, 1, 1).expand(6, 3, 30, 32).contiguous()
    for levels in (2, 3):
        options: dict[str, Any] = {"saliency": blobs(6, 30), "index": index, "grid": 8, "levels": levels, "lam": 0.5}
        mixed = automix.puzzlemix(x, y, **options)
        torch.testing.assert_close(mixed.x[:, :1], mixed.mask * x[:, :1] + (1 - mixed.mask) * x[index][:, :1])
        torch.testing.assert_close(mixed.target.lam, mixed.mask.mean(dim=(1, 2, 3)))


def test_transport_shows_more_saliency() -> None:
    x, y = batch(20, 32, 32)
    index = torch.arange(20).roll(1)
    saliency = blobs(20, sharpness=8)
    options: dict[str, Any] = {"saliency": saliency, "lam": 0.5, "index": index, "grid": 16, "levels": 2}
    x[:, 0] = saliency  # so that a channel of the mixed images shows the saliency that is kept
    moved, plain = automix.puzzlemix(x, y, **options), automix.puzzlemix(x, y, transport=False, **options)
    assert torch.equal(moved.mask, plain.mask)
    torch.testing.assert_close(plain.x, plain.mask * x + (1 - plain.mask) * x[index])
    assert moved.x[:, 0].mean() > plain.x[:, 0].mean()


# --- sizes, draws, wrong input ---------------------------------------------------------------------------------------


def test_grids_are_drawn_evenly_from_those_that_fit() -> None:
    drawn = Counter(module.choose_grid((32, 40), None, step_generator(0, step)) for step in range(400))
    assert set(drawn) == {2, 4, 8, 16}
    assert min(drawn.values()) > 70
    assert {module.choose_grid((15, 9), None, step_generator(0, step)) for step in range(50)} == {2, 4}
    assert module.choose_grid((3, 32), None, step_generator(0, 0)) == 1


@pytest.mark.parametrize("size", [(1, 1), (3, 7), (5, 5), (13, 22), (40, 33)])
@pytest.mark.parametrize("levels", [2, 3])
def test_any_size(size: tuple[int, int], levels: int) -> None:
    x, y = batch(4, *size)
    for step in range(4):
        saliency = blobs(4, *size) if step else torch.zeros(4, *size)  # a saliency of nothing at all
        lam = torch.tensor([1.0, 0.5, 0.0, 0.3])
        mixed = automix.puzzlemix(x, y, saliency=saliency, lam=lam, levels=levels, generator=step_generator(0, step))
        assert bool(mixed.x.isfinite().all())
        assert torch.equal(mixed.x[0], x[0])
        assert mixed.target.lam[[0, 2]].tolist() == [1, 0]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"saliency": None}, r"saliency is missing.*\(6, 16, 16\)"),
        ({"saliency": torch.rand(6, 8, 8)}, r"saliency .*\(6, 16, 16\), got \(6, 8, 8\)"),
        ({"grid": 17}, r"grid.*\[1, 16\]"),
        ({"gamma": 1.5}, r"gamma.*\[0, 1\]"),
        ({"beta": -1.0}, "^beta.*>= 0"),
        ({"eta": -1.0}, "^eta.*>= 0"),
        ({"t_eps": -1.0}, "^t_eps.*>= 0"),
        ({"levels": 1}, "levels.*>= 2"),
    ],
)
def test_wrong_input_is_refused(wrong: dict[str, Any], message: str) -> None:
    x, y = batch()
    with pytest.raises(ValueError, match=message):
        automix.puzzlemix(x, y, **{"saliency": x.norm(dim=1), **wrong})


# --- the look at the network -----------------------------------------------------------------------------------------


def test_saliency_is_the_norm_of_the_loss_gradient() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 4 * 4, 5))
    x, y = batch(6, 4, 4)
    saliency, logits = input_saliency(model, x, y)
    weight = model.get_parameter("1.weight")
    error = torch.softmax(logits, dim=1) - torch.nn.functional.one_hot(y, 5)  # d CE / d logits
    expected = (error @ weight).reshape(6, 3, 4, 4).square().sum(dim=1).sqrt()
    torch.testing.assert_close(saliency, expected)
    unknown, _ = input_saliency(model, x, torch.tensor([5, 6, 7, 8, 9, 10]))
    torch.testing.assert_close(unknown, input_saliency(model, x, logits.argmax(dim=1))[0])


def test_looking_leaves_the_network_alone() -> None:
    x, y = batch()
    for ema in (False, True):
        task = automix.create_task("puzzlemix", HandWritten(), ema=ema).train()
        kept = {name: value.clone() for name, value in task.state_dict().items()}
        modes = [part.training for part in task.modules()]
        task.mix(x, y)
        assert all(torch.equal(value, kept[name]) for name, value in task.state_dict().items())
        assert all(parameter.grad is None for parameter in task.parameters())
        assert modes == [part.training for part in task.modules()]


def test_the_task_mixes_by_the_classifiers_saliency() -> None:
    x, y = batch()
    task = automix.create_task("puzzlemix", HandWritten(), eta=0.0, transport=False, ema=True)
    with torch.no_grad():
        for parameter in task.student.parameters():
            parameter.add_(torch.randn_like(parameter))  # the teacher is another network now
    assert task.teacher is not None
    saliency, _ = input_saliency(task.teacher, x, y)
    mixed = task.mix(x, y)
    expected = automix.puzzlemix(x, y, saliency=saliency, eta=0.0, transport=False, generator=step_generator(0, 0))
    assert torch.equal(mixed.x, expected.x)
    students, _ = input_saliency(task.student, x, y)
    other = automix.puzzlemix(x, y, saliency=students, eta=0.0, transport=False, generator=step_generator(0, 0))
    assert not torch.equal(mixed.x, other.x)
