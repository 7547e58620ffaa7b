"""Who is compared must be comparable: one column, one budget, one schedule, one averaging.

Rows of a column may differ in the method and its own options. Everything else, the epochs, the batch, the learning rate
and its floor, the augmentation, the data, the network, must be the same, or a gain may be the setting's. Teachers are
compared with teachers and students with students.
"""

import functools
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from automix.runs.recipes import find_recipe

if TYPE_CHECKING:
    from automix.studies.cells import Experiment, Network, Source

METHODS_OWN = ("method", "method_options", "alpha", "layer")


def check_fair(experiment: "Experiment") -> None:
    """Raise a ValueError of one line unless the rows of each column differ in what is the methods' own."""
    networks: tuple[Network, ...] = ("student", "teacher")
    for column in experiment.columns:
        for network in networks:
            cells = [cell for cell in experiment.cells if cell.column == column.name]
            sources = {cell.row: source for cell in cells if (source := cell.source(network)) is not None}
            if difference := _first_difference(sources, free=(*METHODS_OWN, *experiment.varies)):
                raise ValueError(
                    f"{experiment.name}, column {column.name}: {difference}; accepted are rows that differ in the "
                    "method alone"
                )


def _first_difference(sources: "dict[str, Source]", free: tuple[str, ...]) -> str:
    """In words, what a row has otherwise than the first one; nothing if there is no such thing."""
    told: dict[str, tuple[str, Any]] = {}
    for row, source in sources.items():
        settings = complete(source.values)
        settings["ema"] = source.network == "teacher"  # the average does not touch the student, see cells.py
        if settings["ema"] and not complete(source.values)["ema"]:
            return f"{row} has no teacher without ema=True"
        for name, value in settings.items():
            first, theirs = told.setdefault(name, (row, value))
            if name not in free and theirs != value:
                return f"{row} has {name}={value}, {first} has {theirs}"
    return ""


def complete(values: dict[str, Any]) -> dict[str, Any]:
    """The settings that decide, with those of the recipe where none are given."""
    return {**_settings_of(values["recipe"]), **values}


@functools.cache
def _settings_of(recipe: str) -> dict[str, Any]:
    return asdict(find_recipe(recipe))
