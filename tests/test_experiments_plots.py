"""The picture of an experiment shows the numbers of its table."""

import itertools
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from automix.studies.cells import Column
from automix.studies.plots import COST, _draw_spread, draw_against_cost, draw_results
from automix.studies.results import Result, ResultRow, ResultTable

NOTHING = Result()


def result_row(row: str, student: Result, teacher: Result) -> ResultRow:
    return ResultRow(row, row.title(), None, "teacher", {"student": student, "teacher": teacher})


def result(*values: float) -> Result:
    return Result(dict(enumerate(values)))


ACCURACY = ResultTable(
    Column("cifar", "top-1 %", {}),
    (
        result_row("vanilla", result(49, 51), result(50, 52)),
        result_row("automix", result(55), result(56, 58)),
        result_row("cutmix", NOTHING, NOTHING),
    ),
)
SPENT = ResultTable(
    Column("cost", "time", {}, COST),
    (
        result_row("vanilla", NOTHING, result(1, 1)),
        result_row("automix", NOTHING, result(2.5, 2.7)),
        result_row("cutmix", NOTHING, result(1.1)),
    ),
)


def points(axis: Any) -> list[tuple[float, float]]:
    return [(float(bar.lines[0].get_xdata()[0]), float(bar.lines[0].get_ydata()[0])) for bar in axis.containers]


def test_points_are_means() -> None:
    axes = Figure().subplots(ncols=2)
    _draw_spread(axes[0], ACCURACY)
    assert [x for x, _ in points(axes[0])] == [50, 51, 55, 57]
    assert [tick.get_text() for tick in axes[0].get_yticklabels()] == ["Vanilla", "Automix", "Cutmix"]
    draw_against_cost(axes[1], ACCURACY, {"vanilla": 1.0, "automix": 2.6, "cutmix": 1.1})
    drawn = [(float(point.get_xdata()[0]), float(point.get_ydata()[0])) for point in axes[1].lines]
    assert drawn == [(1.0, 51.0), (2.6, 57.0)]
    assert [text.get_text() for text in axes[1].texts] == ["Vanilla", "Automix"]


def test_labels_of_close_points_do_not_overlap() -> None:
    axis: Any = Figure().subplots()
    rows = [result_row(name, NOTHING, result(50 + 0.01 * place)) for place, name in enumerate("abcdef")]
    draw_against_cost(axis, ResultTable(ACCURACY.column, tuple(rows)), dict.fromkeys("abcdef", 1.0))
    low, high = axis.get_ylim()
    heights = [text.xyann[1] for text in axis.texts]
    assert min(b - a for a, b in itertools.pairwise(heights)) >= 0.04 * (high - low)


def test_costs_have_a_panel_beside_each_column() -> None:
    with_costs, without = draw_results([ACCURACY, SPENT]), draw_results([ACCURACY])
    assert with_costs is not None
    assert without is not None
    assert with_costs.size == without.size
    right = [np.asarray(picture)[:, picture.width // 2 :].astype(int) for picture in (with_costs, without)]
    orange = [int((np.abs(half - (0xDD, 0x88, 0x33)).sum(-1) < 30).sum()) for half in right]
    assert orange[0] > 20 > orange[1]


def test_no_picture_without_results() -> None:
    assert draw_results([ResultTable(ACCURACY.column, (result_row("cutmix", NOTHING, NOTHING),))]) is None
    assert draw_results([SPENT]) is None
