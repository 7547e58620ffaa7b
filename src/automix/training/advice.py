"""Warnings of settings that are accepted and likely wrong, before the first step."""

import math

from automix.networks.names import is_transformer
from automix.runs.recipes import find_recipe
from automix.training.defaults import EPOCHS_TO_MIX, SHORT_METHOD
from automix.training.run import Run

LEFT_OUT = 0.2  # share of the images that an epoch may leave out
LR_FACTOR = 4.0  # between a learning rate and the recipe's for the same batch
FEW_STEPS = 200  # a new Mix Block has flat masks for about so long
NEVER_TOO_SHORT = ("vanilla", "regmixup")  # methods that always learn from clean images


def setting_warnings(run: Run) -> list[str]:
    """Look for settings that are likely wrong.

    Args:
        run: The run, before its first step.

    Returns:
        One line for each, with a setting to try instead.
    """
    checks = (_batch_warning(run), _lr_warning(run), _mixing_warning(run))
    return [warning for warning in checks if warning]


def _batch_warning(run: Run) -> str:
    """A batch that does not divide a small set: an incomplete last batch is left out of every epoch."""
    count, batch = run.data.train_count, run.config.settings.batch_size
    if (left := count % batch) <= LEFT_OUT * count:
        return ""
    fitting = 2 ** int(math.log2(max(1, count // 4)))
    return f"a batch of {batch} leaves {left} of {count} images out of each epoch; try --batch-size {fitting}"


def _lr_warning(run: Run) -> str:
    """A learning rate far from the recipe's, which is for the recipe's batch and way of starting."""
    settings, recipe = run.config.settings, find_recipe(run.config.recipe)
    if settings.optimizer == "sgd" and is_transformer(run.config.model):
        return f"{run.config.model} is a transformer, which SGD hardly trains; try --optimizer adamw --lr 0.0001"
    if settings.optimizer != recipe.optimizer:
        return ""
    ratio = settings.batch_size / recipe.batch_size
    pretrained = settings.pretrained or run.config.weights is not None
    if pretrained and not recipe.pretrained:
        if settings.lr < recipe.lr:
            return ""
        return (
            f"lr {settings.lr:g} is the recipe's for new networks, too high for pretrained ones; try --recipe finetune"
        )
    low, high = sorted((recipe.lr * ratio, recipe.lr * math.sqrt(ratio)))  # the two rules for other batches
    if low / LR_FACTOR < settings.lr < high * LR_FACTOR:
        return ""
    return (
        f"lr {settings.lr:g} is far from the recipe's {recipe.lr:g}, which is for batches of {recipe.batch_size}; "
        f"for batches of {settings.batch_size} try --lr {recipe.lr * math.sqrt(ratio):.2g}"
    )


def _mixing_warning(run: Run) -> str:
    """Too few steps for mixing to pay."""
    epochs, method = run.config.settings.epochs, run.config.method
    if method in NEVER_TOO_SHORT:
        return ""
    if run.config.settings.pretrained and epochs < EPOCHS_TO_MIX:
        return (
            f"{epochs} epochs are too few for {method} on a pretrained network; "
            f"try --epochs {EPOCHS_TO_MIX} or more, or --method {SHORT_METHOD}"
        )
    if run.task.learns_to_mix and run.total_steps < FEW_STEPS:
        return f"{run.total_steps} steps are too few to learn masks; {FEW_STEPS} are the least, 1000 better"
    return ""
