"""How matplotlib's figures become pictures here."""

import io
from typing import Any

from PIL import Image

BLUE, ORANGE, GREEN, RED, GRAY = "#3366aa", "#dd8833", "#55a868", "#bb3333", "#8c8c8c"


class NoPlotsError(ValueError):
    """matplotlib is not installed."""


def new_figure(width: float = 5.0, height: float = 4.0, **options: Any) -> tuple[Any, Any]:
    """matplotlib's figure and axes of so many inches, without a window; further `options` of Figure.subplots."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise NoPlotsError("plots need matplotlib: pip install 'automix[plots]'") from None
    figure = Figure(figsize=(width, height), dpi=120, layout="constrained")
    axes = figure.subplots(**options)
    return figure, axes


def as_image(figure: Any) -> Image.Image:
    """The figure, drawn."""
    written = io.BytesIO()
    figure.savefig(written, format="png")
    return Image.open(written).convert("RGB")
