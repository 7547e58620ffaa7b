"""A recipe: how a network is trained, whatever the method, the network and the data.

The names of the fields are the flags of the command line, and the lines below them are its help.
"""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args

from automix.core.validation import check_choice, check_fields, check_range, check_smoothing, check_whole
from automix.data.augmentation import Augmentation, Crop
from automix.runs.recipes.alphas import Setting, paper_alpha

Optimizer = Literal["sgd", "adamw", "lamb"]
Loss = Literal["ce", "bce"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The settings of a training run; those of the paper are subclasses with other defaults.

    ``Cifar(epochs=200)`` is a recipe with one setting changed. Wrong values are refused when it is made.
    """

    setting: ClassVar[Setting | None] = None  # whose alphas the paper gives, for data that it does not name

    epochs: int = 200
    """Passes over the training set."""
    batch_size: int = 100
    """Images in a step, over all processes."""
    train_size: int | None = None
    """Side of the training images in pixels; as the images are if not given."""
    test_size: int | None = None
    """Side of the test images in pixels; as the images are if not given."""
    test_crop: float = 1.0
    """Share of a test image's side that its central crop keeps."""
    crop: Crop = "none"
    """Random crop of training images: none, pad (by an eighth of the side), or resized (of any size)."""
    flip: bool = True
    """Mirror half of the training images."""
    rand_augment: str | None = None
    """RandAugment as MAGNITUDE/DEVIATION, for instance 9/0.5."""
    auto_augment: str | None = None
    """AutoAugment by one of timm's policies: original, originalr, v0, v0r, 3a."""
    color_jitter: float = 0.0
    """Random change of brightness, contrast and saturation, by up to this share."""
    erasing: float = 0.0
    """Probability of erasing a random box of a training image."""
    repeats: int = 1
    """Repeated augmentation: how often an image is drawn at once, each time augmented anew."""
    optimizer: Optimizer = "sgd"
    """The optimizer: sgd, adamw or lamb."""
    lr: float = 0.1
    """The highest learning rate, for this batch size."""
    lr_floor: float = 0.0
    """The learning rate at which the cosine ends."""
    momentum: float = 0.9
    """Momentum of SGD; the other optimizers do not use it."""
    weight_decay: float = 1e-4
    """Weight decay."""
    warmup_epochs: int = 0
    """Epochs in which the learning rate rises linearly."""
    label_smoothing: float = 0.0
    """Share of each label that is spread over all classes."""
    dropout: float = 0.0
    """Dropout before the last layer."""
    drop_path: float = 0.0
    """Stochastic depth: how often the last block is skipped, earlier ones less."""
    clip_grad: float | None = None
    """Largest norm of the gradient; not clipped if not given."""
    ema: bool = False
    """Evaluate and keep a moving average of the weights."""
    loss: Loss = "ce"
    """Cross-entropy (ce), or binary cross-entropy over the classes (bce)."""
    mixed_precision: bool = True
    """Compute in 16 bits where the hardware is made for it."""
    pretrained: bool = False
    """Start from weights trained on ImageNet."""
    mixup_alpha: float | None = None
    """Mixup's alpha in the method mixup_or_cutmix; that method's default if not given."""
    cutmix_alpha: float | None = None
    """CutMix's alpha in the method mixup_or_cutmix; that method's default if not given."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            check_whole(name, getattr(self, name), 1)
        check_whole("warmup_epochs", self.warmup_epochs, 0)
        check_fields(self)
        _ = self.augmentation  # which checks what concerns pixels
        check_range("warmup_epochs", self.warmup_epochs, 0, self.epochs - 1)
        for name in ("lr", "clip_grad", "mixup_alpha", "cutmix_alpha"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"{name}={value}: accepted is a number > 0")
        for name in ("momentum", "dropout", "drop_path"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: accepted is a number in [0, 1)")
        check_smoothing(self.label_smoothing)
        check_range("lr_floor", self.lr_floor, 0, self.lr)
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay={self.weight_decay}: accepted is a number >= 0")
        check_choice("optimizer", self.optimizer, get_args(Optimizer))
        check_choice("loss", self.loss, get_args(Loss))

    @property
    def augmentation(self) -> Augmentation:
        """The part that concerns pixels."""
        return Augmentation(**{item.name: getattr(self, item.name) for item in fields(Augmentation)})

    def alpha(self, method: str, model: str, data: str | None = None) -> float | None:
        """The paper's alpha for `method` on network `model`; None where it says nothing: the method's default holds.

        It goes by the dataset where the paper names that, and by this recipe for ImageNet and all other data.
        """
        return paper_alpha(self.setting, method, model, data)

    def options_for(self, method: str, model: str, data: str | None = None) -> dict[str, float]:
        """The options this recipe gives `method`, by name: the paper's alphas, where it says something.

        The paper's recipes train AutoMix in the paper's form, so that its numbers are what one may expect.
        """
        options: dict[str, Any]
        if method == "mixup_or_cutmix":
            options = {"mixup_alpha": self.mixup_alpha, "cutmix_alpha": self.cutmix_alpha}
        else:
            options = {"alpha": self.alpha(method, model, data)}
        if method == "automix" and self.setting is not None:
            options["preset"] = "paper"
        return {name: value for name, value in options.items() if value is not None}
