"""The Mix Block of a task: a new one, or one that was trained before, from wherever it is."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from automix.core.errors import AutomixError
from automix.methods.automix.block_file import load_mix_block, without_classes
from automix.methods.automix.mix_block import MixBlock
from automix.methods.automix.settings import DECIDED_BY_BLOCK, AutoMixSettings
from automix.methods.automix.zoo import is_from_zoo, load_from_zoo
from automix.networks.feature_tap import count_classes


def make_block(
    given: MixBlock | Path | str | None,
    model: nn.Module,
    layer: int | str,
    channels: int,
    *,
    settings: AutoMixSettings,
    overrides: Mapping[str, Any],
    num_classes: int | None,
) -> MixBlock:
    """Make the Mix Block of an `AutoMix` task.

    Args:
        given: One that was trained before, as of `open_block`; None for a new one.
        model: The network that it will read the features of.
        layer: The layer that feeds it.
        channels: Channels of that layer.
        settings: The task's settings.
        overrides: Those among them that the caller gave.
        num_classes: Number of classes; found by looking at the network if not given.

    Returns:
        The Mix Block.
    """
    if given is None:
        classes = (num_classes or count_classes(model)) if settings.class_vectors else None
        return MixBlock(channels, classes, **settings.block_options())
    drop_classes = overrides.get("class_vectors") is False
    decided = [
        name for name in DECIDED_BY_BLOCK if name in overrides and not (name == "class_vectors" and drop_classes)
    ]
    if decided:
        raise AutomixError(f"{decided[0]} must not be given with a mix_block, which has its own")
    block = open_block(given, model, layer, channels)
    if drop_classes:
        block = without_classes(block)
    if block.num_classes is not None and block.num_classes != (known := num_classes or count_classes(model)):
        raise AutomixError(
            f"mix_block must be for {known} classes, those of the network; got {block.num_classes} "
            "(class_vectors=False uses it without its classes)"
        )
    return block


def open_block(block: MixBlock | Path | str, model: nn.Module, layer: int | str, channels: int) -> MixBlock:
    """Load a Mix Block and check that it fits a network.

    Args:
        block: The module, its file, the folder of a run, or ``"zoo:NAME"``.
        model: The network that it will read the features of.
        layer: The layer that feeds it.
        channels: Channels of that layer.

    Returns:
        The Mix Block.
    """
    if is_from_zoo(block):
        block = load_from_zoo(str(block), model, layer)
    elif isinstance(block, str | Path):
        block = load_mix_block(Path(block))
    if block.channels != channels:
        raise AutomixError(f"mix_block must be for {channels} channels, those of the layer; got {block.channels}")
    return block
