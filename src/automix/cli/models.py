"""`automix models [PATTERN]`: the networks of the paper, or timm's names that have a part or fit a pattern.

Without a pattern also the Mix Blocks that come with the package.
"""

import sys

from automix.cli._output import print_table
from automix.core.errors import AutomixError

PAPER = {
    "resnet18": "ResNet-18",
    "resnet34": "ResNet-34",
    "resnet50": "ResNet-50",
    "resnet101": "ResNet-101",
    "resnext50_32x4d": "ResNeXt-50 (32x4d)",
    "resnext101_32x4d": "ResNeXt-101 (32x4d)",
    "wrn_28_8": "Wide ResNet 28-8, for small images",
    "mobilenetv2_100": "MobileNetV2",
    "efficientnet_b0": "EfficientNet-B0",
    "deit_small_patch16_224": "DeiT-S",
    "swin_tiny_patch4_window7_224": "Swin-T",
    "convnext_tiny": "ConvNeXt-T",
}


def models(pattern: str | None = None, /) -> None:
    """List the paper's networks and the Mix Blocks that come with the package, or those of timm's whose name fits.

    For example:
      automix models vit          all names with vit in them
      automix models 'resnet1*'   all names that begin with resnet1

    Args:
        pattern: Part of a name, or a whole one with * for anything.
    """
    import timm

    if pattern is None:
        print_table(("model", f"of the paper; {len(timm.list_models())} more with automix models '*'"), PAPER.items())
        sys.stdout.write("\n")
        _print_zoo()
        return
    names = timm.list_models(pattern if set(pattern) & set("*?[") else f"*{pattern}*")
    if not names:
        raise AutomixError(f"no model's name has {pattern!r} in it; automix models '*' lists all names")
    print_table(("model",), [(name,) for name in names])


def _print_zoo() -> None:
    from automix.methods.automix import list_zoo

    rows = [
        (f"zoo:{name}", f"layer {card.layer} of {card.backbone}", f"{card.data}, {card.steps} steps")
        for name, card in list_zoo().items()
    ]
    print_table(("Mix Block (--method-options.mix_block)", "for", "trained on"), rows)
