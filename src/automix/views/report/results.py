"""The top of the page: the result in one line, warnings, facts, and several groups beside each other."""

import shlex
import statistics
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from automix.views.report.curves import Series, number, strip
from automix.views.report.gather import RunRecord
from automix.views.report.groups import Group
from automix.views.report.markup import Markup, element, join

PLUS_MINUS = " ± "


def title(groups: Sequence[Group]) -> str:
    """Which methods, networks and data."""
    configs = [group.first.config for group in groups]
    methods, models, data = (_distinct(config[name] for config in configs) for name in ("method", "model", "data"))
    if len(groups) == 1 or len(methods) <= 3:
        return f"{' / '.join(methods)} on {', '.join(data)}, {', '.join(models)}"
    return f"{len(groups)} configurations on {', '.join(data)}, {', '.join(models)}"


def _distinct(values: Any) -> list[str]:
    return list(dict.fromkeys(str(value).rstrip("/").rsplit("/", 1)[-1] for value in values))


def headline(groups: Sequence[Group]) -> Markup:
    """The result in one line."""
    done = ranked(groups)
    if not done:
        return element("p", *_so_far(groups), class_="result")
    if len(groups) == 1:
        trials = groups[0].trials
        what = f" top-1 accuracy of the {groups[0].first.deployed} on the test set"
        return element("p", element("b", percent(groups[0])), what, f"; {_counted(str(trials))}.", class_="result")
    if len(tested := _by_test_set(done)) > 1:  # accuracies of different questions do not compare
        bests = [[f"{name}: ", element("b", percent(best)), f" with {best.label}; "] for name, (best, *_) in tested]
        return element("p", "Highest test accuracy on ", *(part for parts in bests for part in parts),
                       "compare within one of them only.", class_="result")  # fmt: skip
    best, *others = done
    parts: list[str] = ["Highest test accuracy: ", element("b", percent(best)), f" with {best.label} ({_trials(best)})"]
    if others:
        parts.append(f"; then {others[0].label}, {percent(others[0])} ({_trials(others[0])})")
    return element("p", *parts, ".", class_="result")


def _by_test_set(groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    """The groups that were tested on the same images, by the name of these."""
    found: dict[str, list[Group]] = {}
    for group in groups:
        classes = group.first.config.get("classes")
        name = str(group.first.config["data"]) + (f" ({classes} classes)" if classes else "")
        found.setdefault(name, []).append(group)
    return list(found.items())


def _so_far(groups: Sequence[Group]) -> list[str]:
    run = max((run for group in groups for run in group.runs), key=lambda run: max(run.top1.values(), default=-1))
    if not run.top1:
        return ["No accuracy has been measured yet."]
    epoch, value = max(run.top1), run.top1[max(run.top1)]
    where = f" after epoch {epoch} of {run.config.get('epochs', '?')}"
    return [element("b", f"{value:.2f} %"), f" top-1 accuracy of the {run.deployed} on the test set so far,{where}."]


def ranked(groups: Sequence[Group]) -> list[Group]:
    """Those with a result, the highest first."""
    done = [(group, group.trials.mean) for group in groups if group.trials is not None]
    return [group for group, _ in sorted(done, key=lambda pair: -pair[1])]


def percent(group: Group) -> str:
    trials = group.trials
    if trials is None:
        return "-"
    return f"{trials.mean:.2f}{'' if trials.std is None else f'{PLUS_MINUS}{trials.std:.2f}'} %"


def _counted(text: str) -> str:
    """What stands in brackets in the text of `Trials`."""
    return text[text.index("(") + 1 : -1]


def _trials(group: Group) -> str:
    count = group.trials.count if group.trials else 0
    return "1 trial" if count == 1 else f"{count} trials"


def notices(groups: Sequence[Group], of_pictures: Sequence[str] = ()) -> Markup:
    """Warnings of the training, what is unfinished, what could not be read: all that a reader must know first."""
    runs = [run for group in groups for run in group.runs]
    lines = []
    for run in runs:
        name = f"{run.name}: " if len(runs) > 1 else ""
        found = [*(f"Warning while training: {message}" for message in run.warnings), *run.damage]
        if skipped := run.summary.get("skipped_files"):
            found.append(f"{len(skipped)} files that are no sound images were left out (skipped.json).")
        lines += [element("li", name, text) for text in found]
        if not run.is_finished:
            lines.append(element("li", name, *unfinished(run)))
    lines += [element("li", text) for text in of_pictures]
    return element("ul", *lines, class_="warnings", id="warnings") if lines else Markup()


def unfinished(run: RunRecord) -> list[str]:
    done, total = run.epochs_done, run.config.get("epochs", "?")
    command = element("code", f"automix train --resume --out {shlex.quote(str(run.folder))}")
    state = f"{done} of {total} epochs are done" if done else "no epoch is finished yet"
    return [f"Still going on, or stopped: {state}. ", command, " goes on where a run stopped."]


def facts(groups: Sequence[Group]) -> Markup:
    """What one asks first about a run."""
    runs = [run for group in groups for run in group.runs]
    if len(groups) > 1:
        shown = {"configurations": str(len(groups)), "runs": str(len(runs))}
    else:
        run = runs[0]
        shown = {"method": run.config["method"], "network": run.config["model"], "data": run.config["data"]}
        shown["seed" if len(runs) == 1 else "seeds"] = groups[0].seeds.split(" ", 1)[1]
        shown |= {"epochs": f"{run.epochs_done} of {run.config.get('epochs', '?')}"}
        if run.epochs:
            shown["steps"] = str(run.epochs[-1]["step"])
        for name in ("student", "teacher"):
            if (value := mean_of(groups[0], f"{name}_top1")) and len(runs) == 1:
                shown[f"{name}, last epoch"] = f"{value} %"
        if len(runs) == 1 and isinstance(best := run.summary.get("best_top1"), float) and best >= 0:
            shown["best epoch, chosen on test data"] = f"{best:.2f} %"
        if time := duration(run):
            shown["training time"] = time
    return element("dl", *(_fact(name, value) for name, value in shown.items()), class_="facts")


def _fact(name: str, value: str) -> Markup:
    return element("div", element("dt", name), element("dd", value))


def duration(run: RunRecord) -> str:
    seconds = run.summary.get("seconds")
    return str(timedelta(seconds=round(seconds))) if isinstance(seconds, int | float) and seconds < 1e9 else ""


def comparison(groups: Sequence[Group]) -> Markup:
    """The groups in order of their result, each trial as a dot, and a table of numbers."""
    done = ranked(groups)
    values = [run.result for group in done for run in group.runs if run.result is not None]
    parts: list[str] = []
    if values:
        low, high = _range(done, values)
        rows = [_ranking_row(group, groups.index(group), low, high) for group in done]
        ends = element("div", element("span", f"{low:.1f} %"), element("span", f"{high:.1f} %"), class_="ends quiet")
        parts += [element("ol", *rows, class_="ranking"), ends]
        parts.append(element("p", "Each dot is a run: the median top-1 test accuracy of its last ten epochs, of the "
                             "teacher where there is one. The bar is mean ± standard deviation (n - 1) over the seeds; "
                             "with few seeds it says little.", class_="quiet"))  # fmt: skip
    parts.append(_numbers_table(groups))
    return join(parts)


def _range(groups: Sequence[Group], values: Sequence[float]) -> tuple[float, float]:
    """From the lowest to the highest of all dots and bars, and a little more; within 0 to 100 %."""
    trials = [group.trials for group in groups if group.trials is not None]
    ends = [*values, *(one.mean + sign * (one.std or 0) for one in trials for sign in (-1, 1))]
    room = 0.03 * (max(ends) - min(ends)) or 1.0
    return max(min(ends) - room, 0.0), min(max(ends) + room, 100.0)


def _ranking_row(group: Group, place: int, low: float, high: float) -> Markup:
    results = [run.result for run in group.runs if run.result is not None]
    trials = group.trials
    assert trials is not None  # ranked
    style = Series("", [], place).style
    label = element("span", swatch(style), group.label)
    told = element("span", element("b", percent(group)), " ", element("span", group.seeds, class_="quiet"))
    return element(
        "li", element("div", label, told, class_="line"), strip(results, trials.mean, trials.std, low, high, style)
    )


def _numbers_table(groups: Sequence[Group]) -> Markup:
    names = ("student_top1", "teacher_top1", "student_top5", "teacher_top5")
    present = [name for name in names if any(group.curves(name) for group in groups)]
    header = ["", "result", *(name.replace("_top", " top-") for name in present), "epochs", "training time"]
    rows = []
    for place, group in enumerate(groups):
        cells = [percent(group), *(mean_of(group, name) or "-" for name in present)]
        cells += [_distinct_text(run.epochs_done for run in group.runs), duration(group.first) or "-"]
        label = element("th", swatch(Series("", [], place).style), group.label, scope="row")
        rows.append(element("tr", label, *(element("td", cell) for cell in cells)))
    head = element("thead", element("tr", *(element("th", name, scope="col") for name in header)))
    about = element(
        "p", "Result: as above. The other columns: the last epoch in which it was measured.", class_="quiet"
    )
    return join([element("div", element("table", head, element("tbody", *rows)), class_="scroll"), about])


def mean_of(group: Group, metric: str) -> str:
    """The last value of a metric, over the seeds."""
    return spread([value for run in group.runs if (value := run.last(metric)) is not None])


def spread(values: Sequence[float]) -> str:
    """One number, or mean +- std of several; nothing of none."""
    if len(values) < 2:
        return number(values[0]) if values else ""
    mean, std = statistics.fmean(values), statistics.stdev(values)
    if 10 <= abs(mean) <= 100:  # nearly always a percentage
        return f"{mean:.2f}{PLUS_MINUS}{std:.2f}"
    return f"{number(mean)}{PLUS_MINUS}{std:.2g}"


def _distinct_text(values: Any) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values))


def swatch(style: str) -> Markup:
    return element("span", class_=f"swatch {style}")
