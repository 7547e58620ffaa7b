"""Backbones by name: every timm model, and wide ResNets, adapted to the image size.

timm's networks are made for images of 224 px and reduce them 32 times (plain transformers 16 times). The paper trains
its ResNets on images of 32 px and 64 px with a 3x3 convolution in place of the 7x7 convolution and the max-pool, which
reduces 8 times. Other families are adapted in the same way: for images of 64 px or less the reduction of ResNet,
EfficientNet (with MobileNetV2), ConvNeXt, ViT (with DeiT) and Swin networks is divided by four. All other families are
built as timm has them.
"""

from typing import Any

import torch
from torch import nn

from automix.core.errors import AutomixError
from automix.core.type_checks import show
from automix.core.validation import check_whole
from automix.networks.names import WIDE_RESNET, check_model_name
from automix.networks.weights import find_pretrained
from automix.networks.wide_resnet import WideResNet

SMALL_IMAGE = 64  # px; up to this size a network gets the form for small images

_PATCH_FAMILIES = ("vision_transformer", "deit", "swin_transformer", "convnext")


def create_model(name: str, *, num_classes: int, image_size: int | tuple[int, int] = 224, **options: Any) -> nn.Module:
    """Build a backbone by name, adapted to the image size.

    Args:
        name: Any timm model name, or ``wrn_<depth>_<width>`` for a wide ResNet (the paper's is ``wrn_28_8``).
        num_classes: Number of classes, >= 1.
        image_size: Side of the images in pixels, or height and width.
        **options: ``pretrained=True`` starts from ImageNet weights (see `find_pretrained`). The others are options of
            the network's constructor: ``drop_path_rate=0.1``, ``channels=(16, 32, 64, 128)`` for a narrow ResNet (for
            small images with as narrow a stem).

    Returns:
        The network.
    """
    size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    if len(size) != 2 or not all(isinstance(side, int) and side > 0 for side in size):
        raise AutomixError(f"image_size must be an integer >= 1, or (height, width), got {show(image_size)}")
    check_whole("num_classes", num_classes, 1)
    pretrained = options.pop("pretrained", False)
    if wide := WIDE_RESNET.fullmatch(name):
        model: nn.Module = WideResNet(int(wide[1]), int(wide[2]), num_classes, **options)
    else:
        model = _create_timm_model(name, num_classes, size, options)
    if pretrained:
        find_pretrained(name).load_into(model)
    return model


def has_small_form(name: str, image_size: int) -> bool:
    """Tell whether `create_model` adapts a network to small images.

    Args:
        name: As for `create_model`.
        image_size: Side of the images in pixels.

    Returns:
        Whether its form differs from timm's.
    """
    if image_size > SMALL_IMAGE or WIDE_RESNET.fullmatch(name):
        return False
    return _family(name) in (*_PATCH_FAMILIES, "resnet", "efficientnet")


def _family(name: str) -> str:
    import timm

    return timm.models.model_entrypoint(name).__module__.rpartition(".")[2]


def _create_timm_model(name: str, num_classes: int, size: tuple[int, ...], options: dict[str, Any]) -> nn.Module:
    import timm  # here and not above: timm and torchvision take two seconds to import

    model = timm.create_model(name, num_classes=num_classes, **timm_options(name, size, options))
    family, small = _family(name), max(size) <= SMALL_IMAGE
    if small and family == "resnet":
        _small_resnet_stem(model)
    elif small and family == "efficientnet":
        _small_efficientnet_strides(model)
    return model


def timm_options(name: str, size: tuple[int, ...], options: dict[str, Any]) -> dict[str, Any]:
    """List the options that a network of timm's is built with for a size of images.

    Args:
        name: Name of the network.
        size: Height and width of the images in pixels.
        options: Options that were given.

    Returns:
        The options of ``timm.create_model``, without the number of classes.
    """
    import timm

    check_model_name(name)
    family, small = _family(name), max(size) <= SMALL_IMAGE
    pretrained_cfg = timm.get_pretrained_cfg(name)
    if pretrained_cfg is not None and pretrained_cfg.fixed_input_size:
        options = {"img_size": size, **options}
    if small and family in _PATCH_FAMILIES:
        options = {**_small_patches(name, family, size), **options}
    if small and family == "resnet" and "channels" in options:
        # timm's stem has 64 channels whatever follows, unless it is a deep one; _small_resnet_stem makes it plain again
        options = {"stem_type": "deep", "stem_width": max(1, options["channels"][0] // 2), **options}
    return options


def _small_patches(name: str, family: str, size: tuple[int, ...]) -> dict[str, Any]:
    """Constructor options for patches a quarter as long; Swin's window then covers its last map, as at 224 px."""
    import timm

    if family == "convnext":
        return {"patch_size": 1}
    with torch.device("meta"):  # no memory, no initialization: only to read the patch size off
        patch = max(1, timm.create_model(name).patch_embed.patch_size[0] // 4)
    if family == "swin_transformer":
        return {"patch_size": patch, "window_size": max(1, min(size) // (8 * patch))}
    return {"patch_size": patch}


def _small_resnet_stem(model: Any) -> None:
    """Replace the stem's convolutions and max-pool by a 3x3 convolution of stride 1 (the paper's appendix)."""
    old = [module for module in model.conv1.modules() if isinstance(module, nn.Conv2d)]
    model.conv1 = nn.Conv2d(old[0].in_channels, old[-1].out_channels, 3, padding=1, bias=False)
    nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    model.maxpool = nn.Identity()
    _divide_reductions(model)


def _small_efficientnet_strides(model: Any) -> None:
    """Set stride 1 in the stem and in the first block that would halve the map."""
    model.conv_stem.stride = (1, 1)
    for block in (block for stage in model.blocks for block in stage):
        strided = [m for m in block.modules() if isinstance(m, nn.Conv2d) and m.stride == (2, 2)]
        if strided:
            for convolution in strided:
                convolution.stride = (1, 1)
            break
    _divide_reductions(model)


def _divide_reductions(model: Any) -> None:
    for info in model.feature_info:
        info["reduction"] = max(1, info["reduction"] // 4)
