"""The recipe for photographs: fine-tune a pretrained network."""

from automix.core.config import config_dataclass
from automix.runs.recipes.recipe import Count, Crop, Epochs, NonNegative, Positive, Preset, Recipe, Stages


@config_dataclass
class FineTune(Recipe):
    """Fine-tune a pretrained network on a folder of photographs.

    ``automix train pets --recipe finetune --model tf_efficientnet_lite0 --method automix``

    Expected: see docs/results/finetune.md.
    Source: ours, chosen on held-out training images of birds and pets. If they are not given, the number of images
    decides `batch_size` and `epochs`, and the weights' own card the size of the images.
    """

    epochs: Count = 20
    batch_size: Count = 16
    test_crop: float = 0.875
    crop: Crop = "resized"
    crop_scale: float = 0.3
    lr: Positive = 0.02
    frozen_stages: Stages = 2
    weight_decay: NonNegative = 1e-4
    warmup_epochs: Epochs = 1
    ema: bool = True
    pretrained: bool = True
    preset: Preset = "finetune"
