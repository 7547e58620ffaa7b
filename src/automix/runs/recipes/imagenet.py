"""Recipes for ImageNet-1k: the columns of the paper's table of training settings (tab:app_train_settings)."""

from typing import ClassVar

from automix.core.config import config_dataclass
from automix.runs.recipes.alphas import Setting
from automix.runs.recipes.recipe import (
    Count,
    Crop,
    Epochs,
    Fraction,
    Loss,
    NonNegative,
    Optimizer,
    Positive,
    Preset,
    Recipe,
)


@config_dataclass
class PyTorch100(Recipe):
    """ImageNet-1k in PyTorch's style, 100 epochs of SGD: the usual benchmark of mixup methods.

    ``automix train imagenet --recipe pytorch100 --model resnet50 --method automix``

    Expected: 77.91 % on ImageNet-1k (Table 2, tab:cls_in_torch).
    Source: tab:app_train_settings, column PyTorch; SGD's momentum is from "ImageNet Datasets", Settings (a).
    """

    setting: ClassVar[Setting | None] = "pytorch"

    preset: Preset = "paper"
    epochs: Count = 100
    batch_size: Count = 256
    train_size: int | None = 224
    test_size: int | None = 224
    test_crop: float = 0.875
    crop: Crop = "resized"
    mixed_precision: bool = False


@config_dataclass
class PyTorch300(PyTorch100):
    """ImageNet-1k in PyTorch's style, 300 epochs of SGD.

    ``automix train imagenet --recipe pytorch300 --model resnet50 --method automix``

    Expected: 79.25 % on ImageNet-1k (Table 2, tab:cls_in_torch).
    Source: tab:app_train_settings, column PyTorch.
    """

    epochs: Count = 300


@config_dataclass
class DeiT(Recipe):
    """ImageNet-1k as DeiT is trained, 300 epochs of AdamW, for transformers and ConvNeXt.

    ``automix train imagenet --recipe deit --model deit_small_patch16_224 --method automix``

    Expected: 80.78 % on ImageNet-1k (Table 4, tab:cls_in_vits).
    Source: tab:app_train_settings, column DeiT. The row "DeiT" of Table 4 is ``--method mixup_or_cutmix``.
    """

    setting: ClassVar[Setting | None] = "deit_rsb"

    preset: Preset = "paper"
    epochs: Count = 300
    batch_size: Count = 1024
    train_size: int | None = 224
    test_size: int | None = 224
    test_crop: float = 0.875
    crop: Crop = "resized"
    rand_augment: str | None = "9/0.5"
    erasing: float = 0.25
    repeats: int = 3
    optimizer: Optimizer = "adamw"
    lr: Positive = 1e-3
    weight_decay: NonNegative = 0.05
    warmup_epochs: Epochs = 5
    label_smoothing: Fraction = 0.1
    drop_path: Fraction = 0.1
    clip_grad: Positive | None = 1.0
    ema: bool = True
    mixed_precision: bool = False
    mixup_alpha: Positive | None = 0.8
    cutmix_alpha: Positive | None = 1.0


@config_dataclass
class RsbA2(Recipe):
    """ImageNet-1k by procedure A2 of "ResNet strikes back", 300 epochs of LAMB and binary cross-entropy.

    ``automix train imagenet --recipe rsb-a2 --model efficientnet_b0 --method automix``

    Expected: 77.58 % on ImageNet-1k (Table 3, tab:cls_in_rsb).
    Source: tab:app_train_settings, column RSB A2. The row "RSB" of Table 3 is ``--method mixup_or_cutmix``.
    """

    setting: ClassVar[Setting | None] = "deit_rsb"

    preset: Preset = "paper"
    epochs: Count = 300
    batch_size: Count = 2048
    train_size: int | None = 224
    test_size: int | None = 224
    test_crop: float = 0.95
    crop: Crop = "resized"
    rand_augment: str | None = "7/0.5"
    repeats: int = 3
    optimizer: Optimizer = "lamb"
    lr: Positive = 5e-3
    weight_decay: NonNegative = 0.02
    warmup_epochs: Epochs = 5
    drop_path: Fraction = 0.05
    loss: Loss = "bce"
    mixed_precision: bool = True
    mixup_alpha: Positive | None = 0.1
    cutmix_alpha: Positive | None = 1.0


@config_dataclass
class RsbA3(RsbA2):
    """ImageNet-1k by procedure A3 of "ResNet strikes back": as A2, but 100 epochs on images of 160 px.

    ``automix train imagenet --recipe rsb-a3 --model resnet50 --method automix``

    Expected: 78.44 % on ImageNet-1k (Table 3, tab:cls_in_rsb).
    Source: tab:app_train_settings, column RSB A3. The row "RSB" of Table 3 is ``--method mixup_or_cutmix``.
    """

    epochs: Count = 100
    train_size: int | None = 160
    rand_augment: str | None = "6/0.5"
    repeats: int = 1
    lr: Positive = 8e-3
    drop_path: Fraction = 0.0
