"""Settings for fine-tuning a detector.

The paper fine-tunes R50-C4 with Detectron2, on VOC for 24k iterations and on COCO by the 2x schedule. Settings that the
paper does not give are those of Detectron2's configurations of that network. The recipes that end in ``-moco`` have the
norms of MoCo's configurations (He et al., 2020), which the reference implementation takes over. The command line
makes its flags from the field names, and its help from the lines below them.
"""

from dataclasses import asdict, replace
from typing import Any, Literal, get_args

from automix.core.config import config_dataclass
from automix.core.errors import AutomixError
from automix.core.validation import check_alpha, check_choice, check_range, check_whole, unknown_name
from automix.studies.detection.mixing import DetectMix

DROP = 0.1  # factor on the learning rate at each drop
WARMUP_START = 0.001  # factor on the learning rate at the start of the warm-up


@config_dataclass
class DetectRecipe:
    """The settings of a fine-tuning; the defaults are what Detectron2's C4 and FPN configurations share."""

    steps: int = 90_000
    """Steps of the optimizer."""
    batch_size: int = 16
    """Images in a step."""
    lr: float = 0.02
    """The learning rate after the warm-up, for this batch size."""
    warmup_steps: int = 1000
    """Steps in which the learning rate rises linearly."""
    drops: tuple[float, ...] = (6 / 9, 8 / 9)
    """When the learning rate falls to a tenth, as shares of the steps."""
    momentum: float = 0.9
    """Momentum of SGD."""
    weight_decay: float = 1e-4
    """Weight decay."""
    short_sides: tuple[int, ...] = (640, 672, 704, 736, 768, 800)
    """The short side of a training image in pixels, one of these at random; test images get the last."""
    longest_side: int = 1333
    """The long side in pixels at most."""
    anchor_sizes: tuple[int, ...] = (32, 64, 128, 256, 512)
    """Sides of the anchors in pixels: all on C4's one map, one on each of FPN's five."""
    freeze_at: int = 2
    """Parts of the backbone that stay as they are: 0 none, 1 the stem, 2 the stem and stage 1, ..."""
    batch_norm: Literal["frozen", "trained"] = "frozen"
    """frozen: the backbone's batch norms stay the classifier's; trained: with statistics over all processes on GPUs."""
    head_norm: bool = False
    """Add a batch norm after stage 4, for kind c4."""
    proposals: int = 2000
    """Regions that the proposal network passes on in training; half as many in testing."""
    regions: int = 512
    """Regions of an image that the box head is trained on; half as many anchors train the proposal network."""
    mix: DetectMix = "none"
    """Mix each training image with the next one of its batch, boxes included: none, mixup or cutmix."""
    mix_alpha: float = 1.5
    """lam ~ Beta(alpha, alpha) of `mix`."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "longest_side"):
            check_whole(name, getattr(self, name), 1)
        for name in ("proposals", "regions"):
            check_whole(name, getattr(self, name), 2)
        check_whole("warmup_steps", self.warmup_steps, 0)
        check_whole("freeze_at", self.freeze_at, 0, 5)
        check_range("lr", self.lr, 0, bounds="()")
        check_range("momentum", self.momentum, 0, 1, bounds="[)")
        check_range("weight_decay", self.weight_decay, 0)
        check_choice("batch_norm", self.batch_norm, ("frozen", "trained"))
        check_choice("mix", self.mix, get_args(DetectMix))
        check_alpha(self.mix_alpha, "mix_alpha")
        for name in ("short_sides", "anchor_sizes"):
            sizes = getattr(self, name)
            if not sizes or min(sizes) < 1:
                raise AutomixError(f"{name} must be one or more sizes >= 1 in pixels, got {sizes}")
        for share in self.drops:
            check_range("drops", share, 0, 1, bounds="()")

    def lr_at(self, step: int) -> float:
        """Compute the learning rate of a step, by Detectron2's WarmupMultiStepLR.

        Args:
            step: Number of the step, from 0.

        Returns:
            The learning rate.
        """
        dropped = sum(step >= round(share * self.steps) for share in self.drops)
        warmup = min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0
        return self.lr * DROP**dropped * (WARMUP_START + (1 - WARMUP_START) * warmup)


MOCO: dict[str, Any] = {"freeze_at": 0, "batch_norm": "trained", "head_norm": True}
"""Where MoCo's R50-C4 differs from Detectron2's own: everything is trained, and a batch norm follows stage 4."""

DETECT_RECIPES = {
    # VOC trainval07+12, tested on test2007: MoCo's schedule of 24k iterations (Detectron2's own has 18k)
    "voc": DetectRecipe(
        steps=24_000,
        warmup_steps=100,
        drops=(18 / 24, 22 / 24),
        short_sides=(480, 512, 544, 576, 608, 640, 672, 704, 736, 768, 800),
    ),
    # COCO train2017, tested on val2017: the 2x schedule
    "coco": DetectRecipe(steps=180_000, drops=(12 / 18, 16 / 18)),
    # the scenes of `shapes`, or a few steps on anything, on a CPU: small images, few regions
    "quick": DetectRecipe(
        steps=600,
        batch_size=4,
        lr=0.01,
        warmup_steps=50,
        drops=(0.8,),
        short_sides=(96,),
        longest_side=160,
        anchor_sizes=(8, 16, 24, 32, 48),
        proposals=200,
        regions=32,
    ),
}
DETECT_RECIPES |= {f"{name}-moco": replace(DETECT_RECIPES[name], **MOCO) for name in ("voc", "coco")}
"""The recipes by name."""


def find_detect_recipe(name: str) -> DetectRecipe:
    """Look up a recipe.

    Args:
        name: ``"voc"``, ``"coco"``, ``"voc-moco"``, ``"coco-moco"`` or ``"quick"``.

    Returns:
        The recipe.

    Raises:
        AutomixError: If there is no recipe of that name.
    """
    if name not in DETECT_RECIPES:
        raise unknown_name("recipe", name, DETECT_RECIPES)
    return DETECT_RECIPES[name]


def recipe_values(recipe: DetectRecipe) -> dict[str, Any]:
    """List the fields as YAML and JSON have them, with lists for tuples.

    Args:
        recipe: The recipe.

    Returns:
        The values by name.
    """
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(recipe).items()}


def change_recipe(recipe: DetectRecipe, values: dict[str, Any]) -> DetectRecipe:
    """Change some fields of a recipe.

    Args:
        recipe: The recipe.
        values: Values by name, as from `recipe_values`; lists become tuples.

    Returns:
        The changed recipe.
    """
    changed: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in values.items()}
    return replace(recipe, **changed)
