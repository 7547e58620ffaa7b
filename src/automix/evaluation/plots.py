"""Matplotlib figures as PIL images, without a window."""

import io
from typing import Any

from PIL import Image

from automix.core.errors import AutomixError

BLUE, ORANGE, GREEN, RED, GRAY = "#3366aa", "#dd8833", "#55a868", "#bb3333", "#8c8c8c"


class NoPlotsError(AutomixError):
    """Matplotlib is not installed."""


def new_figure(width: float = 5.0, height: float = 4.0, **options: Any) -> tuple[Any, Any]:
    """Create a figure of matplotlib's and its axes.

    Args:
        width: In inches, of 120 pixels each.
        height: In inches.
        **options: Further arguments of ``Figure.subplots``.

    Returns:
        The figure, and its axes as ``Figure.subplots`` returns them.

    Raises:
        NoPlotsError: Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NoPlotsError("plots need matplotlib: pip install 'automix[plots]'") from None
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    axes = figure.subplots(**options)
    return figure, axes


def as_image(figure: Any) -> Image.Image:
    """Render a figure of matplotlib's.

    Args:
        figure: The figure.

    Returns:
        An RGB image.
    """
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return Image.open(written).convert("RGB")


def shorten(name: str, length: int) -> str:
    """Cut a name for a label of matplotlib's, and escape what it would read as a formula.

    Args:
        name: Any text.
        length: Most characters.

    Returns:
        The name, or its beginning and an ellipsis.
    """
    shown = name if len(name) <= length else f"{name[: length - 1]}…"
    return shown.replace("$", r"\$")
