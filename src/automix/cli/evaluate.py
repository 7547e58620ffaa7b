"""`automix evaluate RUN`: calibration, corruptions, attacks, localization, ...: values, pictures, a table."""

import sys
from pathlib import Path

from rich.console import Console

from automix.cli._arguments import new_parser, parse
from automix.cli._tables import print_table

ABOUT = """Evaluate a trained run, a classifier's file, or a network of timm's.

  automix evaluate runs/x                                    accuracy and calibration
  automix evaluate runs/x --on all                           everything that the run and its data are made for
  automix evaluate runs/x --on attacks mixed --images 500    some evaluations, on a part of the test images
  automix evaluate runs/x --on corruptions --corrupted data/CIFAR-100-C
  automix evaluate resnet50 --data imagenet --on calibration timm's pretrained weights

Values, notes and pictures go into RUN/evaluation (results.json); with other sources into ./evaluation.
"""


def run(arguments: list[str]) -> None:
    from automix.evaluation.inputs import open_inputs
    from automix.evaluation.progress import no_progress, progress_bar
    from automix.evaluation.result import EvaluationResult
    from automix.evaluation.suite import ALL, EVALUATORS, Session, choose, evaluate, write
    from automix.training.hardware import choose_device

    listed = "\n".join(f"  {name:14}{evaluator.about}" for name, evaluator in EVALUATORS.items())
    parser = new_parser("evaluate", "RUN [flags]", f"{ABOUT}\nevaluations:\n{listed}\n  {ALL:14}all of them")
    parser.add_argument("run", type=str, help="a run folder, a classifier's safetensors file, or a network's name")
    parser.add_argument("--on", type=str, nargs="+", default=["accuracy", "calibration"], help="which evaluations")
    parser.add_argument(
        "--data", type=str, default=None, help="a dataset's name or a folder; the run's own if not given"
    )
    parser.add_argument("--data-root", type=str, default=None, help="where named datasets lie")
    parser.add_argument("--which", choices=("last", "best"), default="last", help="the run's last epoch or its best")
    parser.add_argument("--weights", type=str, default=None, help="a safetensors file for a network given by name")
    parser.add_argument("--images", type=int, default=None, help="use so many test images only")
    parser.add_argument("--corrupted", type=str, default=None, help="a folder in the layout of CIFAR-C or ImageNet-C")
    parser.add_argument("--batch-size", type=int, default=100, help="images at once")
    parser.add_argument("--device", type=str, default="auto", help="cpu, cuda, cuda:1, mps")
    parser.add_argument("--out", type=str, default=None, help="the folder for values and pictures")
    given = parse(parser, arguments)
    choose(given.on)  # a wrong name is told before a network is built
    subject = open_inputs(
        given.run,
        data=given.data,
        data_root=given.data_root,
        weights=given.weights,
        which=given.which,
        images=given.images,
        device=choose_device(given.device),
    )
    folder = Path(given.out) if given.out else (subject.folder or Path()) / "evaluation"
    session = Session(
        subject,
        batch_size=given.batch_size,
        corrupted=Path(given.corrupted) if given.corrupted else None,
        track=progress_bar if sys.stdout.isatty() else no_progress,
    )
    rows, remarks = [], []
    for name, found in evaluate(session, given.on):
        if not isinstance(found, EvaluationResult):
            remarks.append(f"{name}: left out, {found}")
            continue
        notes = write(folder, session, name, found)
        rows += [(name, value_name, f"{value:.4g}") for value_name, value in found]
        remarks += [f"{name}: {note}" for note in notes]
    print_table(("evaluation", "value", ""), rows)
    console = Console(stderr=True, soft_wrap=not sys.stderr.isatty(), highlight=False)
    for remark in remarks:
        console.print(remark)
    console.print(f"{len(subject.samples)} test images of {subject.data}; all of it in {folder}")
