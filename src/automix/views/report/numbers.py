"""Numbers as text."""

import statistics
from collections.abc import Sequence

PLUS_MINUS = " ± "


def number(value: float) -> str:
    """Write a number with four significant digits, without an exponent where that is readable."""
    if value == 0 or 1e-3 <= abs(value) < 1e6:
        return f"{value:.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    return f"{value:.2e}"


def mean_and_std(values: Sequence[float]) -> str:
    """Write one number, or the mean ± standard deviation of several; an empty string for none."""
    if len(values) < 2:
        return number(values[0]) if values else ""
    mean, std = statistics.fmean(values), statistics.stdev(values)
    if 10 <= abs(mean) <= 100:  # nearly always a percentage
        return f"{mean:.2f}{PLUS_MINUS}{std:.2f}"
    return f"{number(mean)}{PLUS_MINUS}{std:.2g}"


def tick_label(value: float) -> str:
    """Write a number for an axis, with M for millions and k for thousands."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * size or (letter == "M" and abs(value) >= size):
            return f"{value / size:g}{letter}"
    text = "0" if abs(value) < 1e-12 else f"{value:.6g}"
    return text.replace("e-0", "e-").replace("e+0", "e+")  # as short as possible: the margin is narrow


def coordinate(value: float) -> str:
    """Write a coordinate of an SVG, with one decimal where it needs one."""
    return f"{value:.1f}".removesuffix(".0")
