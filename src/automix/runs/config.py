"""What a training run is made of, as one typed object, and the YAML file it lives in.

The file is flat: the run's own fields, then every field of the recipe. A run folder's config.yaml thus shows all that
was used, and ``automix train --config runs/x/config.yaml`` repeats it.
"""

import importlib.util
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

import yaml

from automix.core.errors import AutomixError, one_line
from automix.core.files import write_text
from automix.core.validation import check_alpha, check_at_least, check_fields, check_range, unknown_name
from automix.data import DATASETS, BadData, BatchPlan, check_data
from automix.methods import check_method
from automix.runs.recipes import Recipe, find_recipe

Options = dict[str, bool | int | float | str | list[int] | list[float] | list[str] | None]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One training run."""

    data: str
    """A dataset's name (see `automix datasets`) or a folder of images."""
    method: str = "automix"
    """How images are mixed (see `automix methods`)."""
    model: str = "resnet18"
    """The network: any name of timm's, or wrn_28_8 (see `automix models`)."""
    recipe: str = "quick"
    """The settings to start from (see `automix recipes`); each of them is a flag below."""
    out: str | None = None
    """The run folder; runs/DATA-METHOD-MODEL-SEED if not given."""
    seed: int = 0
    """Decides the initial weights, the order of the images and every draw."""
    classes: int | None = None
    """Use the first so many classes only."""
    per_class: int | None = None
    """Use so many training images of each class only."""
    data_root: str | None = None
    """Where named datasets lie; AUTOMIX_DATA or ./data if not given."""
    alpha: float | None = None
    """lam ~ Beta(alpha, alpha); the recipe's choice for the method if not given."""
    layer: int | str | None = None
    """The stage, 1 to 4, whose map feeds the Mix Block, or a submodule's name; 3 if not given."""
    method_options: Options = field(default_factory=dict)
    """Further options of the method, as --method-options.NAME VALUE."""
    model_options: Options = field(default_factory=dict)
    """Further options of the network, as --model-options.NAME VALUE."""
    weights: str | None = None
    """A safetensors file to start from; a head for other classes is left out."""
    accumulate: int = 1
    """Pieces a process cuts its share of a batch into, to save memory."""
    precision: Literal["auto", "float32", "bf16", "fp16"] = "auto"
    """Of the forward pass; auto: the recipe's wish, where the hardware is made for it."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto: the first accelerator there is."""
    workers: int = 2
    """Processes that read images, for datasets that do not live in memory."""
    bad_data: BadData = "fail"
    """A file that is no sound image: fail when it is met, or find all of them first and skip them."""
    eval_every: int = 1
    """Epochs between evaluations; the last ten, of which the paper takes the median, are always evaluated."""
    checkpoint_minutes: float = 5.0
    """Save the state for --resume so often; 0: after every step."""
    wandb: bool = False
    """Log to Weights & Biases too."""
    settings: Recipe = field(default_factory=lambda: find_recipe("quick"))

    def __post_init__(self) -> None:
        """Everything that can be told without building a network or reading an image."""
        check_fields(self)
        check_method(self.method)
        find_recipe(self.recipe)
        check_range("seed", self.seed, 0, 2**63 - 1)  # what torch.manual_seed takes
        for name in ("classes", "per_class"):
            if (value := getattr(self, name)) is not None:
                check_at_least(name, value, 1)
        check_at_least("accumulate", self.accumulate, 1)
        check_at_least("workers", self.workers, 0)
        check_at_least("eval_every", self.eval_every, 1)
        check_at_least("checkpoint_minutes", self.checkpoint_minutes, 0)
        for name, value in {"alpha": self.alpha, **self.method_options}.items():
            if name.endswith("alpha") and isinstance(value, int | float):
                check_alpha(value)
        for name in ("checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay"):
            if name in self.model_options:  # timm would load such files, pickles among them
                raise ValueError(f"model_options.{name}: accepted for weights is --weights FILE, of safetensors")
        for name in ("num_classes", "image_size", "pretrained"):
            if name in self.model_options:
                raise ValueError(f"model_options.{name}: the number of classes, image_size and pretrained are decided "
                                 "by the data and the recipe")  # fmt: skip
        if self.weights is not None and not Path(self.weights).is_file():
            raise ValueError(f"weights={self.weights}: no such file; accepted is a safetensors file")
        if self.wandb and importlib.util.find_spec("wandb") is None:
            raise ValueError("wandb: Weights & Biases is not installed; accepted after pip install wandb")
        check_data(self.data, self.root)
        self._check_sizes()

    def _check_sizes(self) -> None:
        """What is known of the embedded datasets without drawing them; the others are listed before they are read."""
        known = DATASETS.get(self.data)
        if known is None or known.train_count is None:
            return
        each = known.train_count // known.num_classes  # on average
        for name, most in (("classes", known.num_classes), ("per_class", each)):
            if (getattr(self, name) or 1) > most:
                raise ValueError(f"{name}={getattr(self, name)}: accepted are 1 to {most}")
        count = known.train_count if self.classes is None else self.classes * 2 * each
        if self.per_class is not None:
            count = (self.classes or known.num_classes) * self.per_class
        BatchPlan(count, self.settings.batch_size, accumulate=self.accumulate)

    @property
    def root(self) -> Path | None:
        """Where named datasets lie, if that was given."""
        return None if self.data_root is None else Path(self.data_root)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.out or f"runs/{Path(self.data).name}-{self.method}-{self.model}-{self.seed}")

    def flat(self) -> dict[str, Any]:
        """All fields side by side, those of the recipe last."""
        own = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "settings"}
        return {**own, **asdict(self.settings)}

    @classmethod
    def from_flat(cls, values: dict[str, Any]) -> "TrainConfig":
        """The inverse of `flat`; fields that are missing take the recipe's or the default value."""
        recipe = find_recipe(values.get("recipe", cls.recipe))
        theirs = {f.name for f in fields(recipe)}
        if unknown := [name for name in values if name not in cls.flat_names()]:
            raise unknown_name("setting", unknown[0], cls.flat_names())
        if values.get("data") is None:
            raise ValueError("DATA is missing: accepted is a dataset's name (automix datasets) or a folder of images")
        settings = type(recipe)(**{name: value for name, value in values.items() if name in theirs})
        return cls(**{name: value for name, value in values.items() if name not in theirs}, settings=settings)

    @classmethod
    def flat_names(cls) -> list[str]:
        """The names of all settings, those of the recipe last."""
        return [f.name for f in (*fields(cls), *fields(Recipe)) if f.name != "settings"]

    def save(self, path: Path) -> None:
        text = yaml.safe_dump(self.flat(), sort_keys=False)
        write_text(path, f"# automix train --config {path}\n{text}")


def read_config(path: Path) -> dict[str, Any]:
    """The flat values in a config file."""
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AutomixError(f"{path}: no such file") from None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:  # PyYAML's ways
        reason = one_line(error)
        raise AutomixError(f"{path}: cannot be read as YAML ({reason})") from None
    if not (isinstance(values, dict) and _is_modest(values)):
        raise AutomixError(f"{path}: no settings in it; write lines of the form name: value")
    return values


def _is_modest(values: dict[str, Any], deepest: int = 10, most: int = 10_000) -> bool:
    """By anchors a short file can be endless, or larger than any memory once it is written out."""
    waiting: list[tuple[Any, int]] = [(values, 0)]
    for _ in range(most):
        if not waiting:
            return True
        tree, depth = waiting.pop()
        if depth > deepest:
            return False
        inside = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
        waiting.extend((value, depth + 1) for value in inside)
    return False


MAY_CHANGE = ("out", "workers", "device", "data_root", "checkpoint_minutes", "eval_every", "wandb")
"""Fields that may differ between a run and its continuation; none of them decides a batch or a weight."""


TRIALS_DIFFER_IN = {"seed", *MAY_CHANGE} - {"eval_every"}  # which decides how many epochs are in the median
"""Fields in which runs may differ and still be trials of one configuration."""
