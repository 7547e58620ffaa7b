"""The settings of a training run as one typed object, and the YAML file it is written to.

The file is flat: the run's own fields, then every field of the recipe. A run folder's config.yaml thus shows all that
was used, and ``automix train --config runs/x/config.yaml`` repeats it.

A configuration checks its values, never the environment: data, weights, devices and packages are checked when a
training starts (`automix.training.prepare`), so that the folder of a run can be read on any machine.
"""

from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import Field, Strict

from automix.core.config import config_dataclass
from automix.core.errors import AutomixError, one_line
from automix.core.files import write_text
from automix.core.validation import check_alpha, check_whole, unknown_name
from automix.data.choices import BadData, Caching
from automix.methods import check_method, has_own_teacher, methods, presets_of, settings_of
from automix.runs.recipes import Recipe, find_recipe

if TYPE_CHECKING:
    from automix.core.normalization import Normalization

Options = dict[str, bool | int | float | str | list[int] | list[float] | list[str] | None]

Channels = Annotated[tuple[float, float, float], Strict(False)]
"""One number each for red, green and blue; YAML has a list."""

MAY_CHANGE = (
    *("out", "data", "data_root", "workers", "device", "checkpoint_minutes"),
    *("eval_every", "eval_last", "wandb", "mlflow"),
)
"""Settings that may differ between a run and its continuation: none of them decides a batch or a weight.

The data may lie elsewhere, as long as it has the same classes and as many images.
"""

# eval_every and eval_last decide how many epochs the median has
TRIALS_DIFFER_IN = {"seed", *MAY_CHANGE} - {"data", "eval_every", "eval_last"}
"""Settings in which runs may differ and still be trials of one configuration."""

RESOLVED = "method_settings"
"""The key of config.yaml under which a method with presets has all its settings."""

_DECIDED_ELSEWHERE = ("num_classes", "image_size", "pretrained")
_LOAD_FILES = ("checkpoint_path", "pretrained_cfg", "pretrained_cfg_overlay")  # timm would load any of them, as pickles


@config_dataclass
class TrainConfig:
    """The settings of one training run. Wrong values raise an `AutomixError` of one line."""

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
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Decides the initial weights, the order of the images and every draw."""
    classes: Annotated[int, Field(ge=1)] | None = None
    """Use the first so many classes only."""
    per_class: Annotated[int, Field(ge=1)] | None = None
    """Use so many training images of each class only."""
    validation: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Hold this share of the training images out, in place of the test images, to choose settings by."""
    label_noise: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the training labels that are replaced by another class at random, for experiments."""
    data_root: str | None = None
    """The folder of named datasets; AUTOMIX_DATA or ./data if not given."""
    alpha: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """lam ~ Beta(alpha, alpha); the recipe's choice for the method if not given."""
    layer: int | str | None = None
    """The stage, 1 to 4, whose map feeds the Mix Block, or a submodule's name; 3 if not given."""
    method_options: Options = field(default_factory=dict)
    """Further options of the method, as --method-options.NAME VALUE."""
    model_options: Options = field(default_factory=dict)
    """Further options of the network, as --model-options.NAME VALUE."""
    weights: str | None = None
    """A file or folder of weights to start from: safetensors, .pth, a timm or Hugging Face folder, a run; a head for
    other classes is left out."""
    mean: Channels | None = None
    """Mean of the pixels in [0, 1] by channel; what the pretrained weights expect, or the data's, if not given."""
    std: Channels | None = None
    """Standard deviation of the pixels by channel; to be given with mean."""
    accumulate: Annotated[int, Field(ge=1)] = 1
    """Parts that a process splits its share of a batch into, to save memory."""
    precision: Literal["auto", "float32", "bf16", "fp16"] = "auto"
    """Of the forward pass; auto: 16 bits if the recipe has mixed_precision and the hardware is made for it."""
    compile: bool = False
    """Compile the networks with torch.compile; faster steps on GPUs after a minute or more."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto: the first accelerator there is."""
    workers: Annotated[int, Field(ge=0)] = 2
    """Processes that read images, for datasets that are not held in memory."""
    decode_cache: Caching = "auto"
    """Keep decoded images of a folder in memory, up to 2 GiB: auto (large photographs may be reduced to twice the
    training size), exact (as they are) or off."""
    bad_data: BadData = "fail"
    """Files that are no valid images: fail at the first one, or find all of them first and skip them."""
    eval_every: Annotated[int, Field(ge=1)] = 1
    """Epochs between evaluations."""
    eval_last: Annotated[int, Field(ge=1)] = 10
    """So many epochs at the end are all evaluated; the paper takes the median of ten."""
    checkpoint_minutes: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 5.0
    """Minutes between checkpoints for --resume; 0: after every step."""
    wandb: bool = False
    """Log to Weights & Biases too."""
    mlflow: bool = False
    """Log to MLflow too, on the server that MLFLOW_TRACKING_URI names."""
    settings: Recipe = field(default_factory=lambda: find_recipe("quick"))
    """The settings of the recipe, each with its value for this run."""

    def __post_init__(self) -> None:
        check_method(self.method)
        recipe = find_recipe(self.recipe)
        if self.settings.preset != recipe.preset and not presets_of(self.method):
            having = ", ".join(name for name in methods() if presets_of(name))
            raise AutomixError(f"preset is an option of {having}, not of {self.method}; got {self.settings.preset!r}")
        for name, value in self.method_options.items():
            if name.endswith("alpha") and isinstance(value, int | float):
                check_alpha(value, name)
        for name in _LOAD_FILES:
            if name in self.model_options:
                raise AutomixError(f"model_options.{name} is not allowed; use --weights with a file or folder")
        for name in _DECIDED_ELSEWHERE:
            if name in self.model_options:
                raise AutomixError(f"model_options.{name} is not allowed: the data and the recipe decide it")
        if (self.mean is None) != (self.std is None):
            raise AutomixError(f"mean and std must be given together, got mean={self.mean} and std={self.std}")
        _ = self.normalization
        self._check_sizes()
        if has_own_teacher(self.method):  # then `ema` says what is, whatever the recipe has for other methods
            ema = self.method_options.get("momentum", 0) is not None
            object.__setattr__(self, "settings", replace(self.settings, ema=ema))

    def _check_sizes(self) -> None:
        """Check the sizes of datasets that are drawn; those of others are known when their files are listed."""
        from automix.data import DATASETS, BatchPlan  # here: they import torch, which the command line's help must not

        known = DATASETS.get(self.data)
        if known is None or known.train_count is None:
            return
        each = known.train_count // known.num_classes  # on average
        check_whole("classes", self.classes, 1, known.num_classes)
        check_whole("per_class", self.per_class, 1, each)
        count = known.train_count if self.classes is None else self.classes * 2 * each
        if self.per_class is not None:
            count = (self.classes or known.num_classes) * self.per_class
        BatchPlan(count, self.settings.batch_size, accumulate=self.accumulate)

    @property
    def root(self) -> Path | None:
        """The folder of named datasets, if given."""
        return None if self.data_root is None else Path(self.data_root)

    @property
    def normalization(self) -> "Normalization | None":
        """How images are normalized; None where the data decides."""
        from automix.core.normalization import Normalization

        return None if self.mean is None or self.std is None else Normalization(self.mean, self.std)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return Path(self.out or f"runs/{Path(self.data).name}-{self.method}-{self.model}-{self.seed}")

    @property
    def effective_options(self) -> dict[str, Any]:
        """The options that the method is built with: those given, and the recipe's for everything else."""
        given = {name: value for name in ("alpha", "layer") if (value := getattr(self, name)) is not None}
        return self.settings.options_for(self.method, self.model, self.data) | given | self.method_options

    @property
    def method_settings(self) -> dict[str, Any]:
        """All settings of a method with presets; config.yaml records them, whatever the preset may become later."""
        return settings_of(self.method, self.effective_options)

    def flat(self) -> dict[str, Any]:
        """Put all settings side by side, as config.yaml has them.

        Returns:
            Values by name, those of the recipe last.
        """
        own = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "settings"}
        return {**own, **asdict(self.settings)}

    @classmethod
    def from_flat(cls, values: dict[str, Any]) -> "TrainConfig":
        """Build a configuration from settings side by side, the inverse of `flat`.

        Args:
            values: Settings by name; those that are missing have the recipe's or the default value.

        Returns:
            The configuration.
        """
        values = {name: value for name, value in values.items() if name != RESOLVED}  # follows from the others
        recipe = find_recipe(values.get("recipe", cls.recipe))
        of_recipe = {item.name for item in fields(recipe)}
        if unknown := [name for name in values if name not in cls.flat_names()]:
            raise unknown_name("setting", unknown[0], cls.flat_names())
        if values.get("data") is None:
            raise AutomixError("DATA is missing; give a dataset's name (automix datasets) or a folder of images")
        settings = type(recipe)(**{name: value for name, value in values.items() if name in of_recipe})
        return cls(**{name: value for name, value in values.items() if name not in of_recipe}, settings=settings)

    @classmethod
    def flat_names(cls) -> list[str]:
        """List the names of all settings.

        Returns:
            The names, those of the recipe last.
        """
        return [item.name for item in (*fields(cls), *fields(Recipe)) if item.name != "settings"]

    def save(self, path: Path) -> None:
        """Write all settings to a YAML file.

        Args:
            path: The file.
        """
        settings = self.method_settings
        resolved = {RESOLVED: settings} if settings else {}
        text = yaml.safe_dump({**self.flat(), **resolved}, sort_keys=False)
        write_text(path, f"# automix train --config {path}\n{text}")


def read_config(path: Path) -> dict[str, Any]:
    """Read a YAML file of settings.

    Args:
        path: The file.

    Returns:
        The settings by name, as they are in the file.
    """
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise AutomixError(f"{path}: no such file") from None
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, yaml.YAMLError) as error:  # PyYAML's ways
        raise AutomixError(f"{path}: cannot be read as YAML ({one_line(error)})") from None
    if not (isinstance(values, dict) and _is_modest(values)):
        raise AutomixError(f"{path}: no settings in it; write lines of the form name: value")
    return values


def _is_modest(values: dict[str, Any], deepest: int = 10, most: int = 10_000) -> bool:
    """Tell whether a file is of sensible size: by anchors a short one can be endless, or larger than any memory."""
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
