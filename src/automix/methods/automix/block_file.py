"""A trained Mix Block as one file, to start another training with: safetensors, its options in the metadata."""

import json
from pathlib import Path
from typing import Any

import torch

from automix.core.errors import AutomixError, one_line
from automix.core.tensor_files import DamagedError, read_tensors, write_tensors
from automix.methods.automix.mix_block import MixBlock
from automix.methods.automix.settings import BLOCK_FIELDS

FILE_NAME = "mix_block.safetensors"  # in a run folder
KEY = "mix_block"  # in the metadata
OPTIONS = ("channels", "num_classes", *BLOCK_FIELDS)


def save_mix_block(path: Path, block: MixBlock) -> None:
    """Write the weights and options of a Mix Block.

    Args:
        path: The file. An existing one stays until the new one is complete.
        block: The Mix Block.
    """
    options = {name: getattr(block, name) for name in OPTIONS}
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in block.state_dict().items()}
    write_tensors(path, weights, {KEY: json.dumps(options)})


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
        options = _current_names(json.loads(metadata[KEY]))
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):  # leave the global generator as it is
            block = MixBlock(**{name: options[name] for name in OPTIONS})
        block.load_state_dict(weights)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise AutomixError(f"{file}: not a Mix Block ({one_line(error)}); use a file of save_mix_block") from None
    return block


def _current_names(options: dict[str, Any]) -> dict[str, Any]:
    """Options as earlier versions wrote them, under today's names and with those that came later."""
    if "classes" in options:
        options["num_classes"] = options.pop("classes")
    added = {"pair_attention": False, "hidden_value": False, "lam_curve": None}
    return {"num_classes": None, "smooth": False, "init": "torch", **added, **options}
