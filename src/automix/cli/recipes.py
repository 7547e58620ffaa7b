"""`automix recipes [NAME]`: the recipes, or the settings and the source of one."""

import inspect
from dataclasses import fields

from rich.console import Console

from automix.cli._arguments import new_parser, parse
from automix.cli._tables import print_table
from automix.runs.recipes import RECIPES, find_recipe


def run(arguments: list[str]) -> None:
    parser = new_parser("recipes", "[NAME]", "List the training recipes, or show all settings of one.")
    parser.add_argument("name", nargs="?", type=str, help="the recipe to show")
    name = parse(parser, arguments).name
    if name is None:
        print_table(("recipe", "for"), [(name, _doc(kind).splitlines()[0]) for name, kind in RECIPES.items()])
        return
    recipe = find_recipe(name)
    Console(highlight=False).print(_doc(type(recipe)) + "\n", markup=False)
    print_table(("setting", "value"), [(f.name, str(getattr(recipe, f.name))) for f in fields(recipe)])


def _doc(kind: type) -> str:
    return inspect.getdoc(kind) or ""
