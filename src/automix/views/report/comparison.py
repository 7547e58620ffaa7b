"""Several groups beside each other: ranked by their results, and as a table of numbers."""

from collections.abc import Sequence
from dataclasses import dataclass

from automix.views.report.chart import DotPlot, lay_out_dots
from automix.views.report.groups import Group
from automix.views.report.series import series_style
from automix.views.report.summary import duration, last_values, percent, ranked

METRICS = ("student_top1", "teacher_top1", "student_top5", "teacher_top5")


@dataclass(frozen=True)
class RankedGroup:
    """A group in the ranking, each of its runs as a dot."""

    style: str
    label: str
    result: str
    seeds: str
    plot: DotPlot


@dataclass(frozen=True)
class Comparison:
    """The ranking, the ends of its axis in percent, and the table: header, and rows of style, label and cells."""

    ranking: list[RankedGroup]
    ends: tuple[float, float] | None
    header: list[str]
    rows: list[tuple[str, str, list[str]]]


def compare(groups: Sequence[Group]) -> Comparison:
    """Compare groups by the results of their finished runs."""
    done = ranked(groups)
    ends = _axis(done) if done else None
    ranking = [_ranked_group(group, groups.index(group), *ends) for group in done] if ends else []
    present = [name for name in METRICS if any(group.curves(name) for group in groups)]
    rows = [(series_style(number), group.label, _cells(group, present)) for number, group in enumerate(groups)]
    header = ["result", *(name.replace("_top", " top-") for name in present), "epochs", "training time"]
    return Comparison(ranking, ends, header, rows)


def _results(group: Group) -> list[float]:
    return [run.result for run in group.runs if run.result is not None]


def _axis(groups: Sequence[Group]) -> tuple[float, float]:
    """From the lowest to the highest of all dots and bars, with a margin; within 0 to 100 %."""
    trials = [group.trials for group in groups if group.trials is not None]
    values = [value for group in groups for value in _results(group)]
    values += [one.mean + sign * (one.std or 0) for one in trials for sign in (-1, 1)]
    margin = 0.03 * (max(values) - min(values)) or 1.0
    return max(min(values) - margin, 0.0), min(max(values) + margin, 100.0)


def _ranked_group(group: Group, number: int, low: float, high: float) -> RankedGroup:
    trials = group.trials
    assert trials is not None  # `ranked` leaves out groups without a finished run
    style = series_style(number)
    plot = lay_out_dots(_results(group), trials.mean, trials.std, low, high, style)
    return RankedGroup(style, group.label, percent(group), group.seeds, plot)


def _cells(group: Group, metrics: Sequence[str]) -> list[str]:
    epochs = ", ".join(dict.fromkeys(str(run.epochs_done) for run in group.runs))
    values = [last_values(group, name) or "-" for name in metrics]
    return [percent(group), *values, epochs, duration(group.first) or "-"]
