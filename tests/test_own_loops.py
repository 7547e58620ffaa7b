"""Mistakes in a loop of the user's own: each gives the right gradients, a warning or an error, never a wrong number."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import HandWritten, batch
from torch import Tensor, nn
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR

import automix
from automix import Task

PRESETS = ["tuned", "paper", "fast"]


def make(**options: Any) -> automix.AutoMix:
    torch.manual_seed(1)
    return automix.AutoMix(HandWritten(), layer="body", **options)


def step(task: Task, optimizer: torch.optim.Optimizer) -> None:
    loss = task(*batch()).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


# --- gradients


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("low_memory", [False, True])
def test_a_parameter_hook_acts_once(preset: str, low_memory: bool) -> None:
    """A hook that halves gradients halves them, also where loss terms would be back-propagated one by one."""
    plain, hooked = make(preset=preset), make(preset=preset, low_memory=low_memory)
    for parameter in hooked.student.parameters():
        parameter.register_hook(lambda gradient: 0.5 * gradient)
    plain(*batch()).loss.backward()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):  # says so once
            hooked.zero_grad()
            hooked.step, hooked._calls = 0, 0
            hooked(*batch()).loss.backward()
    assert [str(one.message) for one in caught] == ["low_memory has no effect: a parameter has a hook"] * low_memory
    # BatchNorm is in training mode, so that a second pass over the same batch has the same gradients
    for mine, theirs in zip(hooked.student.parameters(), plain.student.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, 0.5 * theirs.grad)  # type: ignore[operator]


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("low_memory", [False, True])
@pytest.mark.filterwarnings("ignore:low_memory has no effect")
def test_a_layer_in_front_of_the_task_gets_its_whole_gradient(preset: str, low_memory: bool) -> None:
    """Against a difference quotient along the gradient; the masks are constants, so that they are frozen."""
    x, y = batch()
    task = make(preset=preset, low_memory=low_memory, momentum=0.9).double()
    x = x.double()

    def fix_masks(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        return torch.full_like(output, 0.3) + 0 * output

    task.mix_block.register_forward_hook(fix_masks)
    scale = torch.ones(1, 3, 1, 1, dtype=torch.float64, requires_grad=True)  # the layer in front

    def loss(scale: Tensor) -> Tensor:
        return copy.deepcopy(task)(scale * x, y).loss

    (gradient,) = torch.autograd.grad(loss(scale), scale)
    direction = gradient / gradient.norm()
    h = 1e-6
    with torch.no_grad():
        quotient = (loss(scale + h * direction) - loss(scale - h * direction)) / (2 * h)
    torch.testing.assert_close((gradient * direction).sum(), quotient, rtol=1e-5, atol=1e-8)


def test_a_loss_on_the_logits_trains_or_is_refused() -> None:
    task = make()
    out = task(*batch())
    out.logits.square().mean().backward()
    assert all(parameter.grad is not None for parameter in task.student.parameters())
    frugal = make(low_memory=True)
    out = frugal(*batch())
    out.loss.backward()  # as always
    with pytest.raises(automix.AutomixError, match=r"low_memory must be False for a loss on out\.logits"):
        out.logits.square().mean().backward()


# --- labels


def test_float_rows_of_several_labels_are_refused() -> None:
    x, _ = batch()
    rows = torch.zeros(len(x), 5)
    rows[:, :2] = 1
    with pytest.raises(automix.AutomixError, match=r"rows of y must sum to 1.*got 2; pass multi-label rows as bool"):
        make()(x, rows)
    expected = nn.functional.binary_cross_entropy_with_logits
    task = automix.create_task("vanilla", HandWritten())
    out = task(x, rows.bool())
    torch.testing.assert_close(out.loss, expected(out.logits, rows))


def test_on_a_device_rows_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look would wait for the device: the first batch tells."""
    looks: list[Tensor] = []
    monkeypatch.setattr("automix.tasks.task.check_soft_rows", looks.append)
    task = make(total_steps=3)
    for _ in range(3):
        task(*batch())
        task.update()
    assert len(looks) == 1


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        (nn.CrossEntropyLoss(reduction="none"), r"criterion must return a scalar, got shape \(6,\)"),
        (lambda logits, y: nn.functional.nll_loss(logits.log_softmax(1), y), "criterion must take soft rows"),
        (nn.MultiMarginLoss(), r"criterion must take soft rows.*MultiMarginLoss says"),
    ],
)
def test_a_criterion_that_cannot_take_mixed_labels(criterion: Callable[..., Tensor], message: str) -> None:
    with pytest.raises(automix.AutomixError, match=message):
        make(criterion=criterion)(*batch())


def test_torchs_cross_entropy_is_ours() -> None:
    torch.testing.assert_close(make(criterion=nn.CrossEntropyLoss())(*batch()).loss, make()(*batch()).loss)


# --- update and progress


def test_an_update_that_is_forgotten_is_noticed_after_ten_steps() -> None:
    task = make()
    optimizer = torch.optim.SGD(task.param_groups(lr=0.01))
    for _ in range(10):
        step(task, optimizer)
    with pytest.warns(UserWarning, match=r"task.update\(\) was not called for 10 optimizer steps"):
        step(task, optimizer)
    step(task, optimizer)  # said once; a second warning would be an error here


def test_accumulated_batches_are_no_forgotten_update() -> None:
    task = make()
    optimizer = torch.optim.SGD(task.param_groups(lr=0.01))
    for number in range(3):
        for _ in range(20):
            task(*batch()).loss.backward()
        optimizer.step()
        task.update(number / 3)


def test_progress_that_stays_at_0_is_noticed() -> None:
    """As with ``step // total``."""
    task = automix.create_task("mixup", HandWritten())
    for _ in range(100):
        task.update(0)
    with pytest.warns(UserWarning, match=r"progress is 0 after 100 updates"):
        task.update(0)


# --- the optimizer


def test_an_optimizer_without_the_mix_block_is_noticed() -> None:
    task = make()
    optimizer = torch.optim.SGD(task.student.parameters(), lr=0.01)
    for number in range(20):
        step(task, optimizer)
        task.update(number / 30)
    step(task, optimizer)
    with pytest.warns(UserWarning, match=r"the Mix Block is not trained.*task.param_groups"):
        task.update(20 / 30)


def test_a_scheduler_that_overwrites_the_blocks_learning_rate_is_noticed() -> None:
    task = make(block_lr=0.25)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9)
    OneCycleLR(optimizer, max_lr=0.1, total_steps=10)
    step(task, optimizer)
    with pytest.warns(UserWarning, match=r"learning rate to 1 times the student's instead of 0\.25.*max_lr=\["):
        task.update(0.0)


@pytest.mark.parametrize("kind", ["none", "cosine", "list"])
def test_a_scheduler_that_keeps_it_is_not(kind: str) -> None:
    task = make(block_lr=0.25)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9)
    if kind == "cosine":
        CosineAnnealingLR(optimizer, 10)
    elif kind == "list":
        OneCycleLR(optimizer, max_lr=[group["lr"] for group in optimizer.param_groups], total_steps=10)
    for number in range(3):
        step(task, optimizer)
        task.update(number / 3)


# --- modes


def test_a_model_left_in_eval_mode_is_noticed() -> None:
    """As after an evaluation of the model itself, which the task does not see."""
    task = make()
    task(*batch())
    task.student.eval()
    with pytest.warns(UserWarning, match=r"model is in eval mode while its task trains: call task.train\(\)"):
        task(*batch())
    task(*batch())
    task.train()
    assert task.student.training
