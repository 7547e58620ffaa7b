"""Curves as inline SVG: axes, lines, bands. No library, no script; hover.js only adds a readout where it may run.

Sizes are in the SVG's own units. A chart is narrow and takes the width of its place, so that its letters are readable
on a phone and not huge on a desk.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from automix.views.report.gather import Points
from automix.views.report.markup import Markup, element, join

WIDTH, HEIGHT = 350, 200
LEFT, RIGHT, TOP, BOTTOM = 46, 340, 10, 174  # of the plot
COLORS = 8  # in style.css; later series have the same again, dashed
DOTTED = 30  # points: a curve of no more of them has a dot for each
LOG_RATIO = 30.0  # of the highest to the lowest value, from which on an axis may be logarithmic
LEAST_LOG = 1e-100  # the decade below must still be a number


@dataclass(frozen=True)
class Series:
    """A curve with its name; `spread` is what trials deviate from their mean at each point."""

    name: str
    points: Points
    number: int = 0  # decides the color
    spread: tuple[float, ...] = ()

    @property
    def style(self) -> str:
        return f"c{self.number % COLORS}" + (" dashed" if self.number >= COLORS else "")


def over_seeds(name: str, curves: Sequence[Points], number: int = 0) -> Series:
    """The mean of trials and its spread (n - 1), over the steps that all of them have."""
    if len(curves) == 1:
        return Series(name, list(curves[0]), number)
    by_step = [dict(curve) for curve in curves]
    shared = sorted(set(by_step[0]).intersection(*by_step[1:]))
    columns = [[values[step] for values in by_step] for step in shared]
    means = [(step, statistics.fmean(column)) for step, column in zip(shared, columns, strict=True)]
    return Series(name, means, number, tuple(statistics.stdev(column) for column in columns))


def thin(series: Series, most: int) -> Series:
    """No more than about `most` of the points: of each stretch the lowest and the highest, so that no peak is lost."""
    count = len(series.points)
    if count <= most:
        return series
    size = math.ceil(2 * count / most)
    kept = {0, count - 1}
    for start in range(0, count, size):
        stretch = range(start, min(start + size, count))
        kept |= {min(stretch, key=lambda i: series.points[i][1]), max(stretch, key=lambda i: series.points[i][1])}
    chosen = sorted(kept)
    spread = tuple(series.spread[i] for i in chosen) if series.spread else ()
    return Series(series.name, [series.points[i] for i in chosen], series.number, spread)


@dataclass(frozen=True)
class Scale:
    """From values to places between `start` and `end`, in equal steps or in equal ratios."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self, about: int) -> list[float]:
        if self.log:
            decades = range(math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9) + 1)
            return [10.0**power for power in decades[:: math.ceil(len(decades) / 6) or 1]]
        raw = (self.high - self.low) / about
        unit = 10.0 ** math.floor(math.log10(raw))
        size = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= raw * 0.999)
        first, last = math.ceil(self.low / size - 1e-9), math.floor(self.high / size + 1e-9)
        return [number * size for number in range(first, last + 1)]


def chart(series: Sequence[Series], about: str, *, log: bool = False) -> Markup:
    """The curves over steps; `about` is for those who cannot see them. `log`: where the values span decades."""
    series = [one for one in series if one.points]
    last_step = max(step for one in series for step, _ in one.points)
    across = Scale(0, max(last_step, 1), LEFT, RIGHT)
    up = _value_scale(series, log)
    ends = ", ".join(f"{one.name} {number(one.points[-1][1])}" for one in series)
    return element(
        "svg",
        _grid(across, up),
        *(_curve(one, across, up) for one in series),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="chart",
        aria_label=f"{about}, over {last_step} steps; at the end: {ends}",
        data_steps=last_step,
        data_left=LEFT,
        data_right=RIGHT,
        data_top=TOP,
        data_bottom=BOTTOM,
    )


def _value_scale(series: Sequence[Series], log: bool) -> Scale:
    values = [value for one in series for _, value in one.points]
    bands = [value + sign * s for one in series for (_, value), s in zip(one.points, one.spread) for sign in (-1, 1)]  # noqa: B905
    low, high = min(values + bands), max(values + bands)
    if log and min(values) > LEAST_LOG and max(values) / min(values) > LOG_RATIO:
        decades = (10.0 ** math.floor(math.log10(min(values))), 10.0 ** math.ceil(math.log10(high)))
        return Scale(*decades, BOTTOM, TOP, log=True)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    bottom = 0.0 if 0 <= low < 0.35 * high or 0 <= low < room else low - room
    return Scale(bottom, high + room, BOTTOM, TOP)


def _grid(across: Scale, up: Scale) -> Markup:
    lines, words = [], []
    for value in up.ticks(6):
        y = _place(up(value))
        lines.append(element("path", d=f"M{LEFT} {y}H{RIGHT}"))
        words.append(element("text", _short(value), x=LEFT - 6, y=y, dy="0.34em", text_anchor="end"))
    for value in across.ticks(4):
        x = across(value)
        lines.append(element("path", d=f"M{_place(x)} {BOTTOM}v4"))
        anchor = "end" if x > RIGHT - 12 else "middle"
        words.append(element("text", _short(value), x=_place(min(x, RIGHT)), y=BOTTOM + 17, text_anchor=anchor))
    words.append(element("text", "step", x=LEFT - 6, y=BOTTOM + 17, text_anchor="end"))
    return join([element("g", *lines, class_="grid"), element("g", *words, class_="words")])


def _curve(series: Series, across: Scale, up: Scale) -> Markup:
    places = [(across(step), up(value)) for step, value in series.points]
    values = [number(value) for _, value in series.points]
    parts = [_band(series, across, up)] if series.spread else []
    if len(places) > 1:
        parts.append(element("polyline", points=_points(places)))
    step, value = series.points[-1]
    for place, (at, _), text in zip(places, series.points, values, strict=True):
        if len(places) <= DOTTED or at == step:
            told = element("title", f"{series.name}: {text} at step {at}")
            parts.append(element("circle", told, cx=_place(place[0]), cy=_place(place[1]), r=2.2))
    return element(
        "g",
        element("title", f"{series.name}: {number(value)} at step {step}"),
        *parts,
        class_=f"curve {series.style}",
        data_name=series.name,
        data_at=" ".join(str(step) for step, _ in series.points),
        data_values=" ".join(values),
    )


def _band(series: Series, across: Scale, up: Scale) -> Markup:
    """Mean +- standard deviation, as an area; on a logarithmic axis it may not reach 0."""
    upper, lower = (
        [(across(step), up(max(value + sign * spread, up.low) if up.log else value + sign * spread))
         for (step, value), spread in zip(series.points, series.spread, strict=True)]
        for sign in (1, -1)
    )  # fmt: skip
    return element("polygon", points=_points([*upper, *reversed(lower)]), class_="band")


def strip(results: Sequence[float], mean: float, std: float | None, low: float, high: float, style: str) -> Markup:
    """The results of trials as dots on a line from `low` to `high`, and their mean +- std as a bar behind them.

    Places are percent of a width that is not known here: the dots stay round.
    """
    across = Scale(low, high, 2, 98)
    parts = [_level("rail", 2, 98)]
    if std is not None:
        parts.append(_level("bar", *(across(min(max(value, low), high)) for value in (mean - std, mean + std))))
    for value in results:
        told = element("title", f"{value:.2f} %")
        parts.append(element("circle", told, cx=f"{_place(across(value))}%", cy=12, r=5))
    text = ", ".join(f"{value:.2f}" for value in results)
    return element("svg", *parts, role="img", class_=f"strip {style}", aria_label=f"trials: {text} %")


def _level(kind: str, start: float, end: float) -> Markup:
    return element("line", x1=f"{_place(start)}%", x2=f"{_place(end)}%", y1=12, y2=12, class_=kind)


def number(value: float) -> str:
    """With four digits that count, without powers of ten where that is readable."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{value:.2e}"


def _short(value: float) -> str:
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (letter == "M" and abs(value) >= size):
            return f"{value / size:g}{letter}"
    return "0" if abs(value) < 1e-12 else f"{value:.6g}"


def _points(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{_place(x)},{_place(y)}" for x, y in places)


def _place(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
