"""The draws and the blend."""

from typing import Any

import pytest
import scipy.stats
import torch
from conftest import batch

from automix.core.blend import blend
from automix.core.draws import draw_index, draw_lam, step_generator


@pytest.mark.parametrize("alpha", [0.2, 1.0, 2.0])
def test_lam_follows_the_beta_law(alpha: float) -> None:
    x = torch.empty(20_000, 1, 1, 1, dtype=torch.float64)  # in float32 a lam near 1 is rounded too coarsely to judge
    lam = draw_lam(x, alpha, per_sample=True, generator=step_generator(0, 0))
    assert scipy.stats.kstest(lam.numpy(), scipy.stats.beta(alpha, alpha).cdf).pvalue > 0.01
    wrong = scipy.stats.beta(alpha * 1.3, alpha * 1.3).cdf
    assert scipy.stats.kstest(lam.numpy(), wrong).pvalue < 1e-6  # the test can tell


def test_tiny_alpha_gives_numbers() -> None:
    lam = draw_lam(torch.empty(10_000, 1, 1, 1), 1e-3, per_sample=True, generator=step_generator(0, 0))
    assert bool(((lam >= 0) & (lam <= 1)).all())


def test_index_is_a_permutation_and_every_one_is_as_likely() -> None:
    generator = step_generator(1, 0)
    counts = torch.zeros(6)
    orders = [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)]
    for _ in range(3000):
        counts[orders.index(tuple(draw_index(torch.empty(3, 1, 1, 1), generator=generator).tolist()))] += 1
    assert scipy.stats.chisquare(counts.numpy()).pvalue > 0.01


def test_generators_depend_on_every_argument_and_on_nothing_else() -> None:
    arguments: list[Any] = [(0, 0), (1, 0), (0, 1), (0, 0, 1), (0, 0, 0, "order")]
    draws = [torch.rand(4, generator=step_generator(*a)) for a in arguments]
    assert len({tuple(draw.tolist()) for draw in draws}) == len(arguments)
    torch.manual_seed(99)
    assert torch.equal(draws[0], torch.rand(4, generator=step_generator(0, 0, 0, "mixing")))


def test_blend_by_hand_and_exact_at_both_ends() -> None:
    x = torch.tensor([1.0, 5.0]).reshape(2, 1, 1, 1)
    index = torch.tensor([1, 0])
    mask = torch.tensor([0.25, 1.0]).reshape(2, 1, 1, 1)
    assert blend(x, index, mask).flatten().tolist() == [0.25 * 1 + 0.75 * 5, 5.0]
    x, _ = batch()
    order = torch.randperm(len(x))
    assert torch.equal(blend(x, order, torch.ones(1, 1, 1, 1)), x)
    assert torch.equal(blend(x, order, torch.zeros(1, 1, 1, 1)), x[order])


def test_the_gradient_of_the_mask_is_the_difference_of_the_images() -> None:
    x, _ = batch(3)
    index = torch.tensor([1, 2, 0])
    mask = torch.full((3, 1, 16, 16), 0.3, requires_grad=True)
    blend(x, index, mask).sum().backward()
    torch.testing.assert_close(mask.grad, (x - x[index]).sum(dim=1, keepdim=True))
