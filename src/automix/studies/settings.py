"""Training settings as plain values, before a TrainConfig checks them."""

import functools
from dataclasses import asdict
from typing import Any

from automix.runs.recipes import Recipe, find_recipe

Values = dict[str, Any]
"""Settings of `automix train` by name (see TrainConfig), without the seed."""

cached_recipe = functools.cache(find_recipe)
"""`find_recipe` that builds each recipe once."""


def merge_values(first: Values, second: Values) -> Values:
    """Merge settings; options of the method and of the network are merged one by one.

    Args:
        first: Settings by name.
        second: Settings that override them.

    Returns:
        The merged settings.
    """
    merged = {**first, **second}
    for name in ("method_options", "model_options"):
        if name in first and name in second:
            merged[name] = {**first[name], **second[name]}
    return merged


def with_recipe(values: Values) -> Values:
    """Fill in the recipe's settings where none are given.

    Args:
        values: Settings by name, among them ``recipe``.

    Returns:
        The settings with every field of the recipe.
    """
    return {**_recipe_values(values["recipe"]), **values}


@functools.cache
def _recipe_values(name: str) -> Values:
    recipe: Recipe = cached_recipe(name)
    return asdict(recipe)
