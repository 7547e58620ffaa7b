"""The stages of a network: its layers 1 to 4, as timm, torchvision and transformers describe them."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from automix.networks.outputs import without_compile

_RESNET = ("layer1", "layer2", "layer3", "layer4")  # torchvision's ResNets, and most that are written by hand


def describe_stages(model: nn.Module) -> list[tuple[int, dict[str, Any]]]:
    """List the stages of a network.

    timm's networks have ``feature_info``. In a network with submodules layer1 to layer4 these are the stages. A network
    of transformers says in its ``config`` how many stages or blocks it has.

    Args:
        model: The network.

    Returns:
        Up to four stages: the position among timm's intermediates, and the description: `module` is the name of the
        submodule, `num_chs` its channels if they are known. Empty for any other network.
    """
    if not (maps := list(enumerate(getattr(model, "feature_info", None) or ()))):
        return list(enumerate({"module": name} for name in _named_stages(without_compile(model))))
    if len(maps) <= 4:
        return maps
    if len({info["reduction"] for _, info in maps}) == 1:  # a plain transformer: one map per block, all of one size
        return _quarters(maps)
    return maps[-4:]  # before these come the stem's


def trial_image(model: nn.Module) -> Tensor:
    """Make a blank image of a size that the network accepts.

    Args:
        model: The network.

    Returns:
        The image, ``(1, C, H, W)``; of 64 x 64 pixels if the network does not say its size.
    """
    convolution = next((module for module in model.modules() if isinstance(module, nn.Conv2d)), None)
    reference = next(model.parameters(), torch.empty(0))
    declared = (
        getattr(getattr(model, "patch_embed", None), "img_size", None),  # timm
        getattr(getattr(model, "config", None), "image_size", None),  # transformers
        getattr(model, "image_size", None),  # torchvision
    )
    size = next((size for size in map(_as_size, declared) if size is not None), (64, 64))
    return reference.new_zeros(1, convolution.in_channels if convolution else 3, *size)


def _named_stages(model: nn.Module) -> list[str]:
    children = dict(model.named_children())
    if all(name in children for name in _RESNET):
        return list(_RESNET)
    config = getattr(model, "config", None)
    depths = getattr(config, "depths", None)
    count = len(depths) if isinstance(depths, Sequence) else getattr(config, "num_hidden_layers", None)
    lists = (
        name for name, module in model.named_modules() if isinstance(module, nn.ModuleList) and len(module) == count
    )
    if (found := next(lists, None)) is None:
        return []
    names = [f"{found}.{number}" for number in range(len(model.get_submodule(found)))]  # type: ignore[arg-type]
    return names if len(names) <= 4 else _quarters(names)


def _quarters(blocks: list[Any]) -> list[Any]:
    """The last block of each quarter."""
    return [blocks[-(-len(blocks) * stage // 4) - 1] for stage in (1, 2, 3, 4)]


def _as_size(size: Any) -> tuple[int, int] | None:
    if isinstance(size, int) and not isinstance(size, bool):
        return size, size
    if isinstance(size, Sequence) and len(size) == 2 and all(isinstance(side, int) for side in size):
        return int(size[0]), int(size[1])
    return None
