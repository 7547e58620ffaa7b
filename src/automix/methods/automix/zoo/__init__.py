"""Mix Blocks that were trained before and come with the package: ``AutoMix(model, mix_block="zoo:NAME")``.

They ignore the labels, so that they fit data with any classes. A block reads the features of one layer of one network,
and fits networks that start from the same weights. The files are NAME.safetensors in this folder, each with its card;
benchmarks/zoo.py writes and measures them.
"""

from pathlib import Path

from torch import nn

from automix.core.errors import AutomixError
from automix.core.validation import unknown_name
from automix.methods.automix.block_file import BlockCard, load_mix_block, read_card
from automix.methods.automix.mix_block import MixBlock
from automix.networks.outputs import without_compile

PREFIX = "zoo:"
FOLDER = Path(__file__).parent


def list_zoo() -> dict[str, BlockCard]:
    """List the Mix Blocks that come with the package.

    Returns:
        Their cards by name.
    """
    cards = {file.stem: read_card(file) for file in sorted(FOLDER.glob("*.safetensors"))}
    return {name: card for name, card in cards.items() if card is not None}


def is_from_zoo(block: object) -> bool:
    """Tell whether the option `mix_block` names a block that comes with the package.

    Args:
        block: The value of the option.

    Returns:
        True for ``"zoo:NAME"``, whether there is such a name or not.
    """
    return isinstance(block, str) and block.startswith(PREFIX)


def check_zoo(block: str, backbone: str, layer: int | str) -> None:
    """Raise an error in one line unless a block comes with the package and fits a network.

    Args:
        block: ``"zoo:NAME"``.
        backbone: timm's name of the network.
        layer: The layer that feeds the Mix Block.
    """
    cards = list_zoo()
    name = block.removeprefix(PREFIX)
    if name not in cards:
        raise unknown_name("Mix Block of the zoo", name, list(cards))
    card = cards[name]
    if (backbone, layer) != (card.backbone, card.layer):
        raise AutomixError(
            f"mix_block {block} needs layer {card.layer} of {card.backbone}, got layer {layer} of {backbone}. "
            f"Available: {', '.join(cards)}"
        )


def load_from_zoo(block: str, model: nn.Module, layer: int | str) -> MixBlock:
    """Load a Mix Block that comes with the package.

    Args:
        block: ``"zoo:NAME"``.
        model: The network that it will read the features of.
        layer: The layer that feeds it.

    Returns:
        The Mix Block.
    """
    check_zoo(block, _backbone(model), layer)
    return load_mix_block(FOLDER / f"{block.removeprefix(PREFIX)}.safetensors")


def _backbone(model: nn.Module) -> str:
    """timm's name of a network; the name of its class if it is none of timm's."""
    model = without_compile(model)
    config = getattr(model, "pretrained_cfg", None)
    name = config.get("architecture") if isinstance(config, dict) else None
    return str(name or type(model).__name__)
