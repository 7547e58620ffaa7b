"""The picture of an experiment: accuracies with their spread and, if the cost is known, accuracy against cost.

The second panel is the paper's Figure 1: methods at the top left are accurate and cheap.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from PIL import Image

from automix.evaluation.plots import BLUE, GRAY, ORANGE, as_image, new_figure
from automix.studies.cells import ACCURACIES, Network
from automix.studies.results import Result, ResultRow, ResultTable

COST = "efficiency/step_ratio"
COLORS = {"student": GRAY, "teacher": BLUE}
NETWORK_TITLES: dict[Network, str] = {"student": "student (no EMA)", "teacher": "teacher (EMA)"}
LABEL_HEIGHT = 0.045  # of a panel; labels closer than this are moved apart
LEADER_LINE = {"arrowstyle": "-", "linewidth": 0.5, "color": GRAY, "relpos": (0, 0.5)}  # from a point to its label
LABEL_WIDTH = 1.6  # as a factor on the cost axis


def draw_results(tables: Sequence[ResultTable]) -> Image.Image | None:
    """Draw a panel for each column of accuracies.

    Args:
        tables: The results of an experiment.

    Returns:
        The picture, or None if nothing is finished.
    """
    costs = step_costs(tables)
    panels = [replace(table, rows=finished) for table in tables if table.column.measure in ACCURACIES
              and (finished := tuple(filter(_has_results, table.rows)))]  # fmt: skip
    if not panels:
        return None
    most = max(len(table.rows) for table in panels)
    figure, axes = new_figure(10, (1.2 + 0.3 * most) * len(panels), nrows=len(panels),
                              ncols=2 if costs else 1, squeeze=False)  # fmt: skip
    for pair, table in zip(axes, panels, strict=True):
        _draw_spread(pair[0], table)
        if costs:
            draw_against_cost(pair[1], table, costs)
    for network, label in NETWORK_TITLES.items():
        axes[0][0].plot([], [], "o", markersize=4, color=COLORS[network], label=label)
    axes[0][0].legend(fontsize=8, loc="best")
    return as_image(figure)


def step_costs(tables: Sequence[ResultTable]) -> dict[str, float]:
    """Look up the time of a step of each row, vanilla's is 1.

    Args:
        tables: The results of an experiment.

    Returns:
        The mean over trials by name of the row; empty if no column measures it.
    """
    return {row.row: cost for table in tables if table.column.measure == COST for row in table.rows
            if (cost := _mean(row.results["teacher"])) is not None}  # fmt: skip


def _draw_spread(axis: Any, table: ResultTable) -> None:
    """Draw mean and standard deviation over trials, of student and teacher."""
    for number, row in enumerate(table.rows):
        for network, shift in (("student", -0.12), ("teacher", 0.12)):
            if (trials := row.results[network].trials) is not None:  # type: ignore[index]
                axis.errorbar(trials.mean, number + shift, xerr=trials.std or 0, fmt="o", markersize=4, capsize=2,
                              color=COLORS[network])  # fmt: skip
    axis.set_yticks(range(len(table.rows)), [row.title for row in table.rows])
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.set_title(table.column.title, fontsize=10)


def draw_against_cost(axis: Any, table: ResultTable, costs: dict[str, float]) -> None:
    """Draw the teacher's mean accuracy over the time of a step; labels of close points are moved apart.

    There are no error bars: many methods cost the same, and their bars would overlap.

    Args:
        axis: Axes of matplotlib's.
        table: Accuracies.
        costs: From `step_costs`.
    """
    points = [(costs[row.row], mean, row) for row in table.rows
              if row.row in costs and (mean := _mean(row.results["teacher"])) is not None]  # fmt: skip
    if not points:
        axis.set_axis_off()
        return
    for x, y, row in points:
        axis.plot(x, y, "o", markersize=5, color=ORANGE if row.row.startswith("automix") else BLUE)
    axis.set_xscale("log", base=2)
    axis.set_xlim(0.9 * min(x for x, *_ in points), 3.1 * max(x for x, *_ in points))  # room for the labels
    low, high = axis.get_ylim()
    places: list[tuple[float, float]] = []
    for x, y, row in sorted(points, key=lambda point: point[1]):
        below = [place for cost, place in places if cost / LABEL_WIDTH < x < cost * LABEL_WIDTH]
        places.append((x, max(y, *(place + LABEL_HEIGHT * (high - low) for place in below)) if below else y))
        axis.annotate(row.title, (x, y), (x * 1.04, places[-1][1]), fontsize=7, va="center", arrowprops=LEADER_LINE)
    axis.set_ylim(
        low, max(high, max(place for _, place in places) + LABEL_HEIGHT * (high - low))
    )  # a label may have been moved up
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axis.grid(alpha=0.3)
    axis.set_xlabel("time of a step, vanilla's is 1", fontsize=8)
    axis.set_title("teacher's accuracy against cost", fontsize=10)


def _has_results(row: ResultRow) -> bool:
    return any(result.by_seed for result in row.results.values())


def _mean(result: Result) -> float | None:
    return result.trials.mean if result.trials is not None else None
