"""The paper's training settings as typed objects, by name.

The number expected of a command is the paper's top-1 accuracy: the mean of three runs, of each the median over the last
ten epochs.
"""

from automix.core.validation import unknown_name
from automix.runs.recipes.finetune import FineTune
from automix.runs.recipes.imagenet import DeiT, PyTorch100, PyTorch300, RsbA2, RsbA3
from automix.runs.recipes.recipe import Recipe
from automix.runs.recipes.small import Cifar, Quick, TinyImageNet
from automix.runs.recipes.transfer import FineGrained, INat, Places

RECIPES: dict[str, type[Recipe]] = {
    "quick": Quick,
    "finetune": FineTune,
    "cifar": Cifar,
    "tiny": TinyImageNet,
    "pytorch100": PyTorch100,
    "pytorch300": PyTorch300,
    "deit": DeiT,
    "rsb-a2": RsbA2,
    "rsb-a3": RsbA3,
    "fine-grained": FineGrained,
    "inat": INat,
    "places": Places,
}
"""The recipes by name."""


def find_recipe(name: str) -> Recipe:
    """Build a recipe by its name.

    Args:
        name: One of `RECIPES`.

    Returns:
        The recipe, with its own defaults.
    """
    if not isinstance(name, str) or name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]()


__all__ = ["RECIPES", "Recipe", "find_recipe"]
