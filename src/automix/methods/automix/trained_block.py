"""Mix Blocks that were trained before, from wherever they are: the value of the option `mix_block`."""

from pathlib import Path

from torch import nn

from automix.core.errors import AutomixError
from automix.methods.automix.block_file import load_mix_block
from automix.methods.automix.mix_block import MixBlock
from automix.methods.automix.zoo import is_from_zoo, load_from_zoo


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
