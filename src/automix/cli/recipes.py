"""`automix recipes [NAME]`: the recipes, or the settings and the source of one."""

import inspect
import sys
from dataclasses import fields

from automix.cli._output import print_table


def recipes(name: str | None = None, /) -> None:
    """List the training recipes, or show all settings of one.

    Args:
        name: The recipe to show.
    """
    from automix.runs.recipes import RECIPES, find_recipe

    if name is None:
        print_table(("recipe", "for"), [(name, _doc(kind).splitlines()[0]) for name, kind in RECIPES.items()])
        return
    recipe = find_recipe(name)
    sys.stdout.write(_doc(type(recipe)) + "\n\n")
    print_table(("setting", "value"), [(field.name, str(getattr(recipe, field.name))) for field in fields(recipe)])


def _doc(kind: type) -> str:
    return inspect.getdoc(kind) or ""
