"""The parts of a run, built from its settings: data, network, task, optimizer, schedule."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from automix.core.criteria import (
    BinaryCrossEntropy,
    Criterion,
    CrossEntropy,
    Decoupled,
    MixedLoss,
    balanced_weights,
)
from automix.core.errors import AutomixError, one_line
from automix.core.normalization import Normalization
from automix.data import Data, Progress, open_data
from automix.methods import create_task, takes_normalization
from automix.networks.create import create_model
from automix.networks.freeze import freeze_stages
from automix.networks.head import head_parameters
from automix.networks.weights import find_pretrained
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder
from automix.runs.recipes import Recipe
from automix.tasks.task import Task
from automix.training.distributed import World

RSB_THRESHOLD = 0.2  # "ResNet strikes back": a class counts as present where its mixed label exceeds this


def check_buildable(config: TrainConfig, image_size: int) -> nn.Module:
    """Build network and task without memory or data, so that a wrong option is refused before any image is read.

    Args:
        config: The settings.
        image_size: Side of the training images in pixels.

    Returns:
        The network on the meta device, to look at its structure.
    """
    # a Mix Block to start from is for the classes of the data, which are not known yet
    options = {name: value for name, value in config.method_options.items() if name != "mix_block"}
    config = replace(config, method_options=options)
    with torch.device("meta"):
        model = build_model(config, num_classes=2, image_size=image_size, load=False)
        build_task(config, model)
    return model


def build_model(config: TrainConfig, num_classes: int, image_size: int, *, load: bool = True) -> nn.Module:
    """Build the network: new, with pretrained weights, or with those of a file or folder.

    Args:
        config: The settings.
        num_classes: Number of classes of the data.
        image_size: Side of the training images in pixels.
        load: Whether to load weights; not needed if a checkpoint is restored.

    Returns:
        The network.
    """
    settings = config.settings
    options: dict[str, Any] = dict(config.model_options)
    if settings.dropout:
        options["drop_rate"] = settings.dropout
    if settings.drop_path:
        options["drop_path_rate"] = settings.drop_path
    try:
        model = create_model(config.model, num_classes=num_classes, image_size=image_size, **options)
    except TypeError as error:
        raise AutomixError(f"model {config.model}: {one_line(error)}; check --model-options") from None
    except Exception as error:  # constructors raise whatever they like
        if isinstance(error, ValueError) and not config.model_options:
            raise
        raise AutomixError(f"model {config.model}: {one_line(error)}; check --model-options") from None
    if load and (settings.pretrained or config.weights is not None):
        find_pretrained(config.model, config.weights).load_into(model)
    freeze_stages(model, settings.frozen_stages)
    return model


def build_task(
    config: TrainConfig,
    model: nn.Module,
    *,
    resumed: bool = False,
    class_counts: Sequence[int] | None = None,
    normalization: Normalization | None = None,
) -> Task:
    """Build the method around the network, with the recipe's alpha, loss and momentum pipeline.

    Args:
        config: The settings.
        model: The network.
        resumed: Whether the state comes from a checkpoint. A Mix Block to start from is then read from the run folder
            if its own file is gone.
        class_counts: Number of training images of each class, for a loss that weights them; not needed if the task is
            not trained.
        normalization: How the images are normalized, for methods that work on pixels.

    Returns:
        The task.
    """
    settings = config.settings
    own = {
        "ema": settings.ema,
        "criterion": choose_criterion(settings, class_counts),
        "seed": config.seed,
        "low_memory": True,
    }
    options = config.effective_options
    if normalization is not None and takes_normalization(config.method):
        options = {"mean": normalization.mean, "std": normalization.std, **options}
    if resumed and "mix_block" in options and not Path(str(options["mix_block"])).exists():
        options["mix_block"] = str(RunFolder(config.folder).mix_block)
    if taken := sorted(own.keys() & options.keys()):
        instead = f"use --{taken[0]}" if taken[0] in ("ema", "seed") else "other settings decide it"
        raise AutomixError(f"method_options.{taken[0]} is not allowed; {instead}")
    try:
        return create_task(config.method, model, **own, **options)
    except (TypeError, AttributeError, RuntimeError) as error:  # an option that is none, or of another kind
        raise AutomixError(f"method {config.method}: {one_line(error)}; check --method-options") from None


def build_data(
    config: TrainConfig, world: World, *, use_skip_list: bool = True, progress: Progress | None = None
) -> Data:
    """Open the dataset with this process's share of its batches.

    Args:
        config: The settings.
        world: The processes that train together.
        use_skip_list: Whether to take the bad files from the list in the run folder instead of searching them.
        progress: Called with the numbers of images checked and of all, while bad files are searched.

    Returns:
        The dataset and its loader.
    """
    return open_data(
        config.data,
        config.settings.augmentation,
        root=config.root,
        classes=config.classes,
        per_class=config.per_class,
        validation=config.validation,
        batch_size=config.settings.batch_size,
        seed=config.seed,
        rank=world.rank,
        world_size=world.size,
        accumulate=config.accumulate,
        workers=config.workers,
        decode_cache=config.decode_cache,
        bad_data=config.bad_data,
        balance=config.settings.balance,
        skip_list=RunFolder(config.folder).skipped if use_skip_list else None,
        label_noise=config.label_noise,
        normalization=config.normalization,
        progress=progress,
    )


def choose_criterion(settings: Recipe, class_counts: Sequence[int] | None = None) -> Criterion:
    """Choose the loss of a recipe: binary cross-entropy, or cross-entropy with label smoothing and class weights.

    DecoupledMix's loss is the latter with its decoupled term.
    """
    if settings.loss == "bce":
        return BinaryCrossEntropy(RSB_THRESHOLD, settings.label_smoothing)
    weights = balanced_weights(class_counts) if settings.balance == "loss" and class_counts is not None else None
    if settings.loss == "decoupled":
        return Decoupled(CrossEntropy(settings.label_smoothing, weights))
    if weights is not None:
        return CrossEntropy(settings.label_smoothing, weights)
    return CrossEntropy(settings.label_smoothing) if settings.label_smoothing else MixedLoss()


def build_optimizer(settings: Recipe, task: Task) -> Optimizer:
    """Build timm's optimizer. With AdamW and LAMB, biases and norms have no weight decay, as in DeiT and RSB.

    Args:
        settings: The recipe.
        task: The task, whose parameter groups are trained.

    Returns:
        The optimizer.
    """
    from timm.optim import create_optimizer_v2

    groups = task.param_groups(lr=settings.lr, weight_decay=settings.weight_decay)
    groups = [part for group in groups for part in split_by_layer(group, task.student, settings)]
    if settings.optimizer != "sgd":
        groups = [part for group in groups for part in _split_by_decay(group)]
    name = {"sgd": "momentum"}.get(settings.optimizer, settings.optimizer)  # timm's "sgd" is Nesterov's
    options = {"momentum": settings.momentum} if settings.optimizer == "sgd" else {}
    return create_optimizer_v2(groups, opt=name, lr=settings.lr, weight_decay=settings.weight_decay, **options)


def split_by_layer(group: dict[str, Any], model: nn.Module, settings: Recipe) -> list[dict[str, Any]]:
    """Give the head and, with `layer_decay`, every layer of the network its own learning rate.

    Args:
        group: A parameter group of a task.
        model: The network.
        settings: The recipe; `head_lr` and `layer_decay` are used.

    Returns:
        The group as it is where all its parameters have one learning rate, else its parts.
    """
    if settings.head_lr == 1 and settings.layer_decay == 1:
        return [group]
    head = {id(parameter) for parameter in head_parameters(model)}
    decay = _layer_scales(model, settings.layer_decay)
    parts: dict[float, list[nn.Parameter]] = {}
    for parameter in group["params"]:
        is_head = id(parameter) in head or group["name"] == "mixed_head"
        scale = settings.head_lr if is_head else decay.get(id(parameter), 1.0)
        parts.setdefault(scale, []).append(parameter)
    return [{**group, "params": members, "lr": scale * group["lr"]} for scale, members in parts.items()]


def _layer_scales(model: nn.Module, layer_decay: float) -> dict[int, float]:
    """Learning rates by parameter, relative to the last layer's, as timm numbers the layers of its networks."""
    if layer_decay == 1:
        return {}
    from timm.optim import param_groups_layer_decay

    groups = param_groups_layer_decay(model, layer_decay=layer_decay)
    return {id(parameter): group["lr_scale"] for group in groups for parameter in group["params"]}


def _split_by_decay(group: dict[str, Any]) -> list[dict[str, Any]]:
    matrices = [parameter for parameter in group["params"] if parameter.ndim > 1]
    vectors = [parameter for parameter in group["params"] if parameter.ndim <= 1]
    split = [{**group, "params": matrices}, {**group, "params": vectors, "weight_decay": 0.0}]
    return [part for part in split if part["params"]]


def build_schedule(settings: Recipe, optimizer: Optimizer, steps_per_epoch: int) -> Any:
    """Build timm's schedule: a linear warm-up, then a cosine from `lr` to `lr_floor`. It depends on the step alone.

    A parameter group with an ``lr_floor`` of its own ends there.

    Args:
        settings: The recipe.
        optimizer: The optimizer.
        steps_per_epoch: Steps in an epoch.

    Returns:
        The schedule; call its `step_update(step)` before each step.
    """
    from timm.scheduler import CosineLRScheduler

    class CosineToFloors(CosineLRScheduler):
        """timm's has one floor for all groups, and raises learning rates that are below it."""

        def _get_lr(self, t: int) -> list[float]:
            rates = super()._get_lr(t)
            if t < self.warmup_t:
                return rates
            share = (1 + math.cos(math.pi * min(1.0, t / self.t_initial))) / 2
            floors = [group.get("lr_floor", self.lr_min) for group in self.optimizer.param_groups]
            highest = [(rate, min(rate, floor)) for rate, floor in zip(self.base_values, floors, strict=True)]
            return [floor + (rate - floor) * share for rate, floor in highest]

    return CosineToFloors(
        optimizer,
        t_initial=settings.epochs * steps_per_epoch,
        lr_min=settings.lr_floor,
        warmup_t=settings.warmup_epochs * steps_per_epoch,
        warmup_lr_init=min(1e-6, settings.lr),
        t_in_epochs=False,
    )
