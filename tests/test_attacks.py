"""FGSM and PGD: linear models whose worst case is known, torch's gradcheck, and gradients that are none."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import HandWritten
from evaluation_data import noise, unchanged
from scipy.optimize import linprog
from torch import Tensor, nn

import automix
from automix.core.draws import step_generator
from automix.core.errors import AutomixError
from automix.data import ImageSet
from automix.data.datasets import open_dataset
from automix.evaluation.adversarial import fgsm, pgd, pixel_gradient
from automix.evaluation.attacks import Example, draw_examples, evaluate_attacks
from automix.evaluation.samples import Samples
from automix.runs.classifier import Card, WithNormalization

EPS = 8 / 255


class TwoClasses(nn.Module):
    """Logits (w x + b, 0): class 0 where the margin w x + b is positive."""

    def __init__(self, weight: Tensor, bias: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = bias

    def margin(self, x: Tensor) -> Tensor:
        return x.flatten(1) @ self.weight.flatten() + self.bias

    def forward(self, x: Tensor) -> Tensor:
        margin = self.margin(x)
        return torch.stack([margin, torch.zeros_like(margin)], dim=1)


class Smooth(nn.Module):
    """A curved function with exact derivatives everywhere."""

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 6, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6 * 16, classes))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class Of(nn.Module):
    """A model that is one function of the mean brightness: the logit of class 1; that of class 0 is 0."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        logit = self.function(x.mean(dim=(1, 2, 3)))
        return torch.stack([torch.zeros_like(logit), logit], dim=1)


def pixels(count: int = 6, size: int = 6, low: float = 0.0, high: float = 1.0, seed: int = 3) -> Tensor:
    drawn = torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return low + (high - low) * drawn


def random_weight(size: int = 6, seed: int = 5) -> Tensor:
    return torch.randn(3, size, size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def gray(levels: list[int], labels: list[int]) -> Samples:
    images = torch.tensor(levels, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 8, 8).contiguous()
    return Samples(ImageSet(images, torch.tensor(labels), ("dark", "bright")), 8)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        return F.cross_entropy(model(x), y, reduction="none")


def card(classes: int) -> Card:
    return Card(
        model="x",
        model_options={},
        classes=tuple(f"class {number}" for number in range(classes)),
        image_size=6,
        train_size=6,
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.25, 0.3),
    )


# --- the attacks, where the answer is known --------------------------------------------------------------------------


def test_fgsm_by_hand() -> None:
    model = TwoClasses(torch.tensor([2.0, -1.0, -3.0]))
    x = torch.tensor([0.5, 0.02, 0.95]).view(1, 3, 1, 1)
    away_from_0, away_from_1 = (fgsm(model, x, torch.tensor([y]), eps=0.1).flatten().tolist() for y in (0, 1))
    assert away_from_0 == pytest.approx([0.4, 0.12, 1.0])
    assert away_from_1 == pytest.approx([0.6, 0.0, 0.85])


def test_pixels_without_gradient_stay() -> None:
    x = torch.tensor([0.5, 0.5, 0.5]).view(1, 3, 1, 1)
    attacked = fgsm(TwoClasses(torch.tensor([1.0, 0.0, -1.0])), x, torch.tensor([0]), eps=0.1)
    assert attacked.flatten().tolist() == pytest.approx([0.4, 0.5, 0.6])


@pytest.mark.parametrize("bias", [0.02, 0.05, 0.1])
def test_a_linear_models_prediction_flips_at_margin_over_l1_norm(bias: float) -> None:
    weight, x, y = random_weight(), pixels(20, low=0.4, high=0.6), torch.zeros(1, dtype=torch.int64)
    weight -= weight.mean()  # so that gray says nothing, and the margin is about the bias
    l1 = weight.abs().sum()
    model = TwoClasses(weight, bias=float(bias * l1))
    for one in x.split(1):
        flips_at = float(model.margin(one) / l1)
        assert 0 < flips_at < 0.35, "else the image is wrong already, or black and white interfere"
        for eps, right in ((0.999 * flips_at, True), (1.001 * flips_at, False)):
            for attacked in (fgsm(model, one, y, eps), pgd(model, one, y, eps, step=eps / 4)):
                assert bool(model.margin(attacked) > 0) == right


def test_on_a_linear_model_fgsm_is_the_worst_case_that_linear_programming_finds() -> None:
    weight, x = random_weight(), pixels(5)  # some pixels are closer than eps to black or white
    model = TwoClasses(weight)
    attacked = fgsm(model, x, torch.zeros(5, dtype=torch.int64), EPS)
    for one, found in zip(x, model.margin(attacked), strict=True):
        bounds = [(max(0.0, value - EPS), min(1.0, value + EPS)) for value in one.flatten().tolist()]
        assert float(found) == pytest.approx(linprog(weight.flatten().numpy(), bounds=bounds).fun)


def test_on_a_linear_model_pgd_ends_where_fgsm_does() -> None:
    model, x, y = TwoClasses(random_weight()), pixels(), torch.tensor([0, 1, 0, 1, 0, 1])
    torch.testing.assert_close(pgd(model, x, y), fgsm(model, x, y))


def test_pgd_by_hand() -> None:
    """One dimension, no start: three steps of 0.02 uphill, held at 0.05."""
    model = TwoClasses(torch.ones(3))
    x = torch.full((1, 3, 1, 1), 0.5)
    start = pgd(model, x, torch.tensor([1]), eps=0.05, step=0.0, steps=1)
    for steps in (1, 2, 20):
        attacked = pgd(model, x, torch.tensor([1]), eps=0.05, step=0.02, steps=steps)
        torch.testing.assert_close(attacked, (start + 0.02 * steps).clamp(max=0.55))


def test_pgd_finds_more_than_fgsm_on_a_curved_model() -> None:
    model, x = Smooth().double(), pixels(40)
    for parameter in model.parameters():
        parameter.data *= 4  # strongly curved
    y = model(x).argmax(dim=1)
    by_one, by_twenty = loss(model, fgsm(model, x, y), y), loss(model, pgd(model, x, y), y)
    assert (loss(model, x, y) < by_one).all()
    assert (by_one <= by_twenty + 1e-3).float().mean() > 0.9
    assert by_one.mean() < by_twenty.mean()


@pytest.mark.parametrize("eps", [0.0, 2 / 255, EPS, 0.3])
def test_attacks_stay_in_the_ball_and_in_the_range_of_pixels(eps: float) -> None:
    model, x, y = HandWritten(), pixels(8, 16).float(), torch.arange(8) % 5
    for attacked in (fgsm(model, x, y, eps), pgd(model, x, y, eps, step=max(eps, 0.01))):
        assert (attacked - x).abs().max() <= eps + 1e-6
        assert attacked.min() >= 0
        assert attacked.max() <= 1
        assert attacked.dtype == x.dtype


def test_the_start_is_uniform_in_the_ball() -> None:
    x = pixels(20, 16, low=0.2, high=0.8)
    start = (pgd(TwoClasses(random_weight(16)), x, torch.arange(20) % 2, step=0.0, steps=1) - x).flatten() / EPS
    shares = torch.histc(start.float(), 4, -1, 1) / len(start)
    assert shares.tolist() == pytest.approx([0.25] * 4, abs=0.02)


def test_a_start_depends_on_the_generator_alone_and_not_on_the_batch() -> None:
    model, x, y = TwoClasses(random_weight()), pixels(), torch.arange(6) % 2

    def starts(seed: int, *sizes: int) -> Tensor:
        generator = step_generator(seed, 0)
        parts = zip(x.split(sizes), y.split(sizes), strict=True)
        return torch.cat([pgd(model, *part, step=0.0, steps=1, generator=generator) for part in parts])

    assert torch.equal(starts(0, 6), starts(0, 2, 3, 1))
    assert not torch.equal(starts(0, 6), starts(1, 6))
    assert torch.equal(pgd(model, x, y), pgd(model, x, y))


# --- the gradient ----------------------------------------------------------------------------------------------------


def test_the_gradient_passes_torchs_gradcheck_through_the_normalization() -> None:
    model = WithNormalization(Smooth().double(), card(4))
    y = torch.tensor([0, 3])

    class Loss(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return loss(model, x, y).sum()

        @staticmethod
        def backward(ctx: Any, upstream: Tensor) -> Tensor:
            (x,) = ctx.saved_tensors
            return upstream * pixel_gradient(model, x, y)

    assert torch.autograd.gradcheck(Loss.apply, pixels(2).requires_grad_())


def test_eps_is_a_distance_of_pixels_not_of_normalized_values() -> None:
    inner = Smooth().double()
    x, y = pixels(4, low=0.2, high=0.8), torch.arange(4)
    moved = fgsm(WithNormalization(inner, card(4)), x, y) - x
    torch.testing.assert_close(moved.abs(), torch.full_like(moved, EPS))


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_attacks_work_where_gradients_are_off(around: Callable[[], Any]) -> None:
    model, y = HandWritten().requires_grad_(False), torch.arange(4)
    expected = [attack(model, pixels(4, 16).float(), y) for attack in (fgsm, pgd)]
    with around():
        x, y = pixels(4, 16).float(), torch.arange(4)
        found = [attack(model, x, y) for attack in (fgsm, pgd)]
    for one, other in zip(expected, found, strict=True):
        assert torch.equal(one, other.clone())


def test_model_images_and_random_numbers_are_left_alone() -> None:
    model = HandWritten().train()
    model.body.eval()
    x, y = pixels(4, 16).float(), torch.arange(4)
    kept = x.clone()
    with unchanged(model):
        fgsm(model, x, y)
        pgd(model, x, y)
    assert torch.equal(x, kept)
    assert not x.requires_grad


def detached(x: Tensor) -> Tensor:
    return x.detach() + 0.0


@torch.no_grad()
def without_grad(x: Tensor) -> Tensor:
    return x * 2


def in_whole_numbers(x: Tensor) -> Tensor:
    return (x * 255).byte().float()


@pytest.mark.parametrize("function", [detached, without_grad, in_whole_numbers])
@pytest.mark.parametrize("trainable", [True, False])
def test_a_model_without_a_gradient_is_refused(function: Callable[[Tensor], Tensor], trainable: bool) -> None:
    model = nn.Sequential(Of(function), nn.Linear(2, 2)).requires_grad_(trainable)
    with pytest.raises(AutomixError, match=r"differentiable.*no gradient"):
        fgsm(model, *images())
    with pytest.raises(AutomixError, match=r"differentiable.*no gradient"):
        evaluate_attacks(model, gray([10, 200], [0, 1]))


def images() -> tuple[Tensor, Tensor]:
    return pixels(2, 4).float(), torch.tensor([0, 1])


def test_a_gradient_that_is_not_finite_is_refused() -> None:
    model = Of(lambda mean: mean.sqrt())  # infinitely steep where everything is black
    with pytest.raises(AutomixError, match=r"finite gradients.*1 of 2 images"):
        evaluate_attacks(model, gray([0, 200], [0, 1]))


def test_a_model_of_inference_mode_is_refused() -> None:
    with torch.inference_mode():
        model = TwoClasses(torch.ones(3, 4, 4))
    with pytest.raises(AutomixError, match=r"inference_mode"):
        fgsm(model, *images())


# --- the evaluation --------------------------------------------------------------------------------------------------


def brightness(factor: float = 20.0) -> nn.Module:
    return Of(lambda mean: factor * (mean - 0.5))


def test_errors_by_hand_over_all_images() -> None:
    """Between 127 and 128 dark becomes bright; 8 levels are added or taken away. 100 is called bright: always wrong."""
    samples = gray([60, 125, 119, 120, 200, 130, 100], [0, 0, 0, 0, 1, 1, 1])
    for batch_size in (1, 3, 100):
        found = evaluate_attacks(brightness(), samples, batch_size=batch_size)
        assert list(found.values) == ["clean_error", "fgsm_error", "pgd_error"]
        assert found.values["clean_error"] == pytest.approx(100 / 7)
        assert found.values["fgsm_error"] == pytest.approx(400 / 7)
        assert found.values["pgd_error"] == pytest.approx(400 / 7)
    assert len(found.notes) == 1
    assert "8/255 in l_inf, PGD with 20 steps of 2/255; errors are over all 7 images" in found.notes[0]
    smaller = evaluate_attacks(brightness(), samples, eps=3 / 255)  # 120 becomes 123 only
    assert smaller.values["fgsm_error"] == smaller.values["pgd_error"] == pytest.approx(300 / 7)
    assert len(set(evaluate_attacks(brightness(), samples, eps=0).values.values())) == 1


@pytest.mark.parametrize("batch_size", [4, 10])
def test_errors_are_those_on_the_images_of_fgsm_and_pgd(batch_size: int) -> None:
    asked: list[Tensor] = []

    class Asked(TwoClasses):
        def forward(self, x: Tensor) -> Tensor:
            if not torch.is_grad_enabled():
                asked.append(x)
            return super().forward(x)

    model, samples = Asked(random_weight(16).float()), noise(10, num_classes=2)
    x, y = next(samples.batches(10))
    # Two steps of a quarter: too few to forget where they started.
    expected = (x, fgsm(model, x, y, 0.02), pgd(model, x, y, 0.02, 0.005, 2, step_generator(7, 0, stream="pgd")))
    found = evaluate_attacks(model, samples, eps=0.02, steps=2, seed=7, batch_size=batch_size)
    batches = -(-10 // batch_size)  # first all clean images, then each batch attacked in two ways
    parts = asked[:batches], asked[batches::2], asked[batches + 1 :: 2]
    for part, images, value in zip(parts, expected, found.values.values(), strict=True):
        torch.testing.assert_close(torch.cat(part), images)
        assert value == pytest.approx(100 * (model(images).argmax(dim=1) != y).float().mean().item())


def test_a_note_warns_of_gradients_of_zero() -> None:
    saturated = evaluate_attacks(brightness(factor=1e4), gray([10, 20, 126, 127], [0, 0, 0, 0]))
    assert saturated.values == {"clean_error": 0, "fgsm_error": 50, "pgd_error": 50}
    assert "the gradient is zero for 50 % of the images" in saturated.notes[1]
    flat = evaluate_attacks(Of(lambda mean: (mean * 255).round() - 127), gray([10, 126], [0, 0]))
    assert "the gradient is zero for 100 % of the images" in flat.notes[1]
    assert flat.values["fgsm_error"] == 0


def test_a_note_warns_if_pgd_does_less_than_fgsm() -> None:
    """The way up ends on a small hill at 2 levels; what counts lies beyond 7, where one large step lands."""

    def hill_before_the_mountain(mean: Tensor) -> Tensor:
        above = 255 * mean - 100
        return -1 - 0.2 * (above - 2).abs() + 4 * (above - 7).clamp(min=0)

    found = evaluate_attacks(Of(hill_before_the_mountain), gray([100], [0]))
    assert found.values == {"clean_error": 0, "fgsm_error": 100, "pgd_error": 0}
    assert found.notes[1].startswith("warning: 20 steps (PGD) do less than one (FGSM), a sign of masked gradients")


def test_the_picture_shows_the_first_image_of_each_class() -> None:
    model = brightness()
    found = evaluate_attacks(model, gray([10, 11, 12, 130, 131], [0, 0, 0, 1, 1]), batch_size=2)
    picture = found.pictures["attacks"]()
    assert picture.mode == "RGB"
    examples = [Example(label, torch.rand(3, 3, 8, 8), [label, 0, 1]) for label in (0, 1)]
    other = draw_examples(examples, ("dark", "a name much too long to be shown"), found.values, EPS, 20)
    assert other.size == picture.size  # two columns
    assert evaluate_attacks(model, gray([10, 11], [0, 0]), eps=0).pictures["attacks"]().width >= 700  # the title fits


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: fgsm(brightness(), 2 * x - 1, y), r"^x.*\[0, 1\]"),
        (lambda x, y: pgd(brightness(), x + 0.5, y), r"^x.*\[0, 1\]"),
        (lambda x, y: pgd(brightness(), x * float("nan"), y), r"^x.*\[0, 1\]"),
        (lambda x, y: fgsm(brightness(), x[0], y), r"^x.*\(N, C, H, W\)"),
        (lambda x, y: fgsm(brightness(), x, F.one_hot(y)), r"^y.*\(2,\)"),
        (lambda x, y: fgsm(brightness(), x, y + 1), r"class.*\[0, 1\].*2"),
        (lambda x, y: fgsm(brightness(), x, y, eps=8), "^eps.*0.*1"),
        (lambda x, y: pgd(brightness(), x, y, eps=-0.1), "^eps.*0.*1"),
        (lambda x, y: pgd(brightness(), x, y, steps=0), "^steps.*1"),
        (lambda x, y: pgd(brightness(), x, y, step=-1), "^step.*0.*1"),
        (lambda x, y: evaluate_attacks(brightness(), gray([1], [0]), eps=8), "^eps.*0.*1"),
        (lambda x, y: evaluate_attacks(brightness(), gray([1], [0]), steps=0), "^steps.*1"),
    ],
)
def test_wrong_input_is_refused(call: Callable[[Tensor, Tensor], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call(*images())


@pytest.mark.skipif("AUTOMIX_DATA" not in os.environ, reason="AUTOMIX_DATA is not set")
def test_real_photos() -> None:
    _, test = open_dataset("cifar100")
    samples = Samples(test, 32).first(40)
    network = automix.create_model("resnet18", num_classes=100, image_size=32, channels=(8, 8, 16, 16))
    model = WithNormalization(network, card(100)).eval()
    found = evaluate_attacks(model, samples, steps=3, batch_size=16)
    assert all(0 <= value <= 100 for _, value in found)
    x, y = next(samples.batches(40))
    assert loss(model, x, y).mean() < loss(model, fgsm(model, x, y), y).mean()
    assert found.pictures["attacks"]().width > 700
