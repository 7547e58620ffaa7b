"""The lines of a training: the minutes it will take, and the step from which images are clean."""

import io
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from automix.training import display


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A clock that the test sets."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(display.time, "monotonic", lambda: clock.now)
    return clock


def lines_of_steps(
    clock: SimpleNamespace, seconds: list[float], *, first: int = 0, clean_from: int = 1000
) -> list[str]:
    """What is printed while steps take these seconds, in a training of 610 steps."""
    shown = io.StringIO()
    lines = display.Lines(Console(file=shown, width=200))
    lines.first_step = first
    for step, duration in enumerate(seconds, first + 1):
        clock.now += duration
        run: Any = SimpleNamespace(step=step, total_steps=610)
        lines.step(run, {"loss_clean": 1.0} if step >= clean_from else {"loss_mixed": 2.0})
    return shown.getvalue().splitlines()


@pytest.mark.parametrize("first", [0, 300])
def test_ten_steps_tell_the_minutes_and_the_first_two_do_not_count(clock: SimpleNamespace, first: int) -> None:
    """Steps of half a second after two slow ones: 600 more take five minutes, 300 more half of it."""
    slow = [40.0, 9.0]
    assert lines_of_steps(clock, [*slow, *[0.5] * 7], first=first) == []
    expected = {
        0: "about 5 minutes for 600 more steps at this speed",
        300: "about 2 minutes for 300 more steps at this speed",
    }
    assert lines_of_steps(clock, [*slow, *[0.5] * 20], first=first) == [expected[first]]


def test_the_end_of_mixing_is_named_once(clock: SimpleNamespace) -> None:
    lines = lines_of_steps(clock, [0.5] * 9, clean_from=6)
    assert lines == ["mixing ends after step 5: from here on the images are clean, and their loss is lower"]
    assert lines_of_steps(clock, [0.5] * 9, clean_from=0) == []


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0 seconds"), (89, "89 seconds"), (90, "2 minutes"), (5399, "90 minutes"), (9000, "2.5 hours")],
)
def test_times_are_written_for_people(seconds: int, words: str) -> None:
    assert display.in_minutes(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize(("classes", "columns"), [(5, 2), (6, 3)])
def test_top5_is_shown_only_where_it_can_be_below_100(classes: int, columns: int) -> None:
    run: Any = SimpleNamespace(data=SimpleNamespace(classes=("a",) * classes), folder=SimpleNamespace(path="runs/x"))
    numbers = {"student_top1": 50.0, "student_top5": 100.0, "best_top1": 60.0, "best_epoch": 1}
    summary = {**numbers, "steps": 4, "seconds": 3.0, "epochs_in_median": 2, "median_top1_of_last_epochs": 55.0}
    table = display.summary_table(run, summary)
    assert (len(table.columns), table.row_count) == (columns, 3)
