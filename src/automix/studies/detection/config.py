"""The configuration of a fine-tuning, and its flat YAML file: the run's fields first, then the recipe's."""

from dataclasses import field, fields
from pathlib import Path
from typing import Any, Literal

import yaml

from automix.core.config import config_dataclass
from automix.core.errors import AutomixError
from automix.core.files import write_text
from automix.core.validation import check_choice, check_range, check_whole, unknown_name
from automix.runs.folder import RunFolder
from automix.studies.detection.network import Kind
from automix.studies.detection.recipe import DetectRecipe, change_recipe, find_detect_recipe, recipe_values

MAY_CHANGE = ("out", "data_root", "device", "workers", "checkpoint_minutes")  # between a run and its continuation


@config_dataclass
class DetectConfig:
    """One fine-tuning of a detector."""

    data: str
    """shapes, voc, coco, or a folder in the layout of the latter two."""
    backbone: str
    """A run folder of automix, a classifier file, or a timm name for that network's pretrained weights."""
    kind: Kind = "c4"
    """c4: proposals from stage 3, stage 4 as box head; fpn: a feature pyramid over all stages."""
    recipe: str = "quick"
    """The settings to start from: voc, coco, voc-moco, coco-moco or quick; each of them is a flag below."""
    out: str | None = None
    """The run folder; runs/DATA-KIND-BACKBONE-SEED if not given."""
    seed: int = 0
    """Seed of the new weights, the order of the images and every draw."""
    weights: str | None = None
    """A file or folder of the timm network's weights, instead of the pretrained ones."""
    data_root: str | None = None
    """The folder that holds VOCdevkit and coco; AUTOMIX_DATA or ./data if not given."""
    accumulate: int = 1
    """Split each batch into this many micro-batches, to save memory."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto: an accelerator if there is one."""
    precision: Literal["float32", "bf16"] = "float32"
    """Of the forward pass in training; the evaluation is in float32."""
    workers: int = 2
    """Threads that read images."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; 0: after every step."""
    settings: DetectRecipe = field(default_factory=lambda: find_detect_recipe("quick"))
    """The recipe's fields."""

    def __post_init__(self) -> None:
        find_detect_recipe(self.recipe)
        check_choice("precision", self.precision, ("float32", "bf16"))
        check_whole("seed", self.seed, 0)
        check_whole("accumulate", self.accumulate, 1)
        check_whole("workers", self.workers, 1)
        check_range("checkpoint_minutes", self.checkpoint_minutes, 0)

    @property
    def folder(self) -> Path:
        """The run folder."""
        names = f"{Path(self.data).name}-{self.kind}-{Path(self.backbone).stem}-{self.seed}"
        return Path(self.out or f"runs/{names}")

    @property
    def root(self) -> Path | None:
        """`data_root` as a path."""
        return None if self.data_root is None else Path(self.data_root)

    def flat(self) -> dict[str, Any]:
        """List all fields by name, those of the recipe last."""
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "settings"}
        return {**own, **recipe_values(self.settings)}

    @classmethod
    def from_flat(cls, values: dict[str, Any]) -> "DetectConfig":
        """Build a configuration from the values of `flat`.

        Args:
            values: Values by name. Missing ones take the recipe's value or the default.

        Returns:
            The configuration.
        """
        own, recipe_fields = ([item.name for item in fields(kind)] for kind in (cls, DetectRecipe))
        if unknown := sorted(set(values) - set(own) - set(recipe_fields)):
            raise unknown_name("setting", unknown[0], [*own, *recipe_fields])
        for name in ("data", "backbone"):
            if values.get(name) is None:
                raise AutomixError(f"{name} is missing: automix detect train DATA --backbone RUN")
        recipe = find_detect_recipe(values.get("recipe", cls.recipe))
        settings = change_recipe(recipe, {name: value for name, value in values.items() if name in recipe_fields})
        return cls(**{name: value for name, value in values.items() if name in own}, settings=settings)

    @classmethod
    def load(cls, folder: Path) -> "DetectConfig":
        """Read the configuration of a run.

        Args:
            folder: The run folder.

        Returns:
            The configuration.
        """
        return cls.from_flat(RunFolder(folder).read_values())

    def save(self) -> None:
        """Write the configuration into the run folder."""
        write_text(RunFolder(self.folder).config, yaml.safe_dump(self.flat(), sort_keys=False))
