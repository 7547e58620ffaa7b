"""`automix train`: from a dataset or a folder of images to a run folder with a classifier in it."""

import argparse
from pathlib import Path

from automix.cli._arguments import add_fields, new_parser, parse
from automix.runs.config import TrainConfig, read_config
from automix.runs.recipes import Recipe, find_recipe

ABOUT = """Train a classifier.

  automix train shapes                                   AutoMix on generated images, minutes on two cores
  automix train photos/ --epochs 50                      a folder: photos/<class>/*.jpg, or photos/{train,test}/<class>/
  automix train cifar100 --recipe cifar --method cutmix  a recipe of the paper
  automix train --config runs/x/config.yaml --out y      the same run again
  automix train --resume --out runs/x                    go on where a run stopped
  torchrun --nproc-per-node 8 -m automix train ...       many processes
"""


def run(arguments: list[str]) -> None:
    from automix.training import choose_display, train

    config, resume, overwrite = read_arguments(arguments)
    train(config, resume=resume, overwrite=overwrite, display=choose_display())


def read_arguments(arguments: list[str]) -> tuple[TrainConfig, bool, bool]:
    """The configuration, and whether to resume or to overwrite.

    What holds: the flags, before the config file, before the recipe.
    """
    if arguments and not arguments[0].startswith("-"):
        arguments = ["--data", *arguments]
    first, others = _look_ahead(arguments)
    from_file = read_config(Path(first.config)) if first.config else {}
    for name in ("config", "resume", "overwrite"):
        if name in from_file:
            raise ValueError(f"config {first.config}: {name} is a flag of the command line; accepted are settings")
    recipe = first.recipe or from_file.get("recipe", TrainConfig.recipe)
    if first.recipe and first.recipe != from_file.get("recipe", first.recipe):
        raise ValueError(f"--recipe {first.recipe}: {first.config} was made with {from_file['recipe']!r} and names all "
                         "its settings; accepted is the same recipe, or no --config")  # fmt: skip
    parser = new_parser("train", "DATA [flags]", ABOUT)
    parser.add_argument("--config", action="config", help="a YAML file of settings, such as a run's config.yaml")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in the run folder, if any")
    parser.add_argument("--overwrite", action="store_true", help="begin anew in the folder of an earlier run")
    add_fields(parser.add_argument_group("what to train"), TrainConfig, TrainConfig, leave_out=("settings",))
    add_fields(parser.add_argument_group(f"how to train (recipe {recipe})"), Recipe, find_recipe(recipe))
    # jsonargparse goes from left to right, and the flags shall win over the file wherever they stand
    parsed = parse(parser, [*(["--config", first.config] if first.config else []), *others]).as_dict()
    values = {name: parsed[name] for name in TrainConfig.flat_names()}
    return TrainConfig.from_flat(values), parsed["resume"], parsed["overwrite"]


def _look_ahead(arguments: list[str]) -> tuple[argparse.Namespace, list[str]]:
    """The flags that decide what the others default to, and the arguments without --config.

    `--resume --out DIR` and no data means that folder's own configuration.
    """
    config, rest = (argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False) for _ in "cr")
    config.add_argument("--config")
    for flag in ("--recipe", "--out", "--data"):
        rest.add_argument(flag)
    rest.add_argument("--resume", action="store_true")
    try:
        found, others = config.parse_known_args(arguments)
        found = rest.parse_known_args(others, found)[0]
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from None
    if found.resume and found.out and not found.config and not found.data:
        found.config = str(Path(found.out) / "config.yaml")
    return found, others
