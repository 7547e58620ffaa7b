"""A recipe: how a network is trained, whatever the method, the network and the data.

The names of the fields are the flags of the command line, and the lines below them are its help.
"""

from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from automix.core.config import config_dataclass
from automix.core.errors import AutomixError
from automix.core.validation import check_range
from automix.data.augmentation import Augmentation, Crop
from automix.data.choices import Balance
from automix.methods import presets_of
from automix.runs.recipes.alphas import Setting, paper_alpha
from automix.runs.recipes.reference import reference_options

Optimizer = Literal["sgd", "adamw", "lamb"]
Loss = Literal["ce", "bce", "decoupled"]
Preset = Literal["tuned", "fast", "finetune", "paper", "reference", "samix"]

# A subclass that changes a default repeats the type, and with it the accepted range.
Count = Annotated[int, Field(ge=1)]
Epochs = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]
Share = Annotated[float, Field(gt=0, le=1)]
Stages = Annotated[int, Field(ge=0, le=4)]


@config_dataclass
class Recipe:
    """The settings of a training run, whatever is trained; the paper's recipes are subclasses with other defaults.

    ``Cifar(epochs=200)`` is a recipe with one setting changed. Wrong values raise an `AutomixError` of one line.
    """

    setting: ClassVar[Setting | None] = None  # the paper's alphas for data that it does not name

    epochs: Count = 200
    """Passes over the training set."""
    batch_size: Count = 100
    """Images in a step, over all processes."""
    train_size: int | None = None
    """Side of the training images in pixels; as the images are if not given."""
    test_size: int | None = None
    """Side of the test images in pixels; as the images are if not given."""
    test_crop: float = 1.0
    """Share of a test image's side that its central crop keeps."""
    crop: Crop = "none"
    """Random crop of training images: none, pad (by an eighth of the side), or resized (of any size)."""
    crop_scale: float = 0.08
    """Smallest share of the image that the random crop `resized` keeps."""
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
    lr: Positive = 0.1
    """The highest learning rate, for this batch size."""
    lr_floor: NonNegative = 0.0
    """The learning rate at which the cosine ends."""
    momentum: Fraction = 0.9
    """Momentum of SGD; the other optimizers do not use it."""
    weight_decay: NonNegative = 1e-4
    """Weight decay."""
    warmup_epochs: Epochs = 0
    """Epochs in which the learning rate rises linearly."""
    head_lr: Positive = 1.0
    """Learning rate of the last layer, as a multiple of the body's."""
    layer_decay: Share = 1.0
    """Learning rate of a layer, as a share of that of the layer above it."""
    frozen_stages: Stages = 0
    """Stages of the network, 1 to 4, that keep their first weights; for pretrained networks, 0 trains all."""
    freeze: Epochs = 0
    """Epochs at the start in which only the last layer of the network is trained."""
    label_smoothing: Fraction = 0.0
    """Share of each label that is spread over all classes."""
    dropout: Fraction = 0.0
    """Dropout before the last layer."""
    drop_path: Fraction = 0.0
    """Stochastic depth: how often the last block is skipped, earlier ones less."""
    clip_grad: Positive | None = None
    """Largest norm of the gradient; not clipped if not given."""
    ema: bool = False
    """Evaluate and keep a moving average of the weights, for methods that have no teacher of their own."""
    loss: Loss = "ce"
    """Cross-entropy (ce), binary cross-entropy (bce), or DecoupledMix's loss (decoupled)."""
    balance: Balance = "none"
    """Rare classes: draw all classes equally often (sampling), weight the loss (loss), or neither (none)."""
    mixed_precision: bool = True
    """Compute in 16 bits where the hardware is made for it."""
    pretrained: bool = False
    """Start from weights trained on ImageNet, of the local cache, a package or timm's hub."""
    mixup_alpha: Positive | None = None
    """Mixup's alpha in the method mixup_or_cutmix; that method's default if not given."""
    cutmix_alpha: Positive | None = None
    """CutMix's alpha in the method mixup_or_cutmix; that method's default if not given."""
    preset: Preset = "tuned"
    """AutoMix's preset: tuned, fast, finetune, paper (the text), reference (the authors' code), or samix."""

    def __post_init__(self) -> None:
        _ = self.augmentation  # checks the settings of images
        check_range("warmup_epochs", self.warmup_epochs, 0, self.epochs - 1)
        check_range("lr_floor", self.lr_floor, 0, self.lr)
        check_range("freeze", self.freeze, 0, self.epochs)
        if self.balance == "loss" and self.loss == "bce":
            raise AutomixError("balance must be none or sampling if loss is bce, got 'loss'")

    @property
    def augmentation(self) -> Augmentation:
        """The settings of images."""
        return Augmentation(**{item.name: getattr(self, item.name) for item in fields(Augmentation)})

    def alpha(self, method: str, model: str, data: str | None = None) -> float | None:
        """Look up the paper's alpha.

        Args:
            method: Name of the method.
            model: Name of the network.
            data: Name of the dataset. Where the paper does not name it, this recipe decides.

        Returns:
            The alpha; None where the paper says nothing, and the method's default holds.
        """
        return paper_alpha(self.setting, method, model, data)

    def options_for(self, method: str, model: str, data: str | None = None) -> dict[str, Any]:
        """List the options that this recipe gives a method: the paper's alphas, the preset, and the authors' values.

        Args:
            method: Name of the method.
            model: Name of the network.
            data: Name of the dataset.

        Returns:
            Options by name; without those for which the method's default holds.
        """
        options: dict[str, Any]
        if method == "mixup_or_cutmix":
            options = {"mixup_alpha": self.mixup_alpha, "cutmix_alpha": self.cutmix_alpha}
        else:
            options = {"alpha": self.alpha(method, model, data)}
        if presets_of(method):
            options["preset"] = self.preset
            if self.preset == "reference":
                options |= reference_options(self.setting, model, data)
        return {name: value for name, value in options.items() if value is not None}
