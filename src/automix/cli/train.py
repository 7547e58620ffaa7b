"""`automix train`: from a dataset or a folder of images to a run folder with a classifier in it."""

import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from automix.cli._flags import PLACE, TIME, WHAT, Integer, Switch, flags_of, panel, read_options
from automix.core.errors import AutomixError
from automix.methods import check_method
from automix.runs.config import TrainConfig, read_config
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
            "method": "vanilla for photographs in less than 15 epochs",
            "model": "tf_efficientnet_lite0 for photographs",
            "recipe": "finetune for photographs",
            "preset": "the recipe decides",
            "epochs": "1500 steps or more for photographs",
            "batch_size": "16 or less for photographs",
            "lr": "0.02 or less for photographs",
            "train_size": "what the weights were trained with, for photographs",
        },
    )


Resume = Annotated[bool | Literal["auto"], Parameter(negative=(), show_default=False)]


def train(
    data: Annotated[str | None, Parameter(group=panel(WHAT))] = None,
    *,
    config: Annotated[Path | None, Parameter(group=panel(PLACE))] = None,
    resume: Annotated[Resume, Parameter(group=panel(PLACE))] = False,
    overwrite: Annotated[Switch, Parameter(group=panel(PLACE))] = False,
    minutes: Annotated[float | None, Parameter(group=panel(TIME))] = None,
    from_scratch: Annotated[Switch, Parameter(group=panel(WHAT))] = False,
    processes: Annotated[Integer, Parameter(group=panel(TIME))] = 1,
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
      automix train photos/ --out runs/x --resume auto   start it, or continue
      automix train --config runs/x/config.yaml --out runs/y   the same again
      automix train shapes --processes 2      two processes

    The defaults below are those of the recipe quick, which trains small
    images from scratch. Photographs, of more than 64 px, are fine-tuned.

    Args:
        data: A dataset's name (see `automix datasets`) or a folder of images.
        config: A YAML file of settings, such as a run's config.yaml. Flags override it.
        resume: Continue from the checkpoint in the run folder, if there is one. With "auto" the run's own settings
            hold, if there is a run: the same command starts it and, after any interruption, continues it.
        overwrite: Start over in the folder of an earlier run.
        minutes: Choose the number of epochs, and of large images the size, so that the training takes so long.
        from_scratch: Train a new network even on photographs, for which pretrained weights are the default.
        processes: Processes of this machine that train together, each on a part of every batch; on GPUs, one for each.
        flags: All other settings.
    """
    if minutes is not None and processes > 1:
        raise AutomixError("minutes can only be given for a single process; give --epochs")
    settings = make_config(data, config, flags or {}, resume=resume, minutes=minutes, from_scratch=from_scratch)

    from automix.training import choose_display
    from automix.training import train as train_classifier

    if processes > 1:
        from automix.training.launch import train_in_processes

        train_in_processes(settings, processes, resume=bool(resume), overwrite=overwrite)
    else:
        train_classifier(settings, resume=bool(resume), overwrite=overwrite, display=choose_display())


def make_config(
    data: str | None,
    file: Path | None,
    flags: dict[str, Any],
    *,
    resume: "bool | Literal['auto']" = False,
    minutes: float | None = None,
    from_scratch: bool = False,
) -> TrainConfig:
    """Put the settings of a run together: flags override the file, which overrides the recipe.

    Args:
        data: The dataset, if given.
        file: A YAML file of settings, if given.
        flags: The other flags that were given, by the name of the setting.
        resume: Whether the run is resumed; with ``out``, its own configuration is the file. With "auto", a run that is
            there keeps its number of epochs, whatever `minutes` would give now.
        minutes: Time for the training, if it decides the number of epochs.
        from_scratch: Train a new network even on photographs.

    Returns:
        The configuration.
    """
    _check_values(flags)
    from automix.runs.folder import RunFolder

    is_there = "out" in flags and RunFolder(Path(flags["out"])).is_run
    if resume and "out" in flags and (data is None or is_there) and (file is None or (resume == "auto" and is_there)):
        file = RunFolder(Path(flags["out"])).config
    if resume == "auto" and minutes is not None:
        if "out" not in flags:
            raise AutomixError("resume auto needs --out with --minutes, which decides the name of the run folder")
        minutes = None if is_there else minutes
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


def _check_values(flags: dict[str, Any]) -> None:
    """Refuse a wrong value of a flag before torch is imported and the data is looked at."""
    check_method(flags.get("method", TrainConfig.method))
    recipe = type(find_recipe(flags.get("recipe", TrainConfig.recipe)))
    recipe(**{item.name: flags[item.name] for item in fields(recipe) if item.name in flags})
