"""DecoupledMix's loss, against a slow sum over the classes, and with every method."""

import math
from typing import Any

import pytest
import torch
from conftest import batch
from method_data import traits
from torch import Tensor

import automix
from automix import CrossEntropy, Decoupled, MixedTarget
from automix.core import decoupled_loss
from automix.runs.recipes import find_recipe
from automix.training.build import choose_criterion


def slow(logits: Tensor, mixed_classes: list[set[int]]) -> float:
    total = 0.0
    for row, mixed in zip(logits.tolist(), mixed_classes, strict=True):
        others = sum(math.exp(value) for k, value in enumerate(row) if k not in mixed)
        if len(mixed) > 1:
            total += sum(-math.log(math.exp(row[i]) / (math.exp(row[i]) + others)) for i in mixed)
    return total / len(logits)


def test_by_a_slow_sum() -> None:
    logits = torch.randn(4, 5, dtype=torch.float64)
    y_a, y_b = torch.tensor([0, 1, 2, 3]), torch.tensor([4, 0, 2, 1])
    expected = slow(logits, [{0, 4}, {1, 0}, {2}, {3, 1}])
    for lam in (torch.tensor(0.3), torch.tensor([0.1, 0.5, 0.7, 0.9])):  # shares do not count
        assert decoupled_loss(logits, MixedTarget(y_a, y_b, lam)).item() == pytest.approx(expected)
    rows = MixedTarget(y_a, y_b, torch.tensor(0.3)).soft(5)
    assert decoupled_loss(logits, MixedTarget.clean(rows)).item() == pytest.approx(expected)
    three = torch.tensor([[0.2, 0.3, 0.5, 0, 0]] * 4)
    assert decoupled_loss(logits, MixedTarget.clean(three)).item() == pytest.approx(slow(logits, [{0, 1, 2}] * 4))


def test_samples_of_one_class_have_no_such_term() -> None:
    logits, y = torch.randn(3, 5), torch.tensor([0, 1, 2])
    assert decoupled_loss(logits, MixedTarget.clean(y)).item() == 0
    for lam, shown in ((1.0, y), (0.0, y.roll(1))):
        target = MixedTarget(y, y.roll(1), torch.tensor(lam))
        assert decoupled_loss(logits, target).item() == 0
        torch.testing.assert_close(Decoupled(eta=1.0)(logits, target), torch.nn.functional.cross_entropy(logits, shown))


def test_mixed_classes_do_not_compete() -> None:
    """The logit of one mixed class has the same gradient whatever the other one's is."""
    target = MixedTarget(torch.tensor([0]), torch.tensor([1]), torch.tensor(0.8))
    gradients = []
    for other in (-3.0, 0.0, 9.0):
        logits = torch.tensor([[0.5, other, 0.2, -1.0]], requires_grad=True)
        (gradient,) = torch.autograd.grad(decoupled_loss(logits, target), logits)
        gradients.append(gradient[0, 0].item())
        assert gradient[0, 1].item() < 0  # and it asks for both
    assert gradients == pytest.approx([gradients[0]] * 3)
    (coupled,) = torch.autograd.grad(target.cross_entropy(logits), logits)
    assert coupled[0, 0].item() != pytest.approx(0.8 * gradients[0])


@pytest.mark.parametrize("size", [1e4, 1e-4])
def test_two_classes_and_large_logits(size: float) -> None:
    """All classes mixed: nothing is left to compete with."""
    logits = torch.tensor([[size, -size], [-size, size]], requires_grad=True)
    target = MixedTarget(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor(0.5))
    loss = decoupled_loss(logits, target)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()
    many = torch.tensor([[size, -size, size]], requires_grad=True)
    decoupled_loss(many, MixedTarget(torch.tensor([0]), torch.tensor([1]), torch.tensor(0.5))).backward()
    assert many.grad is not None
    assert many.grad.isfinite().all()


def test_types_and_what_is_refused() -> None:
    target = MixedTarget(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor(0.5))
    assert decoupled_loss(torch.randn(2, 3).bfloat16(), target).dtype == torch.float32
    multi = MixedTarget.clean(torch.randint(2, (2, 3)))
    with pytest.raises(ValueError, match=r"^the decoupled loss is for class indices"):
        Decoupled()(torch.randn(2, 3), multi)
    with pytest.raises(ValueError, match=r"^eta must be >= 0, got -1"):
        Decoupled(eta=-1)


@pytest.mark.parametrize("name", automix.methods())
def test_with_every_method(name: str) -> None:
    x, y = batch()

    def first_step(**options: Any) -> automix.StepOutput:
        torch.manual_seed(3)
        own = {"bce": False} if name == "comixup" else {}  # its own loss is a binary cross-entropy
        return automix.create_task(name, traits(name).model(), **traits(name).options, **own, **options)(x, y)

    criteria = CrossEntropy(), Decoupled(eta=0), Decoupled(eta=0.5)  # Co-Mixup has another default
    plain, none, half = (first_step(criterion=criterion) for criterion in criteria)
    torch.testing.assert_close(none.loss, plain.loss)
    half.loss.backward()
    assert half.loss.isfinite()
    assert not traits(name).mixes or half.loss > plain.loss


def test_of_a_recipe() -> None:
    from dataclasses import replace

    quick = find_recipe("quick")
    chosen = choose_criterion(replace(quick, loss="decoupled", label_smoothing=0.1))
    assert chosen == Decoupled(CrossEntropy(0.1), 0.1)
    weighted = choose_criterion(replace(quick, loss="decoupled", balance="loss"), [1, 3])
    assert weighted == Decoupled(CrossEntropy(0.0, (2.0, 2 / 3)), 0.1)
