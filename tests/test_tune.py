"""`automix tune`: the search on a few images, killed and resumed; its margins against numbers worked out by hand."""

import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from automix.cli import main as cli
from automix.core.errors import AutomixError
from automix.data import open_dataset
from automix.runs.config import TrainConfig, read_config
from automix.runs.folder import RunFolder
from automix.studies.launchers import run_local
from automix.studies.tuning import find_candidates, plan_tuning, read_record, tune
from automix.studies.tuning.clock import Clock
from automix.studies.tuning.plan import least_epochs, lengths
from automix.studies.tuning.record import paired_margin
from automix.training.budget import Speed
from automix.views.tuning import render_tuning

optuna = pytest.importorskip("optuna")

SMALL: dict[str, Any] = {
    "recipe": "quick", "method": "vanilla", "epochs": 3, "batch_size": 6, "lr": 0.02, "device": "cpu", "train_size": 16,
    "test_size": 16, "model_options": {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]},
}  # fmt: skip
TUNING = sys.modules["automix.studies.tuning.tune"]
CLOCK = sys.modules["automix.studies.tuning.clock"]
PLAN = sys.modules["automix.studies.tuning.plan"]


def small(data: Path | str, **changes: Any) -> TrainConfig:
    return TrainConfig.from_flat({**SMALL, "data": str(data), **changes})


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three configurations, whose runs may have one epoch."""
    monkeypatch.setattr(TUNING, "MOST", 3)
    monkeypatch.setattr(PLAN, "LEAST_STEPS", 1)
    monkeypatch.setattr(PLAN, "LEAST_EPOCHS", 1)


def search(data: Path | str, out: Path, **changes: Any) -> Any:
    return tune(small(data, **changes), out, minutes=600, methods=("mixup", "cutmix"))


# --- the parts -------------------------------------------------------------------------------------------------------


def test_held_out_images_are_training_images_of_every_class(photos: Path) -> None:
    train, test = open_dataset(str(photos))
    kept, held = open_dataset(str(photos), validation=0.25)
    assert set(kept.paths) | set(held.paths) == set(train.paths)  # type: ignore[union-attr]
    assert not set(kept.paths) & set(held.paths)  # type: ignore[union-attr]
    assert not set(held.paths) & set(test.paths)  # type: ignore[union-attr]
    counts = [torch.bincount(part.labels).tolist() for part in (train, held)]  # type: ignore[arg-type]
    assert counts[1] == [max(1, round(0.25 * count)) for count in counts[0]]
    assert open_dataset(str(photos), validation=0.25)[1].paths == held.paths  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("epochs", "least", "expected"),
    [(1, 1, (1,)), (3, 1, (1, 3)), (20, 1, (2, 7, 20)), (8, 3, (8,)), (20, 5, (7, 20)), (45, 5, (5, 15, 45))],
)
def test_lengths_of_the_runs(epochs: int, least: int, expected: tuple[int, ...]) -> None:
    assert lengths(epochs, least) == expected


@pytest.mark.parametrize(("steps", "longest", "expected"), [(60, 20, 5), (500, 20, 3), (7, 50, 43), (60, 2, 2)])
def test_a_run_is_long_enough_to_tell_methods_apart(steps: int, longest: int, expected: int) -> None:
    assert least_epochs(steps, longest) == expected


def test_candidates_by_name() -> None:
    assert [one.name for one in find_candidates(["fmix", "automix-fast"])] == ["plain-ema", "fmix", "automix-fast"]
    assert find_candidates(["vanilla"])[1].values == {"method": "vanilla", "ema": False}
    with pytest.raises(AutomixError, match="unknown method 'mixop'; did you mean 'mixup'"):
        find_candidates(["mixop"])


def test_a_margin_is_paired_image_by_image() -> None:
    """Of 100 images both are right on 60 and both wrong on 20; the winner alone is right on 15, the other on 5."""
    winner = torch.tensor([True] * 60 + [False] * 20 + [True] * 15 + [False] * 5)
    other = torch.tensor([True] * 60 + [False] * 20 + [False] * 15 + [True] * 5)
    margin = paired_margin(winner, other, "other", 3)
    variance = (20 - 100 * 0.1**2) / 99  # squares of the differences about their mean 0.1
    assert margin.points == pytest.approx(10.0)
    assert margin.error == pytest.approx(100 * math.sqrt(variance / 100))
    assert not margin.is_noise  # 10 > 2 * 4.38
    assert paired_margin(other, other, "other", 3).is_noise


def test_time_is_kept_for_the_last_training(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    clock = Clock(minutes=10, spent=120)
    clock.per_epoch["mixup"] = 5.0
    clock.overheads = [2.0, 4.0]
    now = 60.0
    assert clock.left == 600 - 120 - 60
    assert clock.estimate(small("digits", epochs=4), "mixup") == 3 + 4 * 5
    clock.per_epoch["plain"] = 4.0
    assert clock.cheapest(2) == 3 + 2 * 4


# --- the search ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("few")
def test_a_search_trains_the_better_ones_longer_and_the_winner_on_all_images(photos: Path, tmp_path: Path) -> None:
    record = search(photos, tmp_path / "out")
    assert record.epochs == (1, 3)
    assert [one.candidate for one in record.configurations] == ["plain-ema", "mixup", "cutmix"]
    plain = record.configurations[0]
    assert plain.state == "complete"  # the others are compared with it
    for one in record.configurations:
        short = [other.scores[1] for other in record.configurations if other.number <= one.number]
        assert (3 in one.scores) == (one.scores[1] >= max(short))  # of fewer than six, the best so far goes on
        for epochs, run in one.runs.items():
            assert RunFolder(Path(run)).read_config().validation == 0.2
            summary = RunFolder(Path(run)).summary()
            assert one.scores[epochs] == summary.get("teacher_top1", summary["student_top1"])
    best = max((one for one in record.configurations if 3 in one.scores), key=lambda one: one.score)
    assert record.configurations[record.winner or 0].score == best.score
    final = RunFolder(tmp_path / "out" / "final").read_config()
    assert final.validation is None
    assert final.settings.lr == best.lr
    assert record.last["test_top1"] is not None
    values = read_config(tmp_path / "out" / "best.yaml")
    assert TrainConfig.from_flat(values).settings == final.settings
    assert read_record(tmp_path / "out") == record
    assert search(photos, tmp_path / "out").configurations == record.configurations  # finished: nothing runs again
    with pytest.raises(AutomixError, match="holds a search with batch_size=6, got batch_size=5"):
        search(photos, tmp_path / "out", batch_size=5)
    page = render_tuning(record)
    assert best.label in page
    assert page.count("<circle") == sum(len(one.scores) for one in record.configurations)


KILLED = """
import json, os, signal, sys
from pathlib import Path
from automix.runs.config import TrainConfig
from automix.studies.tuning import plan, search, tune
from automix.training import loop
sys.modules["automix.studies.tuning.tune"].MOST, plan.LEAST_STEPS, plan.LEAST_EPOCHS = 3, 1, 1
values, out, when = sys.argv[1:]
def die():
    os.kill(os.getpid(), signal.SIGKILL)
report, step, reports = search.Search.report, loop.training_step, []
def report_and_die(self, trial, level):
    report(self, trial, level)
    reports.append(1)
    if when == "between runs" and len(reports) == 3:
        die()
def step_and_die(run, *rest):
    is_last = run.folder.path.name == "final"
    if run.step == 2 and (is_last if when == "in the last training" else when == "in a run" and len(reports) == 2):
        die()
    return step(run, *rest)
search.Search.report, loop.training_step = report_and_die, step_and_die
tune(TrainConfig.from_flat(json.loads(values)), Path(out), minutes=600, methods=("mixup", "cutmix"))
"""


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize("when", ["between runs", "in a run", "in the last training"])
def test_a_killed_search_goes_on_and_finds_the_same(photos: Path, tmp_path: Path, when: str) -> None:
    values = json.dumps({**SMALL, "data": str(photos)})
    command = [sys.executable, "-c", KILLED, values, str(tmp_path / "killed"), when]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == -signal.SIGKILL, done.stderr
    runs = sorted((tmp_path / "killed" / "runs").glob("*/summary.json"))
    assert len(runs) == {"between runs": 3, "in a run": 2}.get(when, len(runs))
    assert (tmp_path / "killed" / "final").exists() == (when == "in the last training")
    assert not (tmp_path / "killed" / "final" / "summary.json").exists()
    times = {path: path.stat().st_mtime_ns for path in runs}
    resumed, whole = search(photos, tmp_path / "killed"), search(photos, tmp_path / "whole")
    assert {path: path.stat().st_mtime_ns for path in runs} == times  # no run was repeated
    scores = [[(one.label, one.scores, one.state) for one in record.configurations] for record in (resumed, whole)]
    assert scores[0] == scores[1]
    assert (resumed.winner, resumed.margins) == (whole.winner, whole.margins)
    assert resumed.last["test_top1"] == whole.last["test_top1"]


def test_a_run_that_fails_is_left_behind(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: None
) -> None:
    from automix.studies import launchers

    run = launchers.run_job

    def fail(job: Any, *rest: Any) -> str:
        if job.values["method"] == "mixup":
            raise ArithmeticError("loss not finite")
        return run(job, *rest)

    monkeypatch.setattr(launchers, "run_job", fail)
    record = search(photos, tmp_path / "out")
    assert [one.state == "failed" for one in record.configurations] == [False, True, False]


def test_too_few_minutes_are_refused_with_those_it_takes(photos: Path, tmp_path: Path) -> None:
    with pytest.raises(
        AutomixError, match=r"minutes must be >= \d+ here, for runs of 3 epochs \(\d+ steps\), got 0.001"
    ):
        tune(small(photos), tmp_path / "out", minutes=1e-3, methods=("mixup",))


STEPS = 60  # of an epoch on the machine below


class SlowMachine:
    """A machine of known speed, whose time only runs move: a step takes a second, two if it mixes, times `slowness`."""

    def __init__(self) -> None:
        self.now, self.slowness, self.growth = 0.0, 1.0, 1.0

    def monotonic(self) -> float:
        return self.now

    def measure_speed(self, config: TrainConfig) -> tuple[Speed, float]:
        step = self.slowness * (1.0 if config.method == "vanilla" else 2.0)
        return Speed(step, step, 5 * self.slowness, STEPS), 1.0

    def launch(self, jobs: Any, progress: Any, options: Any) -> None:
        run_local(jobs, progress, options)
        for job in jobs:
            config = TrainConfig.from_flat(job.values)
            speed, _ = self.measure_speed(config)
            images = 1.0 if config.validation else 1.25
            seconds = images * config.settings.epochs * STEPS * speed.mixed_step + speed.evaluation
            summary = RunFolder(job.folder).summary()
            RunFolder(job.folder).summary_file.write_text(json.dumps({**summary, "seconds": seconds}))
            self.now += seconds + 3
            self.slowness *= self.growth


@pytest.mark.parametrize(("slower", "growth"), [(1.0, 1.0), (1.5, 1.0), (0.6, 1.0), (1.0, 1.1), (1.0, 0.9)])
def test_a_search_takes_the_minutes_asked(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slower: float, growth: float
) -> None:
    """Also where runs are slower or faster than the few timed steps, or the machine slows down from run to run."""
    machine = SlowMachine()
    machine.growth = growth
    for module in (CLOCK, TUNING):
        monkeypatch.setattr(module, "time", machine)
    for module in (CLOCK, PLAN):
        monkeypatch.setattr(module, "measure_speed", machine.measure_speed)
    plan_tuning = TUNING.plan_tuning

    def plan_and_change_speed(*args: Any) -> Any:
        plan = plan_tuning(*args)
        machine.slowness = slower
        return plan

    monkeypatch.setattr(TUNING, "plan_tuning", plan_and_change_speed)
    monkeypatch.setitem(TUNING.LAUNCHERS, "local", machine.launch)
    console = Console(record=True, width=200, file=io.StringIO())
    config = small(photos, epochs=20)
    record = tune(config, tmp_path / "out", minutes=60, methods=("mixup", "cutmix"), console=console)
    assert record.epochs == (7,)  # an eighth of the time is 450 s
    assert 0.8 * 3600 <= machine.now <= 1.1 * 3600
    assert record.last["epochs"] >= 5
    tried = [one for one in record.configurations if one.scores]
    assert tried[0].candidate == "plain-ema"
    assert len(tried) >= 2
    assert {one.epochs for one in tried} == {7}
    first = console.export_text().splitlines()[:4]
    assert "runs of 7 epochs" in first[1]
    assert "plain + EMA, Mixup, CutMix" in first[2]


def test_with_few_minutes_there_are_fewer_runs_not_shorter_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = SlowMachine()
    monkeypatch.setattr(PLAN, "measure_speed", machine.measure_speed)
    config, candidates = small("digits", epochs=20), find_candidates()
    plans = {minutes: plan_tuning(config, candidates, minutes).epochs for minutes in (26, 60, 130, 600)}
    assert plans == {26: (5,), 60: (7,), 130: (5, 16), 600: (7, 20)}
    with pytest.raises(AutomixError, match=r"minutes must be >= 26 here, for runs of 5 epochs \(300 steps\), got 25"):
        plan_tuning(config, candidates, 25)
    assert [one.name for one in candidates[:3]] == ["plain-ema", "regmixup", "automix"]


def test_the_command(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], few: None) -> None:
    words = "--methods mixup --minutes 600 --recipe quick --size 16 --set epochs=1 batch_size=6 lr=0.02"
    network = ["model_options.layers=[1,1,1,1]", "model_options.channels=[8,8,8,8]"]
    assert cli.run(["tune", str(photos), *words.split(), *network, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "winner: " in printed
    assert "points against" in printed
    assert (tmp_path / "out" / "report.html").is_file()
    assert cli.run(["tune", str(photos), "--minutes", "0", "--out", str(tmp_path / "no")]) == 2
