"""AutoMix (Liu et al., ECCV 2022): its task, its Mix Block, and diagnostics of the masks it learns."""

from typing import Any

from torch import nn

from automix.methods.automix.block_file import load_mix_block, save_mix_block
from automix.methods.automix.mix_block import MixBlock
from automix.methods.automix.task import AutoMix

__all__ = ["AutoMix", "MixBlock", "create_task", "load_mix_block", "save_mix_block"]


def create_task(model: nn.Module, **options: Any) -> AutoMix:
    """Build the AutoMix task; see `AutoMix` for the options."""
    options.pop("ema", None)  # it has its momentum teacher anyway
    return AutoMix(model, **options)
