"""Mixing that fades out: how often, for whom, and that a run resumes in it."""

from typing import Any

import pytest
import scipy.stats
import torch
from conftest import HandWritten, batch
from test_tasks import every_method, make, same_state, train

import automix
from automix import Task


def mixed_steps(task: Task, progress: float, steps: int) -> int:
    """How many steps mix when the training is at this point."""
    task.progress = progress
    count = 0
    for task.step in range(steps):
        count += task.mixes_now()
    return count


def test_the_share_of_mixed_batches_falls_linearly() -> None:
    task = make("mixup", mix_fade=0.4, mix_until=0.8)
    for progress, share in ((0.0, 1.0), (0.4, 1.0), (0.5, 0.75), (0.6, 0.5), (0.7, 0.25), (0.8, 0.0), (1.0, 0.0)):
        found = mixed_steps(task, progress, 400)
        assert found == share * 400 if share in (0, 1) else scipy.stats.binomtest(found, 400, share).pvalue > 0.01
    assert task.mixed_share == pytest.approx(0.6)
    until_the_end = make("mixup", mix_fade=0.5)
    assert mixed_steps(until_the_end, 1.0, 50) == 0
    assert until_the_end.mixed_share == 0.75
    assert make("mixup").mixed_share == 1


def test_a_step_mixes_or_is_clean_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """All parts of a step's batch, and all processes, take the same way."""
    x, y = batch()
    task = make("cutmix", mix_fade=0.0)
    kinds = set()
    for step in range(20):
        names = set()
        for rank in (0, 1):
            monkeypatch.setattr("automix.tasks.task.rank_and_world", lambda rank=rank: (rank, 2))
            names |= {frozenset(task(x, y).metrics) for _ in range(2)}
        assert len(names) == 1
        kinds |= names
        task.update(0.5 * (step + 1) / 20)
    assert len(kinds) == 2


@every_method
def test_resume_in_the_fade(name: str) -> None:
    options: dict[str, Any] = {"mix_fade": 0.1, "mix_until": 0.9, "ema": True}
    straight, stopped, resumed = (make(name, **options) for _ in range(3))
    train(straight, range(6))
    train(stopped, range(3))
    resumed.load_state_dict(stopped.state_dict())
    train(resumed, range(3, 6))
    assert same_state(straight, resumed)


def test_without_a_fade_all_is_as_it_was() -> None:
    plain, given = make("automix"), make("automix", mix_fade=None)
    for task in (plain, given):
        train(task, range(4))
    assert same_state(plain, given)
    assert "mix_fade" not in automix.AutoMixSettings().to_dict()
    assert automix.AutoMixSettings.from_preset("tuned", mix_fade=0.2).to_dict()["mix_fade"] == 0.2


@pytest.mark.parametrize("wrong", [-0.1, 0.7, 0.8])
def test_wrong_fades_are_refused(wrong: float) -> None:
    for name in ("mixup", "automix"):
        with pytest.raises(ValueError, match="mix_fade"):
            make(name, mix_fade=wrong, mix_until=0.7)
    assert torch.is_tensor(automix.create_task("mixup", HandWritten(), mix_fade=0.0, mix_until=0.7)(*batch()).loss)
