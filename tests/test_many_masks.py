"""AutoMix of more than two images: masks that are a partition of one, with the weights as their means."""

from typing import Any

import pytest
import scipy.optimize
import torch
from conftest import HandWritten, batch
from torch import Tensor

import automix
from automix import AutoMix, AutoMixSettings, MixBlock
from automix.core.blend import chain_members
from automix.core.draws import draw_dirichlet, step_generator
from automix.methods.automix.exact_mean import bias_for_mean, shifts_for_means
from automix.methods.automix.mask_loss import lambda_loss

INDEX = torch.tensor([2, 0, 3, 4, 5, 1])


def drawn_weights(count: int, images: int) -> Tensor:
    weights = draw_dirichlet(torch.empty(1), (count, images), 1.0, step_generator(0, 0)).clamp(min=0.02)
    return weights / weights.sum(dim=1, keepdim=True)


@pytest.mark.parametrize("images", [2, 3, 4])
@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0, 10.0, 20.0])
def test_means_are_the_weights_for_flat_and_for_nearly_binary_masks(scale: float, images: int) -> None:
    torch.manual_seed(0)
    logit, weights = scale * torch.randn(200, images, 36), drawn_weights(200, images)
    masks = (logit + shifts_for_means(logit, weights).unsqueeze(2)).softmax(dim=1)
    torch.testing.assert_close(masks.mean(dim=2), weights, rtol=0, atol=1e-4)


def test_two_images_have_the_bias_of_the_pair() -> None:
    logit, lam = 3 * torch.randn(50, 25), torch.linspace(0.0, 1.0, 50)
    both = torch.stack([torch.zeros(50, 25), logit], dim=1)
    shifts = shifts_for_means(both, torch.stack([lam, 1 - lam], dim=1))
    torch.testing.assert_close(shifts[:, 1:], bias_for_mean(logit, 1 - lam), rtol=1e-4, atol=1e-4)
    assert torch.equal(shifts[:, 0], torch.zeros(50))


def test_shifts_are_scipys() -> None:
    logit, weights = 2 * torch.randn(3, 20, dtype=torch.float64), torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)

    def gap(b: Any) -> Any:
        shift = torch.tensor([0.0, *b], dtype=torch.float64)
        return ((logit + shift[:, None]).softmax(dim=0).mean(dim=1) - weights)[1:].numpy()

    expected = scipy.optimize.root(gap, [0.0, 0.0], tol=1e-12).x
    ours = shifts_for_means(logit[None], weights[None])[0, 1:]
    assert ours.tolist() == pytest.approx(expected.tolist(), abs=1e-8)


def test_the_gradient_through_the_solved_shifts_is_exact() -> None:
    torch.manual_seed(0)
    logit, weights = torch.randn(4, 3, 9, dtype=torch.float64, requires_grad=True), drawn_weights(4, 3)
    assert torch.autograd.gradcheck(lambda u: (u + shifts_for_means(u, weights).unsqueeze(2)).softmax(dim=1), logit)


BLOCKS: dict[str, dict[str, Any]] = {
    "tuned": {"num_classes": 5},
    "paper": AutoMixSettings.from_preset("paper").block_options(),
    "samix": AutoMixSettings.from_preset("samix").block_options(),
}


def trained(name: str) -> MixBlock:
    torch.manual_seed(0)
    block = MixBlock(8, **BLOCKS[name])
    for parameter in block.parameters():
        parameter.data.normal_(std=0.4)
    return block.eval()


@pytest.mark.parametrize("name", BLOCKS)
def test_two_images_have_the_mask_of_the_pair(name: str) -> None:
    block, z, (_, y) = trained(name), torch.randn(6, 8, 4, 4), batch(6)
    for lam in (torch.tensor(0.3), torch.linspace(0.05, 0.95, 6)):
        pair = block(z, z[INDEX], lam, (16, 16), labels=(y, y[INDEX]))
        weights = torch.stack([lam, 1 - lam], dim=-1)
        masks = block.masks(z, chain_members(INDEX, 2), weights, (16, 16), y)
        torch.testing.assert_close(masks[:, :1], pair, rtol=0, atol=1e-5)
        assert pair.std() > 0.02  # a flat mask would tell nothing


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("images", [3, 4])
def test_masks_are_a_partition_of_one(name: str, images: int) -> None:
    block, z, (_, y) = trained(name), torch.randn(6, 8, 4, 4), batch(6)
    weights = drawn_weights(6, images)
    masks = block.masks(z, chain_members(INDEX, images), weights, (16, 16), y)
    assert masks.shape == (6, images, 16, 16)
    assert bool((masks >= 0).all())
    torch.testing.assert_close(masks.sum(dim=1), torch.ones(6, 16, 16), rtol=0, atol=1e-6)
    if block.exact_mean:
        torch.testing.assert_close(masks.mean(dim=(2, 3)), weights, rtol=0, atol=1e-4)
        assert bool((masks.std(dim=(2, 3)) > 0.005).all())


def test_a_third_image_of_weight_zero_leaves_the_pair() -> None:
    """Without the solved mean: the ratio of two masks is that of the pair, whatever the others are."""
    block, z = trained("paper"), torch.randn(6, 8, 4, 4)
    masks = block.masks(z, chain_members(INDEX, 3), torch.tensor([0.3, 0.2, 0.5]), (16, 16))
    pair = block(z, z[INDEX], torch.tensor(0.6), (16, 16))
    torch.testing.assert_close(masks[:, :1] / masks[:, :2].sum(dim=1, keepdim=True), pair)


# --- the task --------------------------------------------------------------------------------------------------------


def task(**options: Any) -> AutoMix:
    torch.manual_seed(3)
    return AutoMix(HandWritten(), layer="body", **options)


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("images", [3, 4])
def test_the_area_of_each_image_is_its_weight(images: int, per_sample: bool) -> None:
    x, y = batch()
    made = task(images=images, per_sample=per_sample)
    flat = 0
    for step in range(10):
        made.step = step
        mixed = made.mix(x, y)
        assert mixed.masks is not None
        weights = mixed.target.weights.expand(6, images)
        torch.testing.assert_close(mixed.masks.mean(dim=(2, 3)), weights, rtol=0, atol=1e-4)
        torch.testing.assert_close(mixed.masks.sum(dim=1), torch.ones(6, 16, 16), rtol=0, atol=1e-6)
        flat += int((mixed.masks.std(dim=(2, 3)) == 0).all())
    assert flat < 10


def test_images_two_is_the_pair_to_the_bit() -> None:
    x, y = batch()
    plain, two = task()(x, y), task(images=2)(x, y)
    assert torch.equal(plain.loss, two.loss)
    drawn = task(images=(2,)).draw(x, step_generator(0, 0))
    assert drawn.weights is None


def test_the_number_of_images_is_drawn_in_each_step() -> None:
    x, _ = batch()
    made = task(images=(2, 3))
    drawn = [made.draw(x, step_generator(0, step)).weights for step in range(200)]
    assert 70 < sum(weights is None for weights in drawn) < 130
    assert {len(weights) for weights in drawn if weights is not None} == {3}


def test_a_given_lam_or_partner_is_of_a_pair() -> None:
    x, y = batch()
    made = task(images=3)
    mixed = made.mix(x, y, lam=0.4, index=INDEX)
    assert mixed.target.more == ()
    assert torch.equal(mixed.x, task().mix(x, y, lam=0.4, index=INDEX).x)
    assert len(made.mix(x, y).target.more) == 1


def test_the_block_learns_from_three_images_and_l_lambda_counts_each() -> None:
    x, y = batch()
    made = task(images=3, preset="paper", gamma=1.0, epsilon=0.0)
    out = made(x, y)
    out.loss.backward()
    assert made.mix_block.value_weight.grad is not None
    assert bool(made.mix_block.value_weight.grad.abs().sum() > 0)
    mixed = made.mix(x, y)
    assert mixed.masks is not None
    by_hand = (mixed.masks.mean(dim=(2, 3)) - mixed.target.weights).abs().mean()
    torch.testing.assert_close(lambda_loss(mixed, made.settings, made.progress), by_hand)


def test_images_that_require_gradients_get_them() -> None:
    x, y = batch()
    x.requires_grad_()
    out = task(images=3, aux_loss="none")(x, y)
    (gradient,) = torch.autograd.grad(out.loss, x)
    assert bool((gradient.abs().sum(dim=(1, 2, 3)) > 0).all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": 1}, "images must be"),
        ({"images": 5}, "images must be"),
        ({"images": (2, 7)}, "images must be"),
        ({"images": ()}, "images must be"),
        ({"images": 3, "attention": False}, "images must be 2 with attention=False, got 3"),
        ({"images": 3, "objects": "teacher"}, "objects must be None with images=3"),
    ],
)
def test_wrong_options_are_refused_in_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(automix.AutomixError, match=f"^{message}") as error:
        task(**options)
    assert "\n" not in str(error.value)


def test_settings_are_recorded_and_read_back() -> None:
    assert "images" not in AutoMixSettings.from_preset("tuned").to_dict()
    for images in (3, [2, 3], (2, 3)):
        values = AutoMixSettings.from_preset("tuned", images=images).to_dict()
        assert values["images"] == (3 if images == 3 else [2, 3])
        assert AutoMixSettings.from_preset("tuned", **values).to_dict() == values
