"""One run of a grid from beginning to end: train it, then measure on it what its cells ask for.

What is there already is not done again, and what was interrupted goes on; whoever does the work, in whatever process
or on whatever machine, finds that out from the run's folder.
"""

import json
from dataclasses import replace
from pathlib import Path

from automix.core.files import write_atomically
from automix.runs.config import TrainConfig
from automix.studies.cells import Network
from automix.studies.plan import Job
from automix.training.log import Display

SAMPLES = "evaluation/samples.png"


def finish(job: Job, display: Display | None = None) -> str:
    """Do what is left of `job`; returns the name of its folder."""
    if not job.trained:
        from automix.training import train

        job.folder.parent.mkdir(parents=True, exist_ok=True)
        train(TrainConfig.from_flat(job.values), resume=True, display=display)
    for network in sorted({network for _, network in job.wanted}):
        measure(job, network)
    if job.lams and not (job.folder / SAMPLES).is_file():
        draw_samples(job.folder, job.lams)
    return job.name


def is_done(job: Job) -> bool:
    """Whether nothing is left of it."""
    drawn = not job.lams or (job.folder / SAMPLES).is_file()
    return job.trained and drawn and not any(missing(job, network) for _, network in job.wanted)


def missing(job: Job, network: Network) -> list[str]:
    """The evaluators whose results are wanted of this network and not there."""
    from automix.evaluation.suite import read_results

    there = read_results(results_folder(job.folder, network))
    return sorted(name for name, which in job.wanted if which == network and name not in there)


def results_folder(run: Path, network: Network) -> Path:
    """RUN/evaluation for what the run deploys; a student beside its teacher has its own."""
    return run / ("evaluation-student" if network == "student" and has_teacher(run) else "evaluation")


def has_teacher(run: Path) -> bool:
    return "teacher_top1" in json.loads((run / "summary.json").read_text(encoding="utf-8"))


def measure(job: Job, network: Network) -> None:
    """Run the evaluators that are missing, and write their values and pictures into the run folder."""
    if not (names := missing(job, network)):
        return
    from automix.evaluation.inputs import open_inputs
    from automix.evaluation.result import EvaluationResult
    from automix.evaluation.suite import Session, evaluate, write
    from automix.runs.classifier import WithNormalization
    from automix.training.hardware import choose_device
    from automix.training.load import load_task

    device = choose_device(job.values["device"])
    subject = open_inputs(str(job.folder), device=device, data_root=job.values["data_root"])
    if network == "student" and has_teacher(job.folder):
        task, card, _ = load_task(job.folder)
        subject = replace(subject, classifier=WithNormalization(task.student, card).to(device).eval())
    session = Session(subject, corrupted=corrupted_images(job))
    for name, found in evaluate(session, names):
        if isinstance(found, EvaluationResult):
            write(results_folder(job.folder, network), session, name, found)


def corrupted_images(job: Job) -> Path | None:
    """CIFAR-10-C or CIFAR-100-C below the data root, if it is there."""
    from automix.data.datasets import data_root

    known = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}.get(job.values["data"])
    root = job.values["data_root"]
    folder = data_root(Path(root) if root else None) / known if known else None
    return folder if folder is not None and folder.is_dir() else None


def draw_samples(run: Path, lams: tuple[float, ...]) -> None:
    """Mixed samples of the run's test images over lam."""
    import torch

    from automix.pictures.mixed_samples import mixed_samples
    from automix.training.load import load_task, preview

    task, card, config = load_task(run)
    x, y = preview(config)
    picture = mixed_samples(task, x, torch.tensor(card.mean), torch.tensor(card.std), lams=lams, y=y)
    (run / SAMPLES).parent.mkdir(exist_ok=True)
    write_atomically(run / SAMPLES, picture.save)
