"""Loss terms back-propagated one by one give the gradients of their sum and do not keep each other's activations."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import HandWritten, batch
from torch import Tensor, nn

import automix
from automix.tasks.early_backward import backward_early


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("automix", {"layer": "body"}),
        ("automix", {"layer": "body", "preset": "paper"}),
        ("automix", {"layer": "body", "aux_loss": "clean"}),
        ("automix", {"layer": "body", "aux_loss": "mixup", "block_share": 1.0}),
        ("automix", {"layer": "body", "aux_loss": "joined", "block_share": 0.5}),
        (
            "automix",
            {"layer": "body", "momentum": None, "preset": "paper"},
        ),  # shares a graph
        ("mixup", {"one_hot_loss": True}),
        ("manifoldmix", {"layers": ("body",), "one_hot_loss": True}),
    ],
)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_the_gradients_are_those_of_the_sum(method: str, options: dict[str, Any], precision: torch.dtype) -> None:
    x, y = batch()
    task = automix.create_task(method, HandWritten(), low_memory=True, **options)
    other = copy.deepcopy(task)
    other.low_memory = False

    def accumulate(task: nn.Module) -> float:
        """Two pieces of a batch, scaled as a loop that accumulates would."""
        for _ in range(2):
            with torch.autocast("cpu", precision, enabled=precision != torch.float32):
                loss = task(x, y).loss
            (loss / 2).backward()
        return loss.item()

    loss = accumulate(task)
    assert accumulate(other) == loss
    for (name, ours), theirs in zip(task.named_parameters(), other.parameters(), strict=True):
        assert (ours.grad is None) == (theirs.grad is None), name
        if ours.grad is not None and theirs.grad is not None:
            tolerance = 1e-5 if precision == torch.float32 else 2e-2
            gap = (ours.grad - theirs.grad).norm()
            assert gap <= tolerance * theirs.grad.norm(), name


def _nodes(node: Any) -> Iterator[Any]:
    if node is not None:
        yield node
        for following, _ in node.next_functions:
            yield from _nodes(following)


def _convolutions(loss: Tensor) -> int:
    return len({node for node in _nodes(loss.grad_fn) if type(node).__name__ == "ConvolutionBackward0"})


def test_with_low_memory_only_the_last_pass_is_kept() -> None:
    """HandWritten has 2 convolutions: of three passes only the teacher's is in the graph."""
    x, y = batch()
    kept, all_of_them = (
        _convolutions(automix.AutoMix(HandWritten(), layer="body", low_memory=low_memory)(x, y).loss)
        for low_memory in (True, False)
    )
    assert all_of_them == kept + 4


@pytest.mark.parametrize("options", [{}, {"preset": "paper"}, {"preset": "fast"}])
def test_by_default_gradients_come_from_backward_alone(options: dict[str, Any]) -> None:
    """Hooks fire once, autograd.grad and retain_graph work, and layers in front of the task get their gradient."""
    x, y = batch()
    task = automix.AutoMix(HandWritten(), layer="body", **options)
    weight = next(iter(task.student.parameters()))
    calls: list[Tensor] = []
    weight.register_hook(calls.append)
    x.requires_grad_()
    out = task(x, y)
    assert calls == []
    assert all(parameter.grad is None for parameter in task.parameters())
    (direct,) = torch.autograd.grad(out.loss, weight, retain_graph=True)
    out.loss.backward(retain_graph=True)
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, direct)
    assert len(calls) == 2  # autograd.grad calls it, too
    assert x.grad is not None
    assert bool(x.grad.any())
    before = weight.grad.clone()
    out.logits.sum().backward()  # a term of the user's own on the logits trains the student
    assert not torch.equal(weight.grad, before)


def test_a_factor_reaches_the_gradients_and_backward_works_once() -> None:
    weight, frozen = torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([5.0, 7.0])
    unused = torch.ones(1, requires_grad=True)
    loss = backward_early((weight**2 * frozen).sum(), [weight, frozen, unused])
    assert loss.item() == 83.0
    (10 * loss).backward(retain_graph=True)
    assert weight.grad is not None
    assert weight.grad.tolist() == [200.0, 420.0]  # 10 * 2 * weight * frozen
    assert unused.grad is None
    with pytest.raises(RuntimeError, match="backward was called twice"):
        loss.backward()


def test_a_loss_that_cannot_be_back_propagated_early_stays() -> None:
    weight = torch.ones(2, requires_grad=True)
    loss = weight.sum()
    with torch.autocast("cpu", torch.float16):  # the scaler's factor is not known yet
        assert backward_early(loss, [weight]) is loss
    assert backward_early(loss.detach(), [weight]).grad_fn is None
    done = backward_early(loss, [weight])
    assert backward_early(done, [weight]) is done
