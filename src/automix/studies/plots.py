"""The picture of an experiment: accuracies with their spread and, where the cost is known, against it.

The latter is the paper's Figure 1: what is up and to the left is accurate and cheap.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from PIL import Image

from automix.evaluation.plots import BLUE, GRAY, ORANGE, as_image, new_figure
from automix.studies.cells import ACCURACIES
from automix.studies.results import Block, Line, Number

COST = "efficiency/step_ratio"
COLORS = {"student": GRAY, "teacher": BLUE}
APART = 0.045  # of the height of a panel, between names that would lie on each other
LEADER = {"arrowstyle": "-", "linewidth": 0.5, "color": GRAY, "relpos": (0, 0.5)}  # from a point to its name's left end
WIDTH = 1.6  # of a name, as a factor on the axis of costs


def draw(blocks: Sequence[Block]) -> Image.Image | None:
    """A panel for each column of accuracies; None where nothing is finished."""
    costs = {line.row: cost for block in blocks if block.column.measure == COST for line in block.lines
             if (cost := _mean(line.numbers["teacher"])) is not None}  # fmt: skip
    panels = [replace(block, lines=known) for block in blocks if block.column.measure in ACCURACIES
              and (known := tuple(filter(_known, block.lines)))]  # fmt: skip
    if not panels:
        return None
    lines = max(len(block.lines) for block in panels)
    figure, axes = new_figure(10, (1.2 + 0.3 * lines) * len(panels), nrows=len(panels),
                              ncols=2 if costs else 1, squeeze=False)  # fmt: skip
    for row, block in zip(axes, panels, strict=True):
        _draw_spread(row[0], block)
        if costs:
            _draw_against_cost(row[1], block, costs)
    for network, label in (("student", "student (no EMA)"), ("teacher", "teacher (EMA)")):
        axes[0][0].plot([], [], "o", markersize=4, color=COLORS[network], label=label)
    axes[0][0].legend(fontsize=8, loc="best")
    return as_image(figure)


def _draw_spread(axis: Any, block: Block) -> None:
    """Mean and standard deviation over trials, of student and teacher."""
    for number, line in enumerate(block.lines):
        for network, shift in (("student", -0.12), ("teacher", 0.12)):
            if (trials := line.numbers[network].trials) is not None:  # type: ignore[index]
                axis.errorbar(trials.mean, number + shift, xerr=trials.std or 0, fmt="o", markersize=4, capsize=2,
                              color=COLORS[network])  # fmt: skip
    axis.set_yticks(range(len(block.lines)), [line.title for line in block.lines])
    axis.invert_yaxis()
    axis.grid(axis="x", alpha=0.3)
    axis.set_title(block.column.title, fontsize=10)


def _draw_against_cost(axis: Any, block: Block, costs: dict[str, float]) -> Any:
    """The teacher's mean accuracy over the time of a step; a name each, moved apart where two are close.

    Without the spread: many methods cost the same, and their bars would lie on each other.
    """
    points = [(costs[line.row], mean, line) for line in block.lines
              if line.row in costs and (mean := _mean(line.numbers["teacher"])) is not None]  # fmt: skip
    if not points:
        return axis.set_axis_off()
    for x, y, line in points:
        axis.plot(x, y, "o", markersize=5, color=ORANGE if line.row.startswith("automix") else BLUE)
    axis.set_xscale("log", base=2)
    axis.set_xlim(0.9 * min(x for x, *_ in points), 2.1 * max(x for x, *_ in points))  # the names need room
    low, high = axis.get_ylim()
    places: list[tuple[float, float]] = []
    for x, y, line in sorted(points, key=lambda point: point[1]):
        below = [place for cost, place in places if cost / WIDTH < x < cost * WIDTH]
        places.append((x, max(y, *(place + APART * (high - low) for place in below)) if below else y))
        axis.annotate(line.title, (x, y), (x * 1.04, places[-1][1]), fontsize=7, va="center", arrowprops=LEADER)
    axis.set_ylim(low, max(high, max(place for _, place in places) + APART * (high - low)))  # a name may be moved up
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}x")
    axis.grid(alpha=0.3)
    axis.set_xlabel("time of a step, vanilla's is 1", fontsize=8)
    return axis.set_title("teacher's accuracy against cost", fontsize=10)


def _known(line: Line) -> bool:
    return any(number.by_seed for number in line.numbers.values())


def _mean(number: Number) -> float | None:
    return number.trials.mean if number.trials is not None else None
