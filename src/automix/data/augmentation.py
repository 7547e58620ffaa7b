"""Sizes, crops and colors of training and test images, and timm's transforms for images that are streamed."""

import re
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from automix.core.config import config_dataclass
from automix.core.errors import AutomixError
from automix.core.validation import check_choice, check_range, check_whole

if TYPE_CHECKING:
    from automix.core.normalization import Normalization

Crop = Literal["none", "pad", "resized"]

POLICIES = ("original", "originalr", "v0", "v0r", "3a")  # timm's names of AutoAugment policies


@config_dataclass
class Augmentation:
    """How images are prepared for training and for tests."""

    train_size: int | None = None
    """Side of the training images in pixels. If not given, images keep their size, or get 224 px if that is more than
    64."""
    test_size: int | None = None
    """Side of the test images in pixels; that of the training images if not given."""
    test_crop: float = 1.0
    """Share of the short side that the center crop of a test image keeps, in (0, 1]."""
    crop: Crop = "pad"
    """Random crop of training images: "pad" (out of the image padded by an eighth of its side: 4 px for 32), "resized"
    (RandomResizedCrop) or "none"."""
    crop_scale: float = 0.08
    """Smallest share of the image that the random crop "resized" keeps, in (0, 1]."""
    flip: bool = True
    """Mirror each training image with probability 0.5."""
    rand_augment: str | None = None
    """RandAugment as MAGNITUDE/DEVIATION, for instance "9/0.5"; switches `color_jitter` off, as in timm."""
    auto_augment: str | None = None
    """AutoAugment by the name of timm's policy, for instance "original"; switches `color_jitter` off, as in timm."""
    color_jitter: float = 0.0
    """Random change of brightness, contrast and saturation, by up to this share."""
    erasing: float = 0.0
    """Probability of RandomErasing, in [0, 1]."""
    repeats: int = 1
    """Repeated augmentation: how often an image is drawn in a row."""

    def __post_init__(self) -> None:
        for name in ("train_size", "test_size", "repeats"):
            check_whole(name, getattr(self, name), 1)
        check_range("test_crop", self.test_crop, 0, 1, bounds="(]")
        check_range("crop_scale", self.crop_scale, 0, 1, bounds="(]")
        check_range("color_jitter", self.color_jitter, 0)
        check_range("erasing", self.erasing, 0, 1)
        if self.auto_augment is not None:
            check_choice("auto_augment", self.auto_augment, POLICIES)
            if self.rand_augment is not None:
                raise AutomixError("auto_augment and rand_augment exclude each other, got both")
        self.policy()

    def policy(self) -> str | None:
        """Get timm's name of the RandAugment or AutoAugment policy; None if there is none."""
        if self.rand_augment is None:
            return self.auto_augment
        match = re.fullmatch(r"(\d|10)/(\d+(?:\.\d+)?)", self.rand_augment)
        if match is None:
            raise AutomixError(
                "rand_augment must be MAGNITUDE/DEVIATION, an integer in [0, 10] and a number, such as 9/0.5; "
                f"got {self.rand_augment!r}"
            )
        return f"rand-m{match[1]}-mstd{match[2]}-inc1"

    def per_image(self) -> list[str]:
        """Name the options in use that work on one image at a time: all but crop and flip."""
        names = ("rand_augment", "auto_augment", "color_jitter", "erasing")
        return [name for name in names if getattr(self, name)]


def padding_for(size: int) -> int:
    """Choose the padding of the crop "pad".

    Args:
        size: Side of the image in pixels.

    Returns:
        Pixels on every side: 4 for CIFAR's 32.
    """
    return size // 8


def train_transform(augmentation: Augmentation, size: int, normalization: "Normalization") -> Any:
    """Make timm's training transform; the crops "pad" and "none" are torchvision's.

    Args:
        augmentation: Crops and colors.
        size: Side of the result in pixels.
        normalization: Mean and standard deviation of the pixels.

    Returns:
        A function from a PIL image to one of ``size x size`` pixels or, with RandomErasing, which fills in normalized
        noise, to a normalized tensor ``(3, size, size)``.
    """
    from timm.data import create_transform
    from torchvision import transforms

    from automix.data.image_set import trim_long_side

    flip = 0.5 if augmentation.flip else 0.0
    first, colors, last = create_transform(
        size,
        is_training=True,
        scale=(augmentation.crop_scale, 1.0),
        hflip=flip,
        color_jitter=augmentation.color_jitter or None,
        auto_augment=augmentation.policy(),
        interpolation="bicubic",
        mean=normalization.mean,
        std=normalization.std,
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
    return transforms.Compose([first, colors, last] if augmentation.erasing else [first, colors])


def _keep_one_bit(colors: Any) -> None:
    """Keep at least one bit in Posterize: timm's level 10 keeps none, which Pillow 13 refuses."""
    for policy in getattr(colors, "transforms", ()):
        groups = (getattr(policy, "ops", ()), *getattr(policy, "policy", ()))
        for operation in (operation for group in groups for operation in group):
            if operation.name.startswith("Posterize"):
                operation.level_fn = partial(_at_least_one_bit, operation.level_fn)


def _at_least_one_bit(level_fn: Any, level: float, options: Any) -> tuple[int]:
    return (max(1, level_fn(level, options)[0]),)


def test_transform(augmentation: Augmentation, size: int) -> Any:
    """Make timm's test transform: resize the short side to ``size / test_crop``, then crop the center.

    Args:
        augmentation: Its `test_crop` is used.
        size: Side of the result in pixels.

    Returns:
        A function from a PIL image to one of ``size x size`` pixels.
    """
    from timm.data import create_transform
    from torchvision import transforms

    from automix.data.image_set import trim_long_side

    steps = create_transform(size, crop_pct=augmentation.test_crop, interpolation="bicubic").transforms
    crops = [step for step in steps if isinstance(step, transforms.Resize | transforms.CenterCrop)]
    return transforms.Compose([trim_long_side, *crops])
