"""The names of networks: timm's, and those of wide ResNets."""

import difflib
import re

from automix.core.errors import AutomixError
from automix.core.type_checks import show

WIDE_RESNET = re.compile(r"wrn_(\d+)_(\d+)")

_TRANSFORMERS = ("vision_transformer", "deit", "beit", "eva", "swin_transformer", "swin_transformer_v2")


def is_transformer(name: str) -> bool:
    """Tell whether a network is a vision transformer (ViT, DeiT, BEiT, Swin), which is fine-tuned in its own way.

    Args:
        name: Name of the network.

    Returns:
        True for transformers of timm's; False for all others, and for names that timm does not know.
    """
    import timm

    return timm.is_model(name) and timm.models.model_entrypoint(name).__module__.rpartition(".")[2] in _TRANSFORMERS


def check_model_name(name: str) -> bool:
    """Raise an error unless a network of this name can be built.

    Args:
        name: Name of a network.

    Returns:
        Whether it is one of timm's.
    """
    import timm

    if WIDE_RESNET.fullmatch(name):
        return False
    if not timm.is_model(name):
        close = difflib.get_close_matches(name, [*timm.list_models(), "wrn_28_8"], n=3)
        hint = f"; close names: {', '.join(close)}" if close else ""
        raise AutomixError(f"unknown model {show(name)}{hint}. Available: timm's models and wrn_<depth>_<width>")
    return True
