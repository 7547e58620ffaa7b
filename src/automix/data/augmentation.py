"""The part of a recipe that concerns pixels, and the transforms that it means for images that are streamed."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

from automix.core.validation import check_at_least, check_choice, check_range, check_whole
from automix.data.image_set import trim_long_side

Crop = Literal["none", "pad", "resized"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet's pixels, for everything that is streamed
POLICIES = ("original", "originalr", "v0", "v0r", "3a")  # timm's names of AutoAugment


@dataclass(frozen=True)
class Augmentation:
    """Sizes, crops and colors.

    - `train_size`, `test_size`: pixels; None trains on images as they are (224 px where that is more than 64) and tests
      at the size of training. `test_crop`: the share of the short side that a test image's crop keeps.
    - `crop`: "pad" (random crop out of the padded image, an eighth of its size on every side: 4 px for 32),
      "resized" (RandomResizedCrop) or "none"; `flip`: mirror every other image.
    - `rand_augment`: magnitude/deviation as in the paper's tables, for instance "9/0.5"; `auto_augment`: timm's name
      of a policy, for instance "original". Either switches `color_jitter` off, as in timm.
    - `erasing`: probability of RandomErasing; `repeats`: draws of each image in a row (repeated augmentation).
    """

    train_size: int | None = None
    test_size: int | None = None
    test_crop: float = 1.0
    crop: Crop = "pad"
    flip: bool = True
    rand_augment: str | None = None
    auto_augment: str | None = None
    color_jitter: float = 0.0
    erasing: float = 0.0
    repeats: int = 1

    def __post_init__(self) -> None:
        for name in ("train_size", "test_size", "repeats"):
            check_whole(name, getattr(self, name), 1)
        if not 0 < self.test_crop <= 1:
            raise ValueError(f"test_crop={self.test_crop}: accepted is a number in (0, 1]")
        check_choice("crop", self.crop, get_args(Crop))
        check_at_least("color_jitter", self.color_jitter, 0)
        check_range("erasing", self.erasing, 0, 1)
        if self.auto_augment is not None:
            check_choice("auto_augment", self.auto_augment, POLICIES)
            if self.rand_augment is not None:
                raise ValueError(f"auto_augment={self.auto_augment} beside rand_augment: accepted is one of the two")
        self.policy()

    def policy(self) -> str | None:
        """What timm calls the RandAugment or AutoAugment that is asked for."""
        if self.rand_augment is None:
            return self.auto_augment
        found = re.fullmatch(r"(\d|10)/(\d+(?:\.\d+)?)", self.rand_augment)
        if found is None:
            raise ValueError(
                f"rand_augment={self.rand_augment}: accepted is MAGNITUDE/DEVIATION, a whole number from 0 to 10 and "
                "a number, for instance 9/0.5"
            )
        return f"rand-m{found[1]}-mstd{found[2]}-inc1"

    def per_image(self) -> list[str]:
        """The names of what is asked for that works on one image at a time, beyond crop and flip."""
        names = ("rand_augment", "auto_augment", "color_jitter", "erasing")
        return [name for name in names if getattr(self, name)]


def padding_for(size: int) -> int:
    """Pixels around an image of `size` that is cropped out of its padded self: 4 for CIFAR's 32."""
    return size // 8


def train_transform(augmentation: Augmentation, size: int) -> Any:
    """timm's training transform; crops other than RandomResizedCrop are torchvision's."""
    from timm.data import create_transform
    from torchvision import transforms

    flip = 0.5 if augmentation.flip else 0.0
    first, colors, last = create_transform(
        size,
        is_training=True,
        hflip=flip,
        color_jitter=augmentation.color_jitter or None,
        auto_augment=augmentation.policy(),
        interpolation="bicubic",
        mean=MEAN,
        std=STD,
        re_prob=augmentation.erasing,
        re_mode="pixel",
        separate=True,
    )
    if augmentation.crop != "resized":
        resize = transforms.Resize(size, transforms.InterpolationMode.BICUBIC)
        steps = [trim_long_side, resize, transforms.CenterCrop(size)]
        if augmentation.crop == "pad":
            steps.append(transforms.RandomCrop(size, padding=padding_for(size)))
        first = transforms.Compose([*steps, transforms.RandomHorizontalFlip(flip)])
    _keep_one_bit(colors)
    return transforms.Compose([first, colors, last])


def _keep_one_bit(colors: Any) -> None:
    """Keep a bit at least: level 10 of timm means none, which Pillow 13 refuses and earlier ones draw black."""
    for policy in getattr(colors, "transforms", ()):
        groups = (getattr(policy, "ops", ()), *getattr(policy, "policy", ()))
        for operation in (operation for group in groups for operation in group):
            if operation.name.startswith("Posterize"):
                operation.level_fn = partial(_at_least_one_bit, operation.level_fn)


def _at_least_one_bit(level_fn: Any, level: float, options: Any) -> tuple[int]:
    return (max(1, level_fn(level, options)[0]),)


def test_transform(augmentation: Augmentation, size: int) -> Any:
    """timm's test transform: short side to size / test_crop, center crop."""
    from timm.data import create_transform
    from torchvision import transforms

    timms = create_transform(size, crop_pct=augmentation.test_crop, interpolation="bicubic", mean=MEAN, std=STD)
    return transforms.Compose([trim_long_side, timms])
