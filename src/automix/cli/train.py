"""`automix train`: from a dataset or a folder of images to a run folder with a classifier in it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from automix.cli._flags import PLACE, TIME, WHAT, Switch, flags_of, panel, read_options
from automix.core.errors import AutomixError
from automix.runs.config import TrainConfig, read_config
from automix.runs.folder import RunFolder
from automix.runs.recipes import Recipe, find_recipe

if TYPE_CHECKING:
    Flags = dict[str, Any]
else:
    Flags = flags_of(
        TrainConfig,
        Recipe,
        find_recipe(TrainConfig.recipe),
        leave_out=("data", "settings"),
        panels={
            WHAT: ("method", "preset", "model", "weights", "recipe"),
            TIME: ("epochs", "batch_size", "lr", "train_size"),
            PLACE: ("out", "seed", "device"),
        },
        notes={
            "method": "vanilla for photographs seen less than 15 times",
            "model": "tf_efficientnet_lite0 for photographs",
            "recipe": "finetune for photographs",
            "preset": "the recipe decides",
            "epochs": "1500 steps or more for photographs",
            "batch_size": "16 or less for photographs",
            "lr": "0.02 or less for photographs",
            "train_size": "what the weights were trained with, for photographs",
        },
    )


def train(
    data: Annotated[str | None, Parameter(group=panel(WHAT))] = None,
    *,
    config: Annotated[Path | None, Parameter(group=panel(PLACE))] = None,
    resume: Annotated[Switch, Parameter(group=panel(PLACE))] = False,
    overwrite: Annotated[Switch, Parameter(group=panel(PLACE))] = False,
    minutes: Annotated[float | None, Parameter(group=panel(TIME))] = None,
    from_scratch: Annotated[Switch, Parameter(group=panel(WHAT))] = False,
    flags: Annotated[Flags | None, Parameter(name="*")] = None,
) -> None:
    """Train a classifier.

    For example:
      automix train photos/                   fine-tune on photos/<class>/*.jpg
      automix train photos/ --minutes 10      as well as ten minutes allow
      automix train shapes                    AutoMix on drawn images
      automix train shapes --preset fast      AutoMix at Mixup's cost
      automix train cifar100 --recipe cifar   a recipe of the paper
      automix train --resume --out runs/x     continue a stopped run
      automix train --config runs/x/config.yaml --out runs/y   the same again
      torchrun --nproc-per-node 8 -m automix train shapes      several processes

    The defaults below are those of the recipe quick, which trains small
    images from scratch. Photographs, of more than 64 px, are fine-tuned.

    Args:
        data: A dataset's name (see `automix datasets`) or a folder of images.
        config: A YAML file of settings, such as a run's config.yaml. Flags override it.
        resume: Continue from the checkpoint in the run folder, if there is one.
        overwrite: Start anew in the folder of an earlier run.
        minutes: Choose the number of epochs, and of large images the size, so that the training takes so long.
        from_scratch: Train a new network even on photographs, for which pretrained weights are the default.
        flags: All other settings.
    """
    from automix.training import choose_display
    from automix.training import train as train_classifier

    settings = make_config(data, config, flags or {}, resume=resume, minutes=minutes, from_scratch=from_scratch)
    train_classifier(settings, resume=resume, overwrite=overwrite, display=choose_display())


def make_config(
    data: str | None,
    file: Path | None,
    flags: dict[str, Any],
    *,
    resume: bool = False,
    minutes: float | None = None,
    from_scratch: bool = False,
) -> TrainConfig:
    """Put the settings of a run together: flags override the file, which overrides the recipe.

    Args:
        data: The dataset, if given.
        file: A YAML file of settings, if given.
        flags: The other flags that were given, by the name of the setting.
        resume: Whether the run is resumed; with ``out``, its own configuration is the file.
        minutes: Time for the training, if it decides the number of epochs.
        from_scratch: Train a new network even on photographs.

    Returns:
        The configuration.
    """
    if resume and "out" in flags and file is None and (data is None or RunFolder(Path(flags["out"])).is_run):
        file = RunFolder(Path(flags["out"])).config
    settings = read_config(file) if file is not None else {}
    for name in ("config", "resume", "overwrite"):
        if name in settings:
            raise AutomixError(f"{file}: {name} is a flag of the command line, not a setting; remove it from the file")
    recipe = settings.get("recipe")
    if recipe is not None and flags.get("recipe", recipe) != recipe:
        raise AutomixError(f"recipe must be {recipe!r} with {file}, which names all its settings; "
                           f"got {flags['recipe']!r}")  # fmt: skip
    settings.update({} if data is None else {"data": data})
    for name, value in flags.items():
        if name in ("method_options", "model_options"):  # option by option
            in_file = settings.get(name)
            settings[name] = (in_file if isinstance(in_file, dict) else {}) | read_options(value)
        else:
            settings[name] = value
    if file is None:
        from automix.training.defaults import complete_settings

        settings = complete_settings(settings, from_scratch=from_scratch)
    made = TrainConfig.from_flat(settings)
    if minutes is not None:
        from automix.training.budget import fit_into

        sys.stdout.write(f"timing a few steps, to fit the training into {minutes:g} minutes\n")
        sys.stdout.flush()
        made = fit_into(made, minutes, fixed=tuple(flags))
    if flags.get("ema", made.settings.ema) != made.settings.ema:
        raise AutomixError(
            f"ema must be {str(made.settings.ema).lower()} with {made.method}, which has its own teacher"
        )
    return made
