"""A trained Mix Block as one file, to start another training with: safetensors, its options in the metadata.

A file may have a card, which says what the block was trained on.
"""

import copy
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from automix.core.errors import AutomixError, one_line
from automix.core.tensor_files import DamagedError, read_tensors, write_tensors
from automix.methods.automix.mix_block import MixBlock
from automix.methods.automix.settings import BLOCK_FIELDS

FILE_NAME = "mix_block.safetensors"  # in a run folder
KEY, CARD_KEY = "mix_block", "card"  # in the metadata
OPTIONS = ("channels", "num_classes", *BLOCK_FIELDS)


@dataclass(frozen=True)
class BlockCard:
    """What a Mix Block was trained on, and what its masks were at the end."""

    backbone: str
    """timm's name of the network whose features it reads."""
    weights: str
    """The weights that this network started from."""
    layer: int
    """The stage whose feature map it reads."""
    data: str
    """The training images."""
    image_size: int
    """Side of these images in pixels."""
    mean: tuple[float, ...]
    """Mean by which the pixels were normalized."""
    std: tuple[float, ...]
    """Standard deviation by which the pixels were normalized."""
    steps: int
    """Number of training steps."""
    spread: float
    """Standard deviation of a mask over its pixels at lam 0.5, on test images of the same data."""
    top2: float
    """How often, in percent, the trained network recognizes both images of a mixed test sample at lam 0.5."""
    top2_mixup: float
    """The same for Mixup's samples of the same pairs."""
    top2_cutmix: float
    """The same for CutMix's samples."""


def save_mix_block(path: Path, block: MixBlock, card: BlockCard | None = None) -> None:
    """Write the weights and options of a Mix Block.

    Args:
        path: The file. An existing one stays until the new one is complete.
        block: The Mix Block.
        card: What it was trained on.
    """
    options = {name: getattr(block, name) for name in OPTIONS}
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in block.state_dict().items()}
    metadata = {KEY: json.dumps(options)}
    if card is not None:
        metadata[CARD_KEY] = json.dumps(asdict(card))
    write_tensors(path, weights, metadata)


def load_mix_block(path: Path) -> MixBlock:
    """Read a Mix Block.

    Args:
        path: A file that `save_mix_block` wrote, or a run folder with one in it.

    Returns:
        The Mix Block.
    """
    file = path / FILE_NAME if path.is_dir() else path
    try:
        weights, metadata = read_tensors(file)
    except (DamagedError, OSError) as error:
        raise AutomixError(f"mix_block cannot be read ({error})") from None
    try:
        return _build(_current_names(json.loads(metadata[KEY])), weights)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise AutomixError(f"{file}: not a Mix Block ({one_line(error)}); use a file of save_mix_block") from None


def read_card(path: Path) -> BlockCard | None:
    """Read the card of a Mix Block.

    Args:
        path: A file that `save_mix_block` wrote.

    Returns:
        The card; None if the file has none.
    """
    metadata = read_tensors(path)[1]
    if CARD_KEY not in metadata:
        return None
    values: dict[str, Any] = json.loads(metadata[CARD_KEY])
    return BlockCard(**values | {name: tuple(values[name]) for name in ("mean", "std")})


def without_classes(block: MixBlock) -> MixBlock:
    """Copy a Mix Block without its class vectors, for data with other classes.

    The mean of the vectors does not depend on the class and moves into w_L:
    w_[y_j] z_j - w_[y_i] z_i = w_mean (z_j - z_i) + what the two classes add.

    Args:
        block: The Mix Block; with class vectors, it needs `local`.

    Returns:
        A block that ignores the labels.
    """
    if block.num_classes is None:
        return copy.deepcopy(block)
    if not block.local:
        raise AutomixError("a Mix Block with local=False cannot be used without its classes")
    weights = block.state_dict()
    weights["w_l.weight"] = weights["w_l.weight"] + weights.pop("w_c").mean(dim=0).reshape(1, -1, 1, 1)
    return _build({name: getattr(block, name) for name in OPTIONS} | {"num_classes": None}, weights)


def _build(options: dict[str, Any], weights: dict[str, Tensor]) -> MixBlock:
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):  # leave the global generator as it is
        block = MixBlock(**{name: options[name] for name in OPTIONS})
    block.load_state_dict(weights)
    return block


def _current_names(options: dict[str, Any]) -> dict[str, Any]:
    """Options as earlier versions wrote them, under today's names and with those that came later."""
    if "classes" in options:
        options["num_classes"] = options.pop("classes")
    added = {"pair_attention": False, "hidden_value": False, "lam_curve": None}
    return {"num_classes": None, "smooth": False, "init": "torch", **added, **options}
