"""Recipes for fine-grained and scenic classification: fine-tuning on small sets, from scratch on large ones."""

from typing import ClassVar

from automix.core.config import config_dataclass
from automix.runs.recipes.alphas import Setting
from automix.runs.recipes.imagenet import PyTorch100
from automix.runs.recipes.recipe import Count, NonNegative, Positive


@config_dataclass
class FineGrained(PyTorch100):
    """CUB-200 and FGVC-Aircraft: 200 epochs from the ImageNet weights of torchvision (in timm: ``.tv_in1k``).

    ``automix train cub200 --recipe fine-grained --model resnet18.tv_in1k --method automix``

    Expected: 79.87 % on CUB-200 (Table 5, tab:cls_fgvc_place).
    Source: the paper's "Fine-grained and Scene Classification", Small-scale datasets; what it does not say is
    as in the PyTorch setting for ImageNet, whose augmentations it uses.
    """

    setting: ClassVar[Setting | None] = "fine_grained"

    epochs: Count = 200
    batch_size: Count = 16
    lr: Positive = 1e-3
    weight_decay: NonNegative = 5e-4
    pretrained: bool = True


@config_dataclass
class INat(PyTorch100):
    """iNaturalist 2017 and 2018, 100 epochs from scratch: the PyTorch setting with alphas of its own.

    ``automix train inat2018 --recipe inat --model resnet50 --method automix``

    Expected: 64.73 % on iNat2018 (Table 5, tab:cls_fgvc_place).
    Source: the paper's "Fine-grained and Scene Classification", Large-scale datasets.
    """

    setting: ClassVar[Setting | None] = "inat"


@config_dataclass
class Places(PyTorch100):
    """Places205, 100 epochs from scratch: the PyTorch setting with alphas of its own.

    ``automix train places205 --recipe places --model resnet50 --method automix``

    Expected: 64.06 % on Places205 (Table 5, tab:cls_fgvc_place).
    Source: the paper's "Fine-grained and Scene Classification", Large-scale datasets.
    """

    setting: ClassVar[Setting | None] = "places"
