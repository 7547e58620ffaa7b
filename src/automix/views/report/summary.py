"""The top of the page: the result in one line, warnings, and facts."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from automix.core.accuracy import accuracy_interval
from automix.views.report.groups import Group
from automix.views.report.numbers import PLUS_MINUS, mean_and_std
from automix.views.report.run_record import RunRecord


@dataclass(frozen=True)
class Notice:
    """Something to know before reading the results; `command` resumes an unfinished run."""

    text: str
    command: str = ""


@dataclass(frozen=True)
class Headline:
    """The result of a finished run: a number, and the sentence that it begins."""

    result: str
    text: str


def headline(groups: Sequence[Group]) -> Headline | None:
    """The accuracy of the network that `automix predict` uses; None unless the page is on one finished run."""
    run = groups[0].first
    if len(groups) > 1 or len(groups[0].runs) > 1 or not run.is_finished:
        return None
    accuracy, count = run.top1[run.epochs_done], _test_images(run)
    images = f"{count} test images" if count else "the test images"
    interval = ""
    if count:
        low, high = accuracy_interval(accuracy, count)
        interval = f" (95 % interval {low:.1f} to {high:.1f} %)"
    text = f"top-1 accuracy on {images}{interval}, of the {run.deployed}, which automix predict uses."
    return Headline(f"{accuracy:.2f} %", text)


def _test_images(run: RunRecord) -> int | None:
    """The number of test images: from the summary, or from an evaluation of the same weights on the run's data."""
    entry = run.evaluations.get("accuracy", {})
    evaluated = entry.get("which") == "last" and entry.get("data") == run.config["data"]
    count = run.summary.get("test_images", entry.get("images") if evaluated else None)
    return count if isinstance(count, int) and count > 0 else None


def title(groups: Sequence[Group]) -> str:
    """Name the methods, the data and the networks."""
    configs = [group.first.config for group in groups]
    methods, models, data = (_distinct(config[name] for config in configs) for name in ("method", "model", "data"))
    if len(groups) == 1 or len(methods) <= 3:
        return f"{' / '.join(methods)} on {', '.join(data)}, {', '.join(models)}"
    return f"{len(groups)} configurations on {', '.join(data)}, {', '.join(models)}"


def _distinct(values: Iterable[object]) -> list[str]:
    return list(dict.fromkeys(str(value).rstrip("/").rsplit("/", 1)[-1] for value in values))


def ranked(groups: Sequence[Group]) -> list[Group]:
    """The groups with a finished run, the highest accuracy first."""
    done = [(group, group.trials.mean) for group in groups if group.trials is not None]
    return [group for group, _ in sorted(done, key=lambda pair: -pair[1])]


def by_test_set(groups: Sequence[Group]) -> dict[str, list[Group]]:
    """The groups that were tested on the same images: accuracies on different test sets do not compare."""
    sets: dict[str, list[Group]] = {}
    for group in groups:
        classes = group.first.config.get("classes")
        name = str(group.first.config["data"]) + (f" ({classes} classes)" if classes else "")
        sets.setdefault(name, []).append(group)
    return sets


def furthest_run(groups: Sequence[Group]) -> RunRecord | None:
    """The unfinished run with the highest accuracy so far; None before any was measured."""
    runs = [run for group in groups for run in group.runs if run.top1]
    return max(runs, key=lambda run: max(run.top1.values()), default=None)


def percent(group: Group) -> str:
    """Mean ± standard deviation of the results of a group, in percent."""
    trials = group.trials
    if trials is None:
        return "-"
    return f"{trials.mean:.2f}{'' if trials.std is None else f'{PLUS_MINUS}{trials.std:.2f}'} %"


def trial_count(group: Group) -> str:
    """The number of finished runs."""
    count = group.trials.count if group.trials else 0
    return "1 trial" if count == 1 else f"{count} trials"


def protocol(group: Group) -> str:
    """How the result was computed: the part in parentheses of the text of `Trials`."""
    text = str(group.trials)
    return text[text.index("(") + 1 : -1]


def notices(groups: Sequence[Group], problems: Sequence[str] = ()) -> list[Notice]:
    """Warnings of the training, unfinished runs, files that could not be read, and `problems` of the page."""
    runs = [run for group in groups for run in group.runs]
    lines = []
    for run in runs:
        prefix = f"{run.name}: " if len(runs) > 1 else ""
        texts = [*(f"Warning while training: {message}" for message in run.warnings), *run.damage]
        if skipped := run.summary.get("skipped_files"):
            texts.append(f"{len(skipped)} files could not be read as images and were left out (skipped.json).")
        lines += [Notice(prefix + text) for text in texts]
        if not run.is_finished:
            done, total = run.epochs_done, run.config.get("epochs", "?")
            state = f"{done} of {total} epochs are done" if done else "no epoch is finished yet"
            command = f"automix train --resume --out {shlex.quote(str(run.folder))}"
            lines.append(Notice(f"{prefix}Running or stopped: {state}.", command))
    return lines + [Notice(text) for text in problems]


def facts(groups: Sequence[Group]) -> dict[str, str]:
    """The facts about a run that matter first."""
    runs = [run for group in groups for run in group.runs]
    if len(groups) > 1:
        return {"configurations": str(len(groups)), "runs": str(len(runs))}
    run = runs[0]
    shown = {"method": run.config["method"], "network": run.config["model"], "data": run.config["data"]}
    shown["seed" if len(runs) == 1 else "seeds"] = groups[0].seeds.split(" ", 1)[1]
    shown["epochs"] = f"{run.epochs_done} of {run.config.get('epochs', '?')}"
    if run.epochs:
        shown["steps"] = str(run.epochs[-1]["step"])
    for name in ("student", "teacher"):
        if (value := last_values(groups[0], f"{name}_top1")) and len(runs) == 1:
            shown[f"{name}, last epoch"] = f"{value} %"
    if len(runs) == 1 and run.is_finished and run.epochs_in_result > 1:
        shown[f"median of the last {run.epochs_in_result} evaluations"] = f"{run.result:.2f} %"
    if len(runs) == 1 and isinstance(best := run.summary.get("best_top1"), float) and best >= 0:
        shown["best epoch, chosen on test data"] = f"{best:.2f} %"
    calibration = run.evaluations.get("calibration", {}).get("values", {})
    if len(runs) == 1 and "ece" in calibration:
        shown["calibration error (ECE)"] = f"{calibration['ece']:.1f} %"
    if len(runs) == 1 and "confidence" in calibration:
        shown["mean confidence"] = f"{calibration['confidence']:.1f} %"
    if time := duration(run):
        shown["training time"] = time
    return shown


def duration(run: RunRecord) -> str:
    """The training time as h:mm:ss; an empty string if it is not known."""
    seconds = run.summary.get("seconds")
    return str(timedelta(seconds=round(seconds))) if isinstance(seconds, int | float) and seconds < 1e9 else ""


def last_values(group: Group, metric: str) -> str:
    """The last value of a metric, over the seeds."""
    return mean_and_std([value for run in group.runs if (value := run.last(metric)) is not None])
