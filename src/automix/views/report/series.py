"""A metric over the steps of a run, or over those of several seeds."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from automix.views.report.run_record import Points

COLORS = 8  # in style.css; further series repeat the colors with dashed lines


def series_style(number: int) -> str:
    """Return the CSS classes of series `number`."""
    return f"c{number % COLORS}" + (" dashed" if number >= COLORS else "")


@dataclass(frozen=True)
class Series:
    """A named curve.

    Attributes:
        name: What the legend calls it.
        points: Step and value, in order of the steps.
        number: Position among the series of the page, which decides the color.
        spread: Standard deviation over the seeds at each point; empty for a single run.
    """

    name: str
    points: Points
    number: int = 0
    spread: tuple[float, ...] = ()

    @property
    def style(self) -> str:
        return series_style(self.number)


def over_seeds(name: str, curves: Sequence[Points], number: int = 0) -> Series:
    """Take the mean and the standard deviation (n - 1) over the steps that all curves have."""
    if len(curves) == 1:
        return Series(name, list(curves[0]), number)
    by_step = [dict(curve) for curve in curves]
    shared = sorted(set(by_step[0]).intersection(*by_step[1:]))
    columns = [[values[step] for values in by_step] for step in shared]
    means = [(step, statistics.fmean(column)) for step, column in zip(shared, columns, strict=True)]
    return Series(name, means, number, tuple(statistics.stdev(column) for column in columns))


def thin(series: Series, limit: int) -> Series:
    """Keep about `limit` points: the lowest and the highest of each interval, so that no peak is lost."""
    count = len(series.points)
    if count <= limit:
        return series
    size = math.ceil(2 * count / limit)
    kept = {0, count - 1}
    for start in range(0, count, size):
        interval = range(start, min(start + size, count))
        kept |= {min(interval, key=lambda i: series.points[i][1]), max(interval, key=lambda i: series.points[i][1])}
    positions = sorted(kept)
    spread = tuple(series.spread[i] for i in positions) if series.spread else ()
    return Series(series.name, [series.points[i] for i in positions], series.number, spread)
