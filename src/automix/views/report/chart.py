"""The layout of charts: where axes, curves and bands lie. The templates draw them as inline SVG.

Lengths are in the units of the SVG. A chart is narrow and takes the width of its column, so that its text is readable
on a phone and not huge on a desktop.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from automix.views.report.numbers import coordinate, number, tick_label
from automix.views.report.series import Series

WIDTH, HEIGHT = 350, 200
LEFT, RIGHT, TOP, BOTTOM = 46, 340, 10, 174  # of the plot
MAX_DOTS = 30  # a curve of up to so many points has a dot for each
LOG_RATIO = 30.0  # of the largest to the smallest value, above which an axis may be logarithmic
MIN_LOG = 1e-100  # smaller values have no decade below them that is a float


@dataclass(frozen=True)
class Scale:
    """A map from values to coordinates between `start` and `end`, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self, about: int) -> list[float]:
        """Choose round values, `about` so many."""
        if self.log:
            decades = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            return [10.0**power for power in decades[:: math.ceil(len(decades) / 6) or 1]]
        raw = (self.high - self.low) / about
        unit = 10.0 ** math.floor(math.log10(raw))
        size = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw * 0.999)
        first, last = math.ceil(self.low / size - 1e-9), math.floor(self.high / size + 1e-9)
        return [number * size for number in range(first, last + 1)]


@dataclass(frozen=True)
class Label:
    """Text on an axis."""

    text: str
    x: str
    y: str
    anchor: str
    dy: str = "0"


@dataclass(frozen=True)
class Dot:
    """A point of a curve, with the text that appears under the pointer."""

    x: str
    y: str
    title: str


@dataclass(frozen=True)
class Curve:
    """A series as the points of an SVG; `line` and `band` are empty where there is nothing to draw."""

    name: str
    style: str
    title: str
    line: str
    band: str
    dots: list[Dot]
    steps: str
    values: str


@dataclass(frozen=True)
class Chart:
    """All that is drawn in one chart; `description` is for screen readers."""

    description: str
    last_step: int
    grid: list[str]
    labels: list[Label]
    curves: list[Curve]
    size: tuple[int, int] = (WIDTH, HEIGHT)
    plot: tuple[int, int, int, int] = (LEFT, RIGHT, TOP, BOTTOM)


@dataclass(frozen=True)
class DotPlot:
    """Results of single runs as dots on a line, and their mean ± standard deviation as a bar.

    Positions are percentages of a width that only the browser knows, so that the dots stay round.
    """

    style: str
    description: str
    dots: list[tuple[str, str]]
    bar: tuple[str, str] | None


def lay_out_chart(series: Sequence[Series], title: str, *, log: bool = False, unit: str = "step") -> Chart:
    """Lay out curves over steps, or whatever `unit` the numbers count.

    With `log`, the axis is logarithmic if the values are positive and span decades.
    """
    series = [one for one in series if one.points]
    last_step = max(step for one in series for step, _ in one.points)
    across = Scale(0, max(last_step, 1), LEFT, RIGHT)
    up = _value_scale(series, log)
    ends = ", ".join(f"{one.name} {number(one.points[-1][1])}" for one in series)
    grid, labels = _axes(across, up, unit)
    return Chart(
        description=f"{title}, over {last_step} {unit}s; at the end: {ends}",
        last_step=last_step,
        grid=grid,
        labels=labels,
        curves=[_curve(one, across, up, unit) for one in series],
    )


def lay_out_dots(
    results: Sequence[float], mean: float, std: float | None, low: float, high: float, style: str
) -> DotPlot:
    """Lay out the results of runs, in percent, on a line from `low` to `high`."""
    across = Scale(low, high, 2, 98)
    bar = None
    if std is not None:
        start, end = (across(min(max(value, low), high)) for value in (mean - std, mean + std))
        bar = (coordinate(start), coordinate(end))
    return DotPlot(
        style=style,
        description=", ".join(f"{value:.2f}" for value in results),
        dots=[(coordinate(across(value)), f"{value:.2f}") for value in results],
        bar=bar,
    )


def _value_scale(series: Sequence[Series], log: bool) -> Scale:
    values = [value for one in series for _, value in one.points]
    bands = [value + sign * s for one in series for (_, value), s in zip(one.points, one.spread) for sign in (-1, 1)]  # noqa: B905
    low, high = min(values + bands), max(values + bands)
    if log and min(values) > MIN_LOG and max(values) / min(values) > LOG_RATIO:
        decades = (10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(high)))
        return Scale(*decades, BOTTOM, TOP, log=True)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    bottom = 0.0 if 0 <= low < 0.35 * high or 0 <= low < room else low - room
    return Scale(bottom, high + room, BOTTOM, TOP)


def _axes(across: Scale, up: Scale, unit: str) -> tuple[list[str], list[Label]]:
    """The paths of the grid, and the labels of its lines."""
    lines, labels = [], []
    for value in up.ticks(6):
        y = coordinate(up(value))
        lines.append(f"M{LEFT} {y}H{RIGHT}")
        labels.append(Label(tick_label(value), str(LEFT - 6), y, "end", dy="0.34em"))
    for value in across.ticks(4):
        x = across(value)
        lines.append(f"M{coordinate(x)} {BOTTOM}v4")
        anchor = "end" if x > RIGHT - 12 else "middle"
        labels.append(Label(tick_label(value), coordinate(min(x, RIGHT)), str(BOTTOM + 17), anchor))
    labels.append(Label(unit, str(LEFT - 6), str(BOTTOM + 17), "end"))
    return lines, labels


def _curve(series: Series, across: Scale, up: Scale, unit: str) -> Curve:
    places = [(across(step), up(value)) for step, value in series.points]
    values = [number(value) for _, value in series.points]
    last_step = series.points[-1][0]
    dots = [
        Dot(coordinate(x), coordinate(y), f"{series.name}: {text} at {unit} {step}")
        for (x, y), (step, _), text in zip(places, series.points, values, strict=True)
        if len(places) <= MAX_DOTS or step == last_step
    ]
    return Curve(
        name=series.name,
        style=series.style,
        title=f"{series.name}: {values[-1]} at {unit} {last_step}",
        line=_points(places) if len(places) > 1 else "",
        band=_band(series, across, up) if series.spread else "",
        dots=dots,
        steps=" ".join(str(step) for step, _ in series.points),
        values=" ".join(values),
    )


def _band(series: Series, across: Scale, up: Scale) -> str:
    """The area of mean ± standard deviation; on a logarithmic axis it ends at the bottom instead of at 0."""
    upper, lower = (
        [(across(step), up(max(value + sign * spread, up.low) if up.log else value + sign * spread))
         for (step, value), spread in zip(series.points, series.spread, strict=True)]
        for sign in (1, -1)
    )  # fmt: skip
    return _points([*upper, *reversed(lower)])


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{coordinate(x)},{coordinate(y)}" for x, y in places)
