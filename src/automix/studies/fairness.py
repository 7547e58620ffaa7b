"""Rows that are compared must be comparable: one column, one budget, one schedule, one averaging.

Rows of a column may differ in the method and its own options. Everything else (epochs, batch, learning rate and its
floor, augmentation, data, network) must be the same, or a gain may come from the setting. Teachers are compared with
teachers and students with students.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from automix.core.errors import AutomixError
from automix.studies.cells import NETWORKS, Cell, Source
from automix.studies.settings import with_recipe

METHOD_SETTINGS = ("method", "method_options", "preset", "alpha", "layer")


def check_fair(name: str, cells: Iterable[Cell], varies: tuple[str, ...] = ()) -> None:
    """Check that the rows of each column differ in the method's settings only.

    Args:
        name: Name of the experiment, for the message.
        cells: Its cells.
        varies: Further settings in which rows differ on purpose.

    Raises:
        AutomixError: If two rows of a column differ in another setting.
    """
    columns: dict[str, list[Cell]] = {}
    for cell in cells:
        columns.setdefault(cell.column, []).append(cell)
    for column, members in columns.items():
        for network in NETWORKS:
            sources = {cell.row: source for cell in members if (source := cell.source(network)) is not None}
            if difference := _first_difference(sources, free=(*METHOD_SETTINGS, *varies)):
                raise AutomixError(f"{name}, column {column}: rows must differ in the method only, {difference}")


def _first_difference(sources: Mapping[str, Source], free: tuple[str, ...]) -> str:
    """Describe the first setting in which a row differs from the first one; empty if there is none."""
    first: dict[str, tuple[str, Any]] = {}
    for row, source in sources.items():
        settings = with_recipe(source.values)
        if source.network == "teacher" and not settings["ema"]:
            return f"{row} has no teacher without ema=True"
        settings["ema"] = source.network == "teacher"  # averaging does not change the student, see cells.py
        for name, value in settings.items():
            first_row, first_value = first.setdefault(name, (row, value))
            if name not in free and first_value != value:
                return f"{row} has {name}={value}, {first_row} has {first_value}"
    return ""
