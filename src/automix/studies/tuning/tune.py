"""A search from start to end: rounds of runs, then one training of the winner on all training images."""

import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from automix.core.errors import AutomixError
from automix.core.validation import check_whole, unknown_name
from automix.runs.config import MAY_CHANGE, TrainConfig
from automix.runs.folder import RunFolder
from automix.runs.metrics import deployed_top1
from automix.studies.launchers import LAUNCHERS
from automix.studies.plan import Job
from automix.studies.run_job import is_complete
from automix.studies.tuning.candidates import find_candidates
from automix.studies.tuning.clock import Clock
from automix.studies.tuning.plan import VALIDATION, TunePlan, plan_tuning
from automix.studies.tuning.progress import TuneProgress, clock_time
from automix.studies.tuning.record import Configuration, Margin, TuneRecord, held_out_hits, paired_margin
from automix.studies.tuning.search import Search, open_study
from automix.training.build import build_data
from automix.training.defaults import settle_normalization
from automix.training.distributed import World
from automix.training.prepare import check_environment
from automix.training.signals import Stopped

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import Trial

BEST = "best.yaml"
LAST = "final"
MOST = 200  # configurations
RESERVE = 1.1  # times the estimate of the last training is kept for it
PUT_ASIDE = 3  # proposals in a row for which there is no time, after which none are asked for


def tune(
    config: TrainConfig,
    out: Path,
    *,
    minutes: float = 30.0,
    methods: Sequence[str] = (),
    fixed: Sequence[str] = (),
    launcher: str = "local",
    at_once: int = 1,
    options: Mapping[str, Any] | None = None,
    console: Console | None = None,
) -> TuneRecord:
    """Find the method, the learning rate and the alpha for a dataset, and train the winner.

    Configurations are scored on a fifth of the training images, which is held out. The test images are looked at once,
    by the last training. The folder holds Optuna's journal, the runs, best.yaml (the winner's settings for ``automix
    train --config``), the last training and the record tuning.json. Called again with the same settings, a search that
    was killed continues, and one that is finished is read; with more minutes it goes on.

    Args:
        config: The settings of a training on the data; its method, learning rate and alpha are where the search starts.
        out: The folder of the search.
        minutes: Time for all of it, the last training included.
        methods: Names of methods to try; see `find_candidates`.
        fixed: Names of settings that must stay; of the others, the size of large images may become smaller.
        launcher: Where the runs are started; one of `automix.studies.launchers.LAUNCHERS`.
        at_once: Runs at a time.
        options: Options of the launcher.
        console: Where the progress is shown; nothing is shown if not given.

    Returns:
        The record of the search.
    """
    if launcher not in LAUNCHERS:
        raise unknown_name("launcher", launcher, LAUNCHERS)
    check_whole("at_once", at_once, 1)
    check_environment(config)
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    study = open_study(out)
    clock = Clock(minutes, study.user_attrs.get("seconds", 0.0))
    clock.since = started
    plan = _plan(study, config, out, minutes, methods, fixed)
    tuning = Tuning(Search(study, plan, out), clock, launcher, at_once, options or {}, console or Console(quiet=True))
    try:
        with tuning.progress.live():
            tuning.search_until_time_is_up()
            return tuning.finish()
    except Stopped as stopped:
        stopped.args = ("stopped; the same command continues the search",)
        raise
    finally:
        study.set_user_attr("seconds", clock.spent)


def _plan(
    study: "Study", config: TrainConfig, out: Path, minutes: float, methods: Sequence[str], fixed: Sequence[str]
) -> TunePlan:
    """Make the plan, or read that of the search in the folder and check that it is the same search."""
    candidates = find_candidates(methods)
    asked = {name: value for name, value in config.flat().items() if name not in MAY_CHANGE}
    asked |= {"candidates": [candidate.name for candidate in candidates]}
    asked = json.loads(json.dumps(asked))
    if "plan" not in study.user_attrs:
        plan = plan_tuning(settle_normalization(config), candidates, minutes, fixed)
        study.set_user_attr("asked", asked)
        study.set_user_attr("plan", plan.to_json())
        return plan
    before = study.user_attrs["asked"]
    for name, value in asked.items():
        if before.get(name) != value:
            raise AutomixError(f"{out}: holds a search with {name}={before.get(name)}, got {name}={value}; "
                               "use another --out")  # fmt: skip
    kept = study.user_attrs["plan"]
    return TunePlan(
        replace(TrainConfig.from_flat(kept["base"]), data=config.data, data_root=config.data_root),
        candidates,
        tuple(kept["epochs"]),
        kept["longest"],
        kept["testing"],
        minutes,
    )


class Tuning:
    """A search that is going on.

    Args:
        search: Its configurations.
        clock: Its time.
        launcher: Where runs are started.
        at_once: Runs at a time.
        options: Options of the launcher.
        console: Where the progress is shown.
    """

    def __init__(
        self,
        search: Search,
        clock: Clock,
        launcher: str,
        at_once: int,
        options: Mapping[str, Any],
        console: Console,
    ) -> None:
        self.search, self.plan, self.clock, self.at_once = search, search.plan, clock, at_once
        self.launcher, self.options = launcher, dict(options)
        if launcher == "local":
            self.options["processes"] = at_once
        self.progress = TuneProgress(console, clock)
        self.data = build_data(self.plan.base, World(), use_skip_list=False)
        self._learn_from_finished()

    def record(self) -> TuneRecord:
        """Collect what is known now."""
        plan = self.plan
        tried = self.search.configurations()
        found = TuneRecord(plan.base.data, plan.minutes, self.clock.spent, plan.epochs, self.data.test_count, tried)
        best = next(iter(found.ranking), None)
        return replace(found, winner=None if best is None or not best.scores else best.number)

    # --- the rounds

    def search_until_time_is_up(self) -> None:
        """Run rounds until there is time for nothing but the last training."""
        if RunFolder(self.search.folder / LAST).is_run and self.clock.left < 0.5 * self.last_seconds():
            return  # a search that was killed in its last training, or is finished
        self.progress.announce(self.announcement())
        self.progress.update(self.record(), ())
        while trials := self.next_trials():
            self.run_round(trials)
            self.search.study.set_user_attr("seconds", self.clock.spent)

    def announcement(self) -> list[str]:
        """Say what the search will do."""
        plan, data, names = self.plan, self.data, [candidate.title for candidate in self.plan.candidates]
        plain = self.search.config({"method": plan.candidates[0].name, "rate": 1.0}, plan.epochs[-1])
        seconds = self.clock.estimate(plain, plan.candidates[0].name)
        steps = plan.epochs[-1] * len(data.loader)
        return [
            f"{data.train_count:,} training images of {data.image_size} px, and {data.test_count:,} others to score",
            f"runs of {' or '.join(map(str, plan.epochs))} epochs; {plan.epochs[-1]} epochs are {steps:,} steps, about "
            f"{clock_time(seconds)} of plain training",
            f"in this order, as far as {clock_time(self.clock.left)} go: {', '.join(names)}; then other learning rates "
            "and alphas",
            f"the last {clock_time(self.last_seconds())} or more: the winner on all training images",
        ]

    def next_trials(self) -> "list[Trial]":
        """Choose the trials of the next round: promoted ones first, then new ones, as far as there is time."""
        waiting = sorted(self.search.unfinished(), key=lambda trial: -self.search.level(trial))
        chosen = [trial for trial in waiting if self.has_time_for(trial)][: self.at_once]
        promoted = [trial for trial in waiting if self.search.level(trial) > 0 and trial not in chosen]
        put_aside = len(waiting) - len(chosen)
        if promoted and not chosen:  # what is new could not be trained longer either
            return []
        room = self.clock.left - self.last_seconds()
        while len(chosen) < self.at_once and put_aside < PUT_ASIDE and self.search.asked < MOST:
            if self.clock.cheapest(self.plan.epochs[0]) > room and self.search.asked:
                break  # timing the steps of a method takes time, too
            trial = self.search.ask()
            if self.has_time_for(trial):
                chosen.append(trial)
            else:
                put_aside += 1
        return chosen

    def has_time_for(self, trial: "Trial") -> bool:
        """Tell whether a run fits in before the last training must start; the very first always does."""
        level = self.search.level(trial)
        job = self.search.job(trial.params, level)
        if (trial.number == 0 and level == 0) or is_complete(job):
            return True
        estimate = self.clock.estimate(TrainConfig.from_flat(job.values), trial.params["method"])
        may_win = trial.params if level == self.plan.last_level else None
        return estimate <= self.clock.left - self.last_seconds(may_win)

    def last_seconds(self, may_win: dict[str, Any] | None = None) -> float:
        """Estimate the time of the last training, of the configuration that is ahead now or of one that may win."""
        record = self.record()
        first: dict[str, Any] = {"method": self.plan.candidates[0].name, "rate": 1.0}
        ahead = first if record.winner is None else self.search.study.trials[record.winner].params
        likely = [params for params in (ahead, may_win) if params is not None]
        full = self.plan.epochs[-1]
        longest = max(self.clock.estimate(self.search.config(params, full), params["method"]) for params in likely)
        return RESERVE * (longest / (1 - VALIDATION) + self.plan.testing)

    def run_round(self, trials: "Sequence[Trial]") -> None:
        """Run one job of each trial and record the scores."""
        levels = [self.search.level(trial) for trial in trials]
        jobs = [self.search.job(trial.params, level) for trial, level in zip(trials, levels, strict=True)]
        labels = {
            job.name: f"{one.label}, {self.plan.epochs[level]} epochs"
            for job, level, one in zip(jobs, levels, self._of(trials), strict=True)
        }
        started = time.monotonic()
        self.launch(list({job.name: job for job in jobs}.values()), labels)
        wall = time.monotonic() - started
        for trial, level, job in zip(trials, levels, jobs, strict=True):
            if job.name in self.progress.failed:
                self.search.fail(trial)
                continue
            self.search.report(trial, level)
            self.clock.learn(trial.params["method"], self.plan.epochs[level], job.folder, wall)
        record = self.record()
        record.save(self.search.folder)
        self.progress.update(
            record, [(one, self.plan.epochs[level]) for one, level in zip(self._of(trials), levels, strict=True)]
        )

    def launch(self, jobs: Sequence[Job], labels: dict[str, str]) -> None:
        """Run what is not finished of some jobs."""
        left = [job for job in jobs if not is_complete(job)]
        self.progress.start({job.name: labels.get(job.name, job.name) for job in left})
        if left:
            LAUNCHERS[self.launcher](left, self.progress, dict(self.options))  # type: ignore[arg-type]

    def _of(self, trials: "Sequence[Trial]") -> list[Configuration]:
        by_number = {one.number: one for one in self.search.configurations()}
        return [by_number[trial.number] for trial in trials]

    def _learn_from_finished(self) -> None:
        """Take the times of an earlier session's runs."""
        for one in self.search.configurations():
            for epochs, run in one.runs.items():
                seconds = float(RunFolder(Path(run)).summary()["seconds"])
                self.clock.per_epoch[one.candidate] = seconds / epochs

    # --- the end

    def finish(self) -> TuneRecord:
        """Compare the winner with the others, write its settings, and train it on all training images."""
        record = self.record()
        winner = next((one for one in record.configurations if one.number == record.winner), None)
        if winner is None:
            raise AutomixError(f"{self.search.folder}: no run of the search could be finished; see the messages above")
        config = self.last_config(winner)
        replace(config, out=None).save(self.search.folder / BEST)
        self.search.study.set_user_attr("seconds", self.clock.spent)
        job = Job(config.flat())
        self.launch([job], {job.name: f"{winner.label}, {config.settings.epochs} epochs on all training images"})
        if reason := self.progress.failed.get(job.name):
            raise AutomixError(f"{job.folder}: the last training failed: {reason}")
        record = replace(record, margins=tuple(margins(record, winner)))
        test = deployed_top1(RunFolder(job.folder).summary())
        last = {"run": str(job.folder), "epochs": config.settings.epochs, "test_top1": test}
        record = replace(record, seconds=self.clock.spent, last=last)
        record.save(self.search.folder)
        return record

    def last_config(self, winner: Configuration) -> TrainConfig:
        """Make the settings of the last training: as long as the time left allows, half of the full length at least."""
        params, folder = self.search.study.trials[winner.number].params, RunFolder(self.search.folder / LAST)
        full = self.plan.epochs[-1]
        per_epoch = self.clock.estimate(self.search.config(params, full), winner.candidate) / full / (1 - VALIDATION)
        fitting = int((self.clock.left - self.clock.overhead - self.plan.testing) / per_epoch)
        epochs = min(max(fitting, math.ceil(full / 2)), max(full, self.plan.longest))
        config = self.search.config(params, epochs, validation=None, out=str(folder.path))
        if not folder.is_run:
            return config
        before = folder.read_config()  # go on with the same length
        same = self.search.config(params, before.settings.epochs, validation=None, out=str(folder.path))
        if before.settings == same.settings and before.method == same.method:
            return same
        folder.clear()  # another configuration has won in the meantime
        folder.config.unlink()
        return config


def margins(record: TuneRecord, winner: Configuration) -> list[Margin]:
    """Compare the winner with the best plain training (or, if it is plain, the best mixing) and with the next best.

    Args:
        record: The configurations.
        winner: The winner.

    Returns:
        The margins, each at the longest training that both have.
    """
    others = [one for one in record.ranking if one.number != winner.number and one.scores]
    rival = next((one for one in others if one.is_plain != winner.is_plain), None)
    chosen = dict.fromkeys(one.number for one in (rival, next(iter(others), None)) if one is not None)
    found = []
    for other in (next(one for one in others if one.number == number) for number in chosen):
        if shared := set(winner.runs) & set(other.runs):
            epochs = max(shared)
            ours, theirs = (held_out_hits(Path(one.runs[epochs])) for one in (winner, other))
            found.append(paired_margin(ours, theirs, other.label, epochs))
    return found
