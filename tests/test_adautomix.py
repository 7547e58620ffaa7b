"""AdAutoMix: its block against a slow version, its losses by hand, the adversarial gradient by finite differences."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch, group_norm
from torch import Tensor

import automix
from automix.core.blend import blend_many, chain_members
from automix.core.draws import step_generator
from automix.core.target import MixedTarget
from automix.methods.adautomix import AdAutoMix, AdMixBlock
from automix.methods.automix.pairs import Pairs

INDEX = torch.tensor([2, 0, 3, 4, 5, 1])
WEIGHTS = torch.tensor([0.5, 0.2, 0.3])


def trained_block(channels: int = 6, **options: Any) -> AdMixBlock:
    torch.manual_seed(0)
    block = AdMixBlock(channels, **options)
    for parameter in block.parameters():
        parameter.data.normal_(std=0.5)
    return block


def make(**options: Any) -> AdAutoMix:
    torch.manual_seed(3)
    task = AdAutoMix(HandWritten(norm=group_norm), layer="body", **options)
    for parameter in task.mix_block.parameters():
        parameter.data.normal_(std=0.5)
    return task


# --- the block -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_block_position_by_position(count: int, normalize: bool) -> None:
    block = trained_block(exact_mean=False, normalize=normalize).double()
    z = torch.randn(3, 6, 2, 3, dtype=torch.float64)
    members = chain_members(torch.tensor([1, 2, 0]), count)
    weights = torch.softmax(torch.randn(3, count, dtype=torch.float64), dim=1)
    masks = block.masks(z, members, weights, (2, 3))

    def embed(convolution: torch.nn.Conv2d, i: int, k: int) -> Tensor:
        own = z[members[k, i]]
        own = (own - own.mean()) / (own.var(correction=0) + 1e-5).sqrt() if normalize else own
        vectors = torch.cat([own.flatten(1), weights[i, k].expand(1, 6)])
        assert convolution.bias is not None
        return convolution.weight.flatten(1) @ vectors + convolution.bias[:, None]  # (d, positions)

    for i in range(3):
        maps = []
        for k in range(count):
            scores = torch.zeros(6, 6, dtype=torch.float64)
            for j in range(count):
                if j != k:
                    scores += embed(block.w_q, i, k).T @ embed(block.w_k, i, j)
            p = (scores / math.sqrt(3)).exp()
            maps.append(p / p.sum(dim=1, keepdim=True) @ embed(block.w_v, i, k)[0])
        shares = torch.stack(maps).exp()
        expected = (shares / shares.sum(dim=0)).reshape(count, 2, 3)
        torch.testing.assert_close(masks[i], expected)
    assert masks.std() > 0.01


@pytest.mark.parametrize("exact_mean", [True, False])
def test_masks_are_a_partition_of_one_and_means_are_the_weights(exact_mean: bool) -> None:
    block, z = trained_block(exact_mean=exact_mean), torch.randn(6, 6, 4, 4)
    masks = block.masks(z, chain_members(INDEX, 3), WEIGHTS, (16, 16))
    torch.testing.assert_close(masks.sum(dim=1), torch.ones(6, 16, 16), rtol=0, atol=1e-6)
    gap = (masks.mean(dim=(2, 3)) - WEIGHTS).abs().max()
    assert gap < 1e-4 if exact_mean else gap > 0.01


def test_the_pair_is_the_block_of_two_images() -> None:
    block, z = trained_block(), torch.randn(6, 6, 4, 4)
    for lam in (torch.tensor(0.3), torch.linspace(0.1, 0.9, 6)):
        pair = block(z, z[INDEX], lam, (16, 16))
        both = block.masks(z, chain_members(INDEX, 2), torch.stack([lam, 1 - lam], dim=-1), (16, 16))
        torch.testing.assert_close(pair, both[:, :1])
        swapped = block(z[INDEX], z, 1 - lam, (16, 16))  # no image is the first one
        torch.testing.assert_close(swapped, 1 - pair, rtol=0, atol=1e-5)


def test_the_published_block_starts_flat_and_ours_does_not() -> None:
    torch.manual_seed(0)
    z = torch.randn(6, 6, 4, 4).relu()
    spreads = []
    for ours in (False, True):
        block = AdMixBlock(6, exact_mean=ours, normalize=ours)
        spreads.append(block.masks(z, chain_members(INDEX, 3), WEIGHTS, (16, 16)).std(dim=(2, 3)).mean().item())
    assert spreads[0] < 1e-4 < 0.005 < spreads[1]


# --- the losses ------------------------------------------------------------------------------------------------------


def parts_of_generation(task: AdAutoMix, x: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """MCE and S of three images, from their definitions."""
    assert task.teacher is not None
    members = chain_members(INDEX, 3)
    block: Any = task.mix_block
    masks = block.masks(z, members, WEIGHTS.to(x), (16, 16))
    mixed = sum(masks[:, k, None] * x[members[k]] for k in range(3))
    logits, clean = task.predict_mixed(torch.as_tensor(mixed)), task.predict_mixed(x).detach()
    rows = sum(WEIGHTS[k] * F.one_hot(y[members[k]], 5) for k in range(3))
    similarity = torch.zeros((), dtype=x.dtype)
    for i in range(6):
        for k in range(3):
            a, b = logits[i], clean[members[k, i]]
            similarity = similarity + WEIGHTS[k] * (a @ b) / (a.norm() * b.norm()) / 6
    return F.cross_entropy(logits, torch.as_tensor(rows).to(x)), similarity


@pytest.mark.parametrize(("cosine", "sign"), [("minimize", 1), ("maximize", -1)])
@pytest.mark.parametrize("step", [0, 1])
def test_the_blocks_loss_and_its_gradient_by_finite_differences(step: int, cosine: Any, sign: int) -> None:
    """Even steps: - 0.3 MCE +- 0.7 S. Odd steps: MCE."""
    x, y = batch()
    x = x.double()
    task = make(cosine=cosine).double()
    assert task.teacher is not None
    for parameter in task.teacher.parameters():
        parameter.data.normal_(std=0.5, generator=step_generator(0, 1))
    task.step = step
    z = task.tap(task.teacher, x).detach()
    pairs = Pairs(WEIGHTS[0], INDEX, WEIGHTS)
    weight = task.mix_block.value_weight

    def value() -> Tensor:
        return torch.stack(list(task.generation_losses(x, y, z, pairs, step_generator(0, 0)).values())).sum()

    def differences(of: Callable[[], Tensor], step_size: float = 1e-5) -> Tensor:
        found = torch.zeros(weight.numel(), dtype=torch.float64)
        flat = weight.data.view(-1)
        for position in range(weight.numel()):
            kept = flat[position].item()
            flat[position] = kept + step_size
            high = of().item()
            flat[position] = kept - step_size
            found[position] = (high - of().item()) / (2 * step_size)
            flat[position] = kept
        return found

    loss, similarity = parts_of_generation(task, x, y, z)
    expected = loss if step else -0.3 * loss + sign * 0.7 * similarity
    torch.testing.assert_close(value(), expected)
    (gradient,) = torch.autograd.grad(value(), weight)
    of_loss = differences(lambda: parts_of_generation(task, x, y, z)[0])
    of_similarity = differences(lambda: parts_of_generation(task, x, y, z)[1])
    by_differences = of_loss if step else -0.3 * of_loss + sign * 0.7 * of_similarity
    torch.testing.assert_close(gradient.flatten(), by_differences, rtol=1e-4, atol=1e-7)
    assert of_loss.norm() > 1e-4
    assert of_similarity.norm() > 1e-4


@pytest.mark.parametrize("step", [0, 1])
def test_a_step_of_the_block_makes_samples_harder_or_easier(step: int) -> None:
    x, y = batch()
    task = make(beta=1.0)  # the adversarial loss alone
    task.step = step
    assert task.teacher is not None
    z = task.tap(task.teacher, x).detach()
    before, _ = parts_of_generation(task, x, y, z)
    losses = task.generation_losses(x, y, z, Pairs(WEIGHTS[0], INDEX, WEIGHTS), step_generator(0, 0))
    torch.stack(list(losses.values())).sum().backward()
    with torch.no_grad():
        for parameter in task.mix_block.parameters():
            assert parameter.grad is not None
            parameter.sub_(0.05 * parameter.grad)
    after, _ = parts_of_generation(task, x, y, z)
    assert after < before if step else after > before


def test_neither_student_nor_teacher_learns_the_blocks_loss() -> None:
    x, y = batch()
    for step in (0, 1):
        task = make()
        task.step = step
        assert task.teacher is not None
        z = task.tap(task.teacher, x).detach()
        losses = task.generation_losses(x, y, z, Pairs(WEIGHTS[0], INDEX, WEIGHTS), step_generator(0, 0))
        torch.stack(list(losses.values())).sum().backward()
        block = {id(parameter) for parameter in task.mix_block.parameters()}
        assert all((parameter.grad is not None) == (id(parameter) in block) for parameter in task.parameters())


@pytest.mark.parametrize("images", [2, 3])
def test_the_students_losses_by_hand(images: int) -> None:
    x, y = batch()
    task = make(images=images, mixed_head=False)
    out = task(x, y)
    generator = step_generator(0, 0)
    q, _ = task.draw(x, generator), task.draw(x, generator)
    assert task.teacher is not None
    members = chain_members(q.index, images)
    weights = torch.stack([q.lam, 1 - q.lam]) if q.weights is None else q.weights
    block: Any = task.mix_block
    masks = block.masks(task.tap(task.teacher, x), members, weights, (16, 16))
    if 1 - weights.max() <= 0.03:
        masks = weights.reshape(1, -1, 1, 1).expand_as(masks)
    target = MixedTarget.of([y[of_image] for of_image in members], weights)
    mixed = F.cross_entropy(task.student(blend_many(x, members, masks)), target.soft(5))
    clean = F.cross_entropy(task.student(x), y)
    torch.testing.assert_close(out.metrics["loss_mixed"], mixed.detach(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(out.metrics["loss_clean"], clean.detach() / (1 if images == 2 else 2))
    assert ("loss_mixup" in out.metrics) == (images == 3)
    if images == 3:
        plain, of_plain = task._plain_mixture(x, y, 3, generator)  # drawn after the two
        expected = F.cross_entropy(task.student(plain), of_plain.soft(5)) / 2
        torch.testing.assert_close(out.metrics["loss_mixup"], expected.detach())


def test_weights_are_uniform_numbers_divided_by_their_sum() -> None:
    x = torch.empty(5000, 1, 1, 1, dtype=torch.float64)
    weights = make(per_sample=True).draw_weights(x, 3, step_generator(0, 0))
    uniform = torch.rand(5000, 3, dtype=torch.float64, generator=step_generator(0, 1))
    expected = uniform / uniform.sum(dim=1, keepdim=True)
    assert scipy.stats.ks_2samp(weights[:, 0].numpy(), expected[:, 0].numpy()).pvalue > 0.01
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(5000, dtype=torch.float64))


@pytest.mark.parametrize("per_sample", [False, True])
def test_the_area_of_each_image_is_its_weight(per_sample: bool) -> None:
    x, y = batch()
    task = make(per_sample=per_sample)
    for step in range(10):
        task.step = step
        mixed = task.mix(x, y)
        assert mixed.masks is not None
        weights = mixed.target.weights.expand(6, 3)
        torch.testing.assert_close(mixed.masks.mean(dim=(2, 3)), weights, rtol=0, atol=1e-4)


def test_the_number_of_images_can_be_drawn() -> None:
    x, y = batch()
    task = make(images=[2, 3])
    seen = set()
    for step in range(12):
        task.step = step
        seen.add(len(task.mix(x, y).target.labels))
    assert seen == {2, 3}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cosine": "both"}, "cosine must be one of minimize, maximize; got 'both'"),
        ({"beta": 1.5}, r"beta must be in \[0, 1\], got 1.5"),
        ({"images": 5}, "images must be"),
        ({"momentum": None}, r"momentum must be in \[0, 1\), got None"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(automix.AutomixError, match=f"^{message}"):
        make(**options)


def test_repr_has_the_options() -> None:
    text = repr(automix.create_task("adautomix", HandWritten(), layer="body"))
    assert "images=3, alpha=1.0, beta=0.3, cosine='minimize', exact_mean=True" in text
