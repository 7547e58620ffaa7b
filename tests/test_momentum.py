"""The momentum teacher (Eq. 12)."""

import copy
import math
from functools import partial

import pytest
import torch
from conftest import HandWritten
from torch import nn

from automix.networks.teacher import follow, make_teacher, momentum_at


def test_the_schedule() -> None:
    late = 10**9  # past the warm-up
    assert momentum_at(late, 0.0, 0.999) == pytest.approx(0.999)
    assert momentum_at(late, 0.5, 0.999) == pytest.approx(0.9995)
    assert momentum_at(late, 1.0, 0.999) == pytest.approx(1.0)
    assert momentum_at(0, 0.0, 0.999) == pytest.approx(0.1)
    assert momentum_at(90, 0.0, 0.999) == pytest.approx(0.91)
    assert momentum_at(90, 1.0, 0.5) == pytest.approx(0.91)
    assert momentum_at(10**9, 0.25, 0.9) == pytest.approx(1 - 0.1 * (1 + math.cos(math.pi / 4)) / 2)
    assert momentum_at(5000, 0.7, 0.0) == 0.0
    assert momentum_at(0, 0.0, 0.999, warmup=False) == pytest.approx(0.999)


def test_after_the_hold_the_cosine_is_that_of_the_whole_training() -> None:
    """As the authors' CosineScheduleHook has it: m steps up to the cosine, which does not begin anew."""
    held = partial(momentum_at, 0, base=0.9, hold=0.25, warmup=False)
    assert held(0.24) == pytest.approx(0.9)
    assert held(0.25) == pytest.approx(1 - 0.1 * (1 + math.cos(math.pi / 4)) / 2)
    assert held(0.5) == pytest.approx(0.95)
    assert held(1.0) == pytest.approx(1.0)


def test_teacher_after_n_updates_is_the_closed_form() -> None:
    """theta_k = m^n theta_0 + (1 - m) sum_t m^(n-1-t) theta_t, buffers alike; counters are copied."""
    student = HandWritten().double()
    teacher = make_teacher(student)
    start = {name: value.clone() for name, value in student.state_dict().items()}
    m, history = 0.8, []
    for _ in range(6):
        with torch.no_grad():
            for parameter in student.parameters():
                parameter.add_(torch.randn_like(parameter))
        student(torch.randn(4, 3, 8, 8, dtype=torch.float64))  # moves the running statistics
        history.append({name: value.clone() for name, value in student.state_dict().items()})
        follow(teacher, student, m)
    n = len(history)
    for name, value in teacher.state_dict().items():
        if value.is_floating_point():
            expected = m**n * start[name] + (1 - m) * torch.stack(
                [m ** (n - 1 - t) * past[name] for t, past in enumerate(history)]
            ).sum(dim=0)
            torch.testing.assert_close(value, expected)
        else:
            assert torch.equal(value, history[-1][name])


def test_momentum_zero_copies_and_one_stands_still() -> None:
    student = HandWritten()
    teacher = make_teacher(student)
    with torch.no_grad():
        student.head.weight.add_(1)
    before = teacher.state_dict()["head.weight"].clone()
    follow(teacher, student, 1.0)
    assert torch.equal(teacher.state_dict()["head.weight"], before)
    follow(teacher, student, 0.0)
    assert torch.equal(teacher.state_dict()["head.weight"], student.head.weight)


def test_a_teacher_takes_no_gradient_and_shares_nothing() -> None:
    student = HandWritten()
    teacher = make_teacher(student)
    assert not teacher.training
    assert not any(parameter.requires_grad for parameter in teacher.parameters())
    assert not {p.data_ptr() for p in teacher.parameters()} & {p.data_ptr() for p in student.parameters()}


def test_infinite_constants_stay_what_they_are() -> None:
    """Attention masks are kept as unsaved buffers of -inf and 0; averaging -inf with -inf would give NaN."""
    model = nn.Linear(2, 2)
    model.register_buffer("mask", torch.tensor([0.0, -torch.inf]), persistent=False)
    teacher = make_teacher(model)
    follow(teacher, model, 0.5)
    assert teacher.mask.tolist() == [0.0, -torch.inf]  # type: ignore[operator]


def test_a_model_without_buffers_or_without_parameters() -> None:
    for model in (nn.Linear(2, 2), nn.Identity()):
        follow(make_teacher(model), model, 0.5)


def test_follow_reads_no_state_dict_and_sees_every_change_of_the_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """After load_state_dict, a change of dtype, a deepcopy and a parametrization, the current tensors are averaged."""
    student = HandWritten()
    teacher = make_teacher(student)
    monkeypatch.setattr(nn.Module, "state_dict", lambda *_, **__: pytest.fail("state_dict in a training step"))
    follow(teacher, student, 0.5)
    monkeypatch.undo()
    other = HandWritten()
    student.load_state_dict(other.state_dict())
    student, teacher = copy.deepcopy(student).double(), copy.deepcopy(teacher).double()
    follow(teacher, student, 0.0)
    for name, value in teacher.state_dict().items():
        assert torch.equal(value, other.state_dict()[name].to(value.dtype))
    nn.utils.parametrizations.weight_norm(student.head)
    teacher = make_teacher(student)
    with torch.no_grad():
        student.get_parameter("head.parametrizations.weight.original0").add_(1)
    follow(teacher, student, 0.0)
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    assert torch.equal(teacher(images), student.eval()(images))


def test_follow_leaves_buffers_alone_that_are_not_saved() -> None:
    student = HandWritten()
    student.register_buffer("constant", torch.tensor([1.0, 2.0]), persistent=False)
    student.register_buffer("statistic", torch.tensor([1.0, 2.0]))
    teacher = make_teacher(student)
    student.get_buffer("constant").add_(1)
    student.get_buffer("statistic").add_(1)
    follow(teacher, student, 0.0)
    assert teacher.get_buffer("constant").tolist() == [1.0, 2.0]
    assert teacher.get_buffer("statistic").tolist() == [2.0, 3.0]
