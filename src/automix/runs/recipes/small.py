"""Recipes for small images: the paper's for CIFAR and Tiny-ImageNet, and a short one for trying things."""

from typing import ClassVar

from automix.core.config import config_dataclass
from automix.runs.recipes.alphas import Setting
from automix.runs.recipes.recipe import Count, Crop, NonNegative, Positive, Preset, Recipe


@config_dataclass
class Quick(Recipe):
    """30 epochs on small images: minutes instead of days, for trying things.

    ``automix train shapes --recipe quick --model resnet18 --method automix``

    Expected: for the smaller network, images and budget, see `automix quickstart` and the README. For the command
    above nothing has been measured.
    Source: ours. The images stay as large as they are.
    """

    epochs: Count = 30
    crop: Crop = "pad"
    weight_decay: NonNegative = 5e-4


@config_dataclass
class Cifar(Recipe):
    """CIFAR-10 and CIFAR-100, 800 epochs, networks with the 3x3 stem.

    ``automix train cifar100 --recipe cifar --model resnet18 --method automix``

    Expected: 82.04 % on CIFAR-100 (Table 1, tab:cls_cifar_tiny).
    Source: the paper's "Small-scale Datasets", Settings. It does not say where the cosine ends: at 0 here.
    """

    setting: ClassVar[Setting | None] = "cifar"

    preset: Preset = "paper"
    epochs: Count = 800
    train_size: int | None = 32
    test_size: int | None = 32
    crop: Crop = "pad"


@config_dataclass
class TinyImageNet(Recipe):
    """Tiny-ImageNet, 400 epochs, networks with the 3x3 stem.

    ``automix train tiny-imagenet --recipe tiny --model resnet18 --method automix``

    Expected: 67.33 % on Tiny-ImageNet (Table 1, tab:cls_cifar_tiny).
    Source: the paper's "Small-scale Datasets", Settings: as CIFAR but for the crop, the learning rate and the epochs.
    """

    setting: ClassVar[Setting | None] = "tiny"

    preset: Preset = "paper"
    epochs: Count = 400
    train_size: int | None = 64
    test_size: int | None = 64
    crop: Crop = "resized"
    lr: Positive = 0.2
