"""One run of a grid from start to end: train it, then evaluate it.

Finished parts are not repeated, and an interrupted training is resumed. All of this is read from the run folder, so any
process on any machine can continue a grid.
"""

from dataclasses import replace
from pathlib import Path

from automix.core.files import write_atomically
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder
from automix.runs.metrics import deployed_network
from automix.studies.cells import Network
from automix.studies.plan import Job
from automix.training.log import Display


def run_job(job: Job, display: Display | None = None) -> str:
    """Do what is left of a job.

    Args:
        job: The job.
        display: Shows the training; nothing is shown if not given.

    Returns:
        The name of its folder.
    """
    if not job.is_trained:
        from automix.training import train

        job.folder.parent.mkdir(parents=True, exist_ok=True)
        train(TrainConfig.from_flat(job.values), resume=True, display=display)
    for network in sorted({network for _, network in job.evaluations}):
        evaluate_job(job, network)
    if job.lams and not RunFolder(job.folder).samples.is_file():
        draw_samples(job.folder, job.lams)
    return job.name


def is_complete(job: Job) -> bool:
    """Tell whether a job is trained and evaluated.

    Args:
        job: The job.

    Returns:
        True if nothing is left to do.
    """
    drawn = not job.lams or RunFolder(job.folder).samples.is_file()
    return job.is_trained and drawn and not any(missing_evaluators(job, network) for _, network in job.evaluations)


def missing_evaluators(job: Job, network: Network) -> list[str]:
    """List the evaluators that have no results yet.

    Args:
        job: The job.
        network: ``"student"`` or ``"teacher"``.

    Returns:
        Their names.
    """
    from automix.evaluation.results_file import read_results

    done = read_results(RunFolder(job.folder).evaluation_of(network))
    return sorted(name for name, which in job.evaluations if which == network and name not in done)


def evaluate_job(job: Job, network: Network) -> None:
    """Run the evaluators that have no results yet, and write values and pictures into the run folder.

    Args:
        job: A trained job.
        network: ``"student"`` or ``"teacher"``.
    """
    if not (names := missing_evaluators(job, network)):
        return
    from automix.evaluation.inputs import open_inputs
    from automix.evaluation.result import EvaluationResult
    from automix.evaluation.results_file import write_result
    from automix.evaluation.session import Session
    from automix.evaluation.suite import run_evaluators
    from automix.runs.classifier import WithNormalization
    from automix.training.hardware import choose_device
    from automix.training.load import load_task

    device = choose_device(job.values["device"])
    inputs = open_inputs(str(job.folder), device=device, data_root=job.values["data_root"])
    if network == "student" and deployed_network(RunFolder(job.folder).summary()) == "teacher":
        task, card, _ = load_task(job.folder)
        inputs = replace(inputs, classifier=WithNormalization(task.student, card).to(device).eval())
    session = Session(inputs, corrupted=corrupted_images(job))
    for name, result in run_evaluators(session, names):
        if isinstance(result, EvaluationResult):
            write_result(RunFolder(job.folder).evaluation_of(network), inputs, name, result)


def corrupted_images(job: Job) -> Path | None:
    """Find CIFAR-10-C or CIFAR-100-C below the data root.

    Args:
        job: A job on CIFAR.

    Returns:
        The folder, or None.
    """
    from automix.data.datasets import data_root

    known = {"cifar10": "CIFAR-10-C", "cifar100": "CIFAR-100-C"}.get(job.values["data"])
    root = job.values["data_root"]
    folder = data_root(Path(root) if root else None) / known if known else None
    return folder if folder is not None and folder.is_dir() else None


def draw_samples(run: Path, lams: tuple[float, ...]) -> None:
    """Draw mixed samples of the run's test images over lam.

    Args:
        run: The run folder.
        lams: The values of lam.
    """
    import torch

    from automix.pictures.mixed_samples import draw_mixed_samples
    from automix.training.load import load_task, preview

    task, card, config = load_task(run)
    x, y = preview(config)
    picture = draw_mixed_samples(task, x, torch.tensor(card.mean), torch.tensor(card.std), lams=lams, y=y)
    RunFolder(run).evaluation.mkdir(exist_ok=True)
    write_atomically(RunFolder(run).samples, picture.save)
