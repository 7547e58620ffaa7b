"""Co-Mixup: its objective against brute force, the messages against brute force, labels against the pixels."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch, group_norm
from torch import Tensor, nn

import automix
from automix import MixedTarget
from automix.core.draws import draw_dirichlet, step_generator
from automix.methods._shared.joint_blocks import (
    HALF_BONUS,
    energy,
    improve_outputs,
    least_energy,
    objective,
    one_hot,
    seat,
    tell_apart,
)
from automix.methods.comixup import CoMixupTask, Deal, comixup, look, softmax_bce


def peaks(size: int, height: int = 16, width: int = 16) -> Tensor:
    """Saliency with a bright quarter, another one in each image."""
    saliency = torch.full((size, height, width), 0.1)
    for i in range(size):
        row, column = (i % 4 // 2) * (height // 2), (i % 2) * (width // 2)
        saliency[i, row : row + height // 2, column : column + width // 2] = 1
    return saliency


def random_cost(sub_batches: int, m: int, grid: int) -> Tensor:
    saliency = torch.rand(sub_batches, m, grid, grid, generator=torch.Generator().manual_seed(m)) ** 3
    return -(saliency / saliency.sum(dim=(2, 3), keepdim=True)).unsqueeze(1)


def every_label(m: int, *shape: int) -> Tensor:
    count = int(torch.tensor(shape).prod())
    return torch.cartesian_prod(*[torch.arange(m)] * count).reshape(-1, *shape)


def written_objective(cost: Any, labels: Any, beta: float, gamma: float, tau: float) -> float:
    """F of one sub-batch in loops, from the module's docstring; cost (m, g, g), labels (m, g, g)."""
    m, grid = len(labels), len(labels[0])
    total = 0.0
    for j, a, b in itertools.product(range(m), range(grid), range(grid)):
        total += float(cost[labels[j][a][b]][a][b])
        total += beta * (a + 1 < grid and labels[j][a + 1][b] != labels[j][a][b])
        total += beta * (b + 1 < grid and labels[j][a][b + 1] != labels[j][a][b])
    used = [[sum(row.count(k) for row in labels[j]) for k in range(m)] for j in range(m)]
    for j, k in itertools.product(range(m), repeat=2):
        others = sum(used[i][k] for i in range(m) if i != j)
        total += gamma * used[j][k] * others * (others > tau)
    return total


def test_objective_is_the_written_one() -> None:
    cost = random_cost(6, 3, 3)
    labels = torch.randint(3, (6, 3, 3, 3), generator=torch.Generator().manual_seed(0))
    for tau in (0.0, 5.0):
        written = [written_objective(cost[i, 0], labels[i].tolist(), 0.1, 0.2, tau) for i in range(6)]
        torch.testing.assert_close(objective(cost, one_hot(labels, 3), 0.1, 0.2, tau), torch.tensor(written))


@pytest.mark.parametrize(("grid", "images"), [(2, 4), (3, 3)])
@pytest.mark.parametrize("factor", [1, 2])
def test_messages_find_the_least_potts_energy(grid: int, images: int, factor: int) -> None:
    cost, beta = random_cost(60, images, grid).squeeze(1), factor * 0.32 / grid**2
    start = one_hot(torch.zeros(60, grid, grid, dtype=torch.long), images)
    found = least_energy(cost, beta, start)
    everything = one_hot(every_label(images, grid, grid), images).unsqueeze(0)
    least = torch.stack([energy(each[None, None], beta, everything).amin() for each in cost])
    gap = energy(cost.unsqueeze(1), beta, found.unsqueeze(1)).squeeze(1) - least
    assert bool((gap > -1e-5).all())
    assert float((gap < 1e-5).float().mean()) >= 0.95
    assert float((gap / least.abs()).mean()) < 5e-3
    assert float((found[:3].sum(dim=(2, 3)) > 0).sum()) > 3  # not of one image each


def halves_written(labels: Tensor) -> Tensor:
    """Shares of three images from labels 0 to 5: one image, or half of (0, 1), (0, 2), (1, 2)."""
    rows = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.5, 0.5, 0], [0.5, 0, 0.5], [0, 0.5, 0.5]]
    return torch.tensor(rows)[labels].movedim(-1, -3)


def test_messages_find_the_least_energy_of_whole_and_half_blocks() -> None:
    """Every labeling of 2 x 2 blocks with three images and their three pairs, its cost written as the original does."""
    cost, beta = random_cost(60, 3, 2).squeeze(1), 0.08
    apart = torch.ones(6, 6) - torch.eye(6)
    apart[3:, :3] = torch.tensor([[0.25, 0.25, 1], [0.25, 1, 0.25], [1, 0.25, 0.25]])
    apart[:3, 3:] = apart[3:, :3].T
    labels = every_label(6, 2, 2)
    halves = torch.stack([cost[:, [0, 1]], cost[:, [0, 2]], cost[:, [1, 2]]], dim=1).mean(dim=2) - HALF_BONUS
    of_block = torch.cat([cost, halves], dim=1)
    a, b, c, d = labels.flatten(1).unbind(1)
    borders = beta * (apart[a, b] + apart[a, c] + apart[b, d] + apart[c, d])
    written = borders + sum(of_block[:, label, i // 2, i % 2] for i, label in enumerate((a, b, c, d)))
    torch.testing.assert_close(energy(cost.unsqueeze(1), beta, halves_written(labels).unsqueeze(0)), written)
    start = one_hot(torch.zeros(60, 2, 2, dtype=torch.long), 3)
    found = least_energy(cost, beta, start, torch.tensor([1.0, 1.0, 2.0]).expand(60, -1))
    gap = energy(cost.unsqueeze(1), beta, found.unsqueeze(1)).squeeze(1) - written.amin(dim=1)
    assert bool((gap > -1e-5).all())
    assert float((gap < 1e-5).float().mean()) >= 0.95
    assert bool((found == 0.5).any())


def test_a_pair_needs_two_used_images() -> None:
    cost = torch.full((2, 4, 2, 2), -1.0)  # all alike: half blocks are the cheapest where they are allowed
    start = one_hot(torch.zeros(2, 2, 2, dtype=torch.long), 4)
    found = least_energy(cost, 0.0, start, torch.tensor([[4.0, 0, 0, 0], [2.0, 0, 0, 2.0]]))
    assert bool((found[0].amax(dim=0) == 1).all())
    assert bool((found[1][[0, 3]] == 0.5).all())


def test_equal_outputs_are_told_apart() -> None:
    """Outputs 0, 1 and 3 show images 1 and 2; output 2 shows one image alone."""
    used = torch.tensor([[[0.0, 3, 1, 0], [0, 2, 2, 0], [4, 0, 0, 0], [0, 1, 3, 0]]])
    written = torch.tensor([[[0.0, 1, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 1, 0]]])
    assert torch.equal(tell_apart(used), written)


def test_blocks_are_halved_and_their_label_too() -> None:
    """One color for each image: a half block has the mean of two, and the label half of each."""
    x = (2.0 ** torch.arange(12)).reshape(-1, 1, 1, 1).expand(12, 3, 16, 16).contiguous()
    saliency = torch.rand(12, 4, 4, generator=torch.Generator().manual_seed(0)) ** 3
    saliency = F.interpolate(saliency.unsqueeze(1), scale_factor=4).squeeze(1)
    options: dict[str, Any] = {"saliency": saliency, "num_classes": 12}
    mixed = automix.comixup(x, torch.arange(12), generator=step_generator(0, 0), **options)
    halved = (mixed.x[:, 0].log2() % 1) != 0
    assert 0 < float(halved.float().mean()) < 1
    torch.testing.assert_close(mixed.target.soft() @ x[:, 0, 0, 0], mixed.x[:, 0].mean(dim=(1, 2)))
    assert set(mixed.mask.unique().tolist()) == {0.0, 0.5, 1.0}
    whole = automix.comixup(x, torch.arange(12), half_blocks=False, generator=step_generator(0, 0), **options)
    assert bool(((whole.x[:, 0].log2() % 1) == 0).all())


@pytest.mark.parametrize("m", [2, 3])
@pytest.mark.parametrize("tau", [0.0, 0.83])
def test_outputs_come_close_to_the_least_objective_of_all(m: int, tau: float) -> None:
    """Lowering one output after another ends in a local minimum; the best of a few starts is near the least of all."""
    beta, gamma, tau = 0.32 / 4, 1 / 4, tau * 4
    size = 12 if m == 2 else 4
    cost = random_cost(size, m, 2)
    everything = one_hot(every_label(m, m, 2, 2), m)
    least = torch.stack([objective(each.unsqueeze(0), everything, beta, gamma, tau).amin() for each in cost])
    free = torch.zeros(size, m, dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    starts = [torch.randint(m, (size, m, 2, 2), generator=generator) for _ in range(5)]
    lowered = []
    for start in starts:
        shares = one_hot(start, m)
        for _ in range(4):
            shares = improve_outputs(cost, shares, free, beta, gamma, tau)
        lowered.append(objective(cost, shares, beta, gamma, tau))
    ends = torch.stack(lowered)
    assert bool((ends > least - 1e-5).all())
    torch.testing.assert_close(ends.amin(dim=0).mean(), least.mean(), rtol=0.05, atol=0)
    first = torch.stack([objective(cost, one_hot(s, m), beta, gamma, tau) for s in starts])
    assert bool((ends <= first + 1e-5).all())


def test_seats_are_taken_by_those_who_show_the_image() -> None:
    used = torch.tensor([[[1.0, 3.0, 0.0], [4.0, 0.0, 0.0], [4.0, 0.0, 0.0]]])
    assert seat(used, torch.zeros(1, 3, dtype=torch.bool)).tolist() == [[1, 0, 2]]
    assert seat(used, torch.tensor([[False, True, False]])).tolist() == [[2, 1, 0]]  # the second must stay


@pytest.mark.parametrize(
    ("size", "m", "shape"), [(100, 20, (5, 20)), (7, 3, (3, 3)), (1, 20, (1, 1)), (21, 20, (2, 11))]
)
def test_a_batch_is_dealt_and_collected(size: int, m: int, shape: tuple[int, int]) -> None:
    order = torch.randperm(size)
    deal = Deal(order, m)
    assert deal.shape == shape
    assert sorted(deal.slots[deal.real].tolist()) == list(range(size))
    values = torch.rand(size, 2)
    assert torch.equal(deal.collect(deal.hand_out(values)), values)


@pytest.mark.parametrize("size", [(24, 16, 16), (7, 13, 22), (2, 3, 5), (1, 8, 8)])
def test_labels_are_what_the_pixels_show(size: tuple[int, int, int]) -> None:
    """Images of one color each, classes of one image each: count the colors."""
    number = size[0]
    x = torch.arange(float(number)).reshape(-1, 1, 1, 1).expand(number, 3, *size[1:]).contiguous()
    mixtures = 0.0
    for step in range(4):
        mixed = automix.comixup(
            x,
            torch.arange(number),
            saliency=peaks(*size),
            num_classes=number,
            m=6,
            half_blocks=False,
            generator=step_generator(0, step),
        )
        colors = F.one_hot(mixed.x[:, 0].long(), number).float().mean(dim=(1, 2))
        torch.testing.assert_close(mixed.target.soft(), colors)
        torch.testing.assert_close(mixed.target.lam, colors.diagonal())
        own = torch.arange(float(number)).reshape(-1, 1, 1, 1)
        assert torch.equal(mixed.mask, (mixed.x[:, :1] == own).float())
        mixtures += float((colors > 0).sum(dim=1).float().mean()) / 4
    if number == 24:
        assert 1.5 < mixtures < 4  # images in an output


def test_images_stay_in_their_sub_batch_and_are_used_evenly() -> None:
    x, _ = batch(40)
    order = torch.arange(40).roll(7)
    mixed = automix.comixup(x, torch.arange(40), saliency=peaks(40), num_classes=40, m=20, index=order)
    shares = mixed.target.soft()
    half = torch.zeros(40, dtype=torch.long)
    half[order[1::2]] = 1  # like cards
    assert float(shares[half == 0][:, half == 1].sum()) == 0
    assert float(shares.sum(dim=0).max()) < 2.5
    alone = automix.comixup(x, torch.arange(40), saliency=peaks(40), num_classes=40, gamma=0.0, index=order)
    assert float(alone.target.soft().sum(dim=0).max()) > 4  # without diversity everybody shows the same


def test_salient_blocks_are_kept() -> None:
    x, y = batch(24)
    saliency = peaks(24)
    mixed = automix.comixup(saliency.unsqueeze(1).expand_as(x), y, saliency=saliency, num_classes=5)
    assert float(mixed.x.mean()) > 1.25 * float(saliency.mean())


def test_lam_is_the_prior_of_the_own_image() -> None:
    x, y = batch(40)
    options: dict[str, Any] = {"saliency": peaks(40), "num_classes": 5, "eta": 0.5}
    shares = [
        float(automix.comixup(x, y, lam=lam, generator=step_generator(0, 0), **options).target.lam.mean())
        for lam in (0.0, 0.1, 0.9)
    ]
    assert shares == sorted(shares)
    assert shares[2] > shares[0] + 0.3
    some = torch.zeros(40)
    some[::3] = 1
    mixed = automix.comixup(x, y, lam=some, generator=step_generator(0, 0), **options)
    assert torch.equal(mixed.x[::3], x[::3])
    assert not torch.equal(mixed.x, x)


def test_a_prior_for_each_output() -> None:
    x, _ = batch()
    assert draw_dirichlet(x, (2, 3, 4), 2.0, step_generator(0, 0)).sum(dim=-1).allclose(torch.ones(2, 3))
    y, index = torch.arange(6), torch.arange(6)
    options: dict[str, Any] = {"saliency": torch.ones(6, 16, 16), "num_classes": 6, "eta": 50.0, "gamma": 0.0}
    shared = automix.comixup(x, y, index=index, generator=step_generator(0, 0), **options).target.soft()
    assert len(shared.unique(dim=0)) == 1  # a strong prior, one for all: all show its favorite
    for_each = automix.comixup(x, y, index=index, per_sample=True, generator=step_generator(0, 0), **options)
    assert len(for_each.target.soft().unique(dim=0)) > 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"saliency": None}, "saliency is missing"),
        ({"num_classes": None}, "num_classes is missing: class indices need it to become rows"),
        ({"num_classes": 2}, "num_classes=2, got"),
        ({"m": 0}, "^m must be .*>= 1"),
        ({"grid": 0}, "grid.*>= 1"),
        ({"tau": -1.0}, "tau.*>= 0"),
        ({"beta": -1.0}, "beta.*>= 0"),
    ],
)
def test_wrong_input_is_refused(wrong: dict[str, Any], message: str) -> None:
    x, y = batch()
    with pytest.raises(ValueError, match=message):
        automix.comixup(x, y, **{"saliency": peaks(6), "num_classes": 5, **wrong})


def test_several_labels_keep_their_loss() -> None:
    x, _ = batch()
    y = torch.randint(2, (6, 5))
    mixed = automix.comixup(x, y, saliency=peaks(6))
    logits = torch.randn(6, 5)
    torch.testing.assert_close(mixed.target.loss(logits), mixed.target.bce(logits))
    out = automix.create_task("comixup", HandWritten(), clean_lam=0.0)(x, y)
    assert 0 < out.loss.item() < 1.2  # bce is about log 2, cross-entropy of 2.5 labels about 4


def test_the_task_looks_and_leaves_the_network_alone() -> None:
    x, _ = batch()
    task = automix.create_task("comixup", HandWritten(), ema=True).train()
    kept = {name: value.clone() for name, value in task.state_dict().items()}
    mixed = task.mix(x)
    assert isinstance(mixed.target, MixedTarget)
    assert mixed.target.soft().shape == (6, 6)  # without labels the classes are the images
    assert all(torch.equal(value, kept[name]) for name, value in task.state_dict().items())
    assert all(parameter.grad is None for parameter in task.parameters())
    assert task.student.training


def test_more_images_than_classes_without_gradients() -> None:
    """Task.mix numbers images by position, beyond the classes; the labels of a step under no_grad are classes."""
    x, y = batch(8, num_classes=3)
    task = automix.create_task("comixup", HandWritten(3), m=4)
    assert task.mix(x).target.soft().shape == (8, 8)
    assert task.mix(x, y).target.soft().shape == (8, 3)
    with torch.no_grad():
        assert task(x, y).loss.isfinite()


def test_the_loss_is_the_binary_cross_entropy_of_the_softmax() -> None:
    logits, rows = 3 * torch.randn(6, 5), torch.rand(6, 5).softmax(dim=1)
    ours = softmax_bce(logits, automix.MixedTarget(rows, rows, torch.ones(())))
    theirs = F.binary_cross_entropy(logits.softmax(dim=1), rows, reduction="sum") / (2 * 6)
    torch.testing.assert_close(ours, theirs)
    sure = torch.tensor([[200.0, 0.0], [0.0, 200.0]], requires_grad=True)
    loss = softmax_bce(sure, automix.MixedTarget.clean(torch.tensor([1, 1])))
    torch.testing.assert_close(loss, F.binary_cross_entropy(sure.softmax(dim=1), torch.eye(2)[[1, 1]]))
    loss.backward()
    assert bool(sure.grad is not None and sure.grad.isfinite().all())


@pytest.mark.parametrize(("options", "clean"), [({}, 1.0), ({"clean_lam": 0.5}, 0.5), ({"clean_lam": 0.0}, None)])
def test_the_loss_on_clean_images(options: dict[str, Any], clean: float | None) -> None:
    """Its authors' loss, times num_classes / 2: the mean over the classes, and 2 / num_classes of the clean loss."""
    x, y = batch(6, 16, 16)
    task = automix.create_task("comixup", HandWritten(norm=group_norm), **options)
    assert isinstance(task, CoMixupTask)
    out = task(x, y)
    assert ("loss_clean" in out.metrics) == (clean is not None)
    mixed = comixup(x, y, num_classes=5, saliency=look(task, x, y)["saliency"], generator=step_generator(0, 0))
    theirs = F.binary_cross_entropy(task.student(mixed.x).softmax(dim=1), mixed.target.soft(5))
    theirs = theirs + 2 * (clean or 0) * F.cross_entropy(task.student(x), y) / 5
    torch.testing.assert_close(out.loss, 5 / 2 * theirs)


def test_other_losses_can_be_chosen() -> None:
    _x, y = batch()
    target = automix.MixedTarget(y, y.flip(0), torch.tensor(0.3))
    logits = torch.randn(6, 5)
    for criterion in (automix.CrossEntropy(0.1), nn.CrossEntropyLoss(label_smoothing=0.1)):
        task = automix.create_task("comixup", HandWritten(), criterion=criterion)
        assert isinstance(task, CoMixupTask)
        torch.testing.assert_close(task.mixed_loss(logits, target), target.cross_entropy(logits, 0.1))
    plain = automix.create_task("comixup", HandWritten(), bce=False)
    assert isinstance(plain, CoMixupTask)
    assert torch.equal(plain.mixed_loss(logits, target), target.cross_entropy(logits))
    assert automix.create_task("comixup", HandWritten(), one_hot_loss=False).clean_lam == 0
    with pytest.raises(ValueError, match="clean_lam must be >= 0"):
        automix.create_task("comixup", HandWritten(), clean_lam=-1.0)
