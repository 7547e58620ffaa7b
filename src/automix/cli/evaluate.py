"""`automix evaluate RUN`: calibration, corruptions, attacks, localization, ...: values, pictures, a table."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from automix.cli._flags import Integer, Several, Switch, Which
from automix.cli._output import print_table

if TYPE_CHECKING:
    from automix.evaluation.session import Session


def evaluate(
    run: str,
    /,
    *,
    on: Annotated[tuple[str, ...], Several] = ("accuracy", "calibration"),
    data: str | None = None,
    data_root: str | None = None,
    which: Which = "last",
    weights: str | None = None,
    images: Integer | None = None,
    corrupted: Path | None = None,
    severities: Annotated[tuple[Integer, ...], Several, Parameter(show_default=False)] = (),
    squeeze: Switch = False,
    batch_size: Integer = 100,
    device: str = "auto",
    out: Path | None = None,
) -> None:
    """Evaluate a trained run, a classifier's file, or a network of timm's.

    For example:
      automix evaluate runs/x                             accuracy and calibration
      automix evaluate runs/x --on all                    all that its data allows
      automix evaluate runs/x --on attacks mixed --images 500
      automix evaluate runs/x --on corruptions --corrupted data/CIFAR-100-C
      automix evaluate resnet50 --data imagenet           timm's weights

    Values, notes and pictures go into RUN/evaluation (results.json), those of
    --which best into RUN/evaluation-best; with other sources into ./evaluation.

    Args:
        run: A run folder, a classifier's safetensors file, or a network's name.
        on: accuracy, calibration, corruptions, attacks, mixed, localization, efficiency; or all (not efficiency).
        data: A dataset's name or a folder; the run's own if not given.
        data_root: The folder of named datasets.
        which: The weights of the run's last epoch or of its best.
        weights: A file or folder of weights for a network given by name.
        images: Use so many test images only.
        corrupted: A folder in the layout of CIFAR-C or ImageNet-C.
        severities: Of the corruptions, 1 to 5; all on a named dataset, 3 on a folder if not given.
        squeeze: For localization: squeeze images into a square instead of cropping the center.
        batch_size: Images at once.
        device: cpu, cuda, cuda:1, mps; auto for the first accelerator there is.
        out: The folder for values and pictures.
    """
    from rich.console import Console

    from automix.evaluation.inputs import open_inputs
    from automix.evaluation.progress import progress_bar, progress_lines
    from automix.evaluation.results_file import write_result
    from automix.evaluation.session import Session
    from automix.evaluation.suite import Skipped, run_evaluators, select_evaluators
    from automix.training.hardware import choose_device

    select_evaluators(on)  # an unknown name is refused before a network is built
    inputs = open_inputs(
        run,
        data=data,
        data_root=data_root,
        weights=weights,
        which=which,
        images=images,
        device=choose_device(device),
    )
    folder = out or inputs.results_folder
    session = Session(
        inputs,
        batch_size=batch_size,
        corrupted=corrupted,
        squeeze=squeeze,
        track=progress_bar if sys.stdout.isatty() else progress_lines,
        severities=severities or None,
    )
    console = Console(stderr=True, soft_wrap=not sys.stderr.isatty(), highlight=False)
    for line in describe_plan(session, on):
        console.print(line, markup=False)
    rows, remarks = [], []
    for name, result in run_evaluators(session, on):
        if isinstance(result, Skipped):
            remarks.append(f"{name}: left out, {result.reason}")
            continue
        notes = write_result(folder, inputs, name, result)
        rows += [(name, value_name, f"{value:.4g}") for value_name, value in result]
        remarks += [f"{name}: {note}" for note in notes]
    print_table(("evaluation", "value", ""), rows)
    for remark in remarks:
        console.print(remark, markup=False)
    console.print(f"{len(inputs.samples)} test images of {inputs.data}; all of it in {folder}", markup=False)


def describe_plan(session: "Session", names: Sequence[str]) -> Iterator[str]:
    """Say what evaluators will cost before they run.

    Args:
        session: What they share.
        names: Names of evaluators, or ``"all"``.

    Yields:
        Lines: the images, each evaluator with its passes and time, and the time of all of them.
    """
    from datetime import timedelta

    from automix.evaluation.plan import estimate_seconds, plan_evaluators
    from automix.evaluation.suite import Passes
    from automix.training.display import in_minutes

    plan = plan_evaluators(session, names)
    seconds = estimate_seconds(session, plan)
    yield f"{len(session.inputs.samples)} test images of {session.inputs.data}, on {session.inputs.device.type}:"
    for name, passes in plan.items():
        if isinstance(passes, Passes) and passes.count:
            gradients = f", {passes.with_gradients} with gradients" if passes.with_gradients else ""
            words = f"{passes.count} pass{'es' if passes.count > 1 else ''}{gradients} ({passes.detail})"
            time = f", about {in_minutes(timedelta(seconds=seconds[name]))}" if name in seconds else ""
            yield f"  {name}: {words}{time}"
    if seconds:
        total = in_minutes(timedelta(seconds=sum(seconds.values())))
        yield f"about {total} in all, as timed on a few images"
