"""A trained Mix Block as one file, to begin another training with: safetensors, its options in the metadata."""

import json
from pathlib import Path

import torch

from automix.core.tensor_files import DamagedError, read_tensors, write_tensors
from automix.methods.automix.mix_block import MixBlock

KEY = "mix_block"  # in the metadata
OPTIONS = ("channels", "classes", "reduction", "upsampling", "normalize", "local", "smooth", "exact_mean",
           "lam_embedding", "attention")  # fmt: skip

BEFORE = {"classes": None, "smooth": False}  # what blocks had before there were these options


def save_mix_block(path: Path, block: MixBlock) -> None:
    """Write weights and options; a file that is there stays until the new one is whole."""
    options = {name: getattr(block, name) for name in OPTIONS}
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in block.state_dict().items()}
    write_tensors(path, weights, {KEY: json.dumps(options)})


def load_mix_block(path: Path) -> MixBlock:
    """The block of a file that `save_mix_block` wrote, or that a run left (mix_block.safetensors in its folder)."""
    file = path / "mix_block.safetensors" if path.is_dir() else path
    try:
        weights, metadata = read_tensors(file)
    except (DamagedError, OSError) as error:
        raise ValueError(f"mix_block: cannot be read ({error})") from None
    try:
        options = {**BEFORE, **json.loads(metadata[KEY])}
        with torch.device("cpu"), torch.random.fork_rng(devices=[]):  # nobody else's numbers are to change
            block = MixBlock(**{name: options[name] for name in OPTIONS})
        block.load_state_dict(weights)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"mix_block {file}: no Mix Block in it ({reason}); accepted is a file of save_mix_block"
        ) from None
    return block
