"""`automix tune DATA`: find the method, the learning rate and the alpha for a dataset, and train the winner."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from automix.cli._flags import Integer, Several, Switch

Words = Annotated[tuple[str, ...], Several, Parameter(show_default=False)]


def tune(
    data: str,
    /,
    *,
    minutes: float = 30.0,
    methods: Words = (),
    recipe: str | None = None,
    model: str | None = None,
    size: Integer | None = None,
    changes: Annotated[Words, Parameter(name="--set")] = (),
    from_scratch: Switch = False,
    seed: Integer = 0,
    data_root: str | None = None,
    out: Path | None = None,
    launcher: str = "local",
    at_once: Integer = 1,
    launcher_options: Words = (),
) -> None:
    """Choose method, learning rate and alpha on held-out training images.

    For example:
      automix tune photos/                          half an hour
      automix tune photos/ --minutes 240 --methods mixup resizemix automix
      automix tune photos/ --size 128 --set batch_size=32
      automix tune shapes --launcher slurm --at-once 8
      automix train --config runs/tune-photos/best.yaml    the winner again

    Many configurations are trained for a short time and the better ones
    longer. Scores are accuracies on a fifth of the training images; test
    images are looked at once, by the winner's training on all training images
    at the end. The same command continues a search that was stopped.

    Args:
        data: A dataset's name (see `automix datasets`) or a folder of images.
        minutes: Time for all of it, the last training included.
        methods: Methods to try; plain training is always among them.
        recipe: The settings to start from; for photographs finetune if not given.
        model: The network; the recipe's choice if not given.
        size: Side of the images in pixels; chosen by the time if not given.
        changes: Further settings of all runs, as NAME=VALUE.
        from_scratch: Train new networks even on photographs.
        seed: Decides the search and all its runs.
        data_root: The folder of named datasets.
        out: The folder of the search; runs/tune-DATA if not given.
        launcher: local, ray or slurm.
        at_once: Runs at a time; on one machine, each gets its share of the cores.
        launcher_options: Options of the launcher, as NAME=VALUE.
    """
    from rich.console import Console

    from automix.core.files import write_text
    from automix.runs.config import TrainConfig
    from automix.studies.changes import read_changes, read_pairs
    from automix.studies.tuning import tune as search
    from automix.studies.tuning.progress import table_of
    from automix.training.defaults import complete_settings
    from automix.views.tuning import render_tuning

    given = {"recipe": recipe, "model": model, "train_size": size, "test_size": size, "data_root": data_root}
    values = {name: value for name, value in given.items() if value is not None} | read_changes(changes)
    settings = complete_settings({"data": data, **values, "method": "vanilla", "seed": seed}, from_scratch=from_scratch)
    folder = out or Path(f"runs/tune-{Path(data).name}")
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    record = search(
        TrainConfig.from_flat(settings),
        folder,
        minutes=minutes,
        methods=methods,
        fixed=tuple(name for name in values if name != "epochs"),
        launcher=launcher,
        at_once=at_once,
        options=read_pairs(launcher_options, "--launcher-options"),
        console=console,
    )
    page = folder / "report.html"
    write_text(page, render_tuning(record))
    console.print(table_of(record))
    for line in record.conclusions():
        console.print(line, markup=False)
    console.print(f"settings in {folder / 'best.yaml'}, classifier in {record.last['run']}, page {page}", markup=False)
