"""One run of a grid from start to end: train it, then evaluate it.

Finished parts are not repeated, and an interrupted training is resumed. All of this is read from the run folder, so any
process on any machine can continue a grid.
"""

from dataclasses import replace
from pathlib import Path

from automix.pictures.mixed_samples import MixedSamples, mix_samples
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
    if missing_lams(job):
        keep_samples(job)
    return job.name


def is_complete(job: Job) -> bool:
    """Tell whether a job is trained and evaluated.

    Args:
        job: The job.

    Returns:
        True if nothing is left to do.
    """
    if not job.is_trained or missing_lams(job):
        return False
    return not any(missing_evaluators(job, network) for _, network in job.evaluations)


def missing_evaluators(job: Job, network: Network) -> list[str]:
    """List the evaluators that have no results yet, or not the series that the figure needs.

    Args:
        job: The job.
        network: ``"student"`` or ``"teacher"``.

    Returns:
        Their names.
    """
    from automix.evaluation.results_file import read_results

    done = read_results(RunFolder(job.folder).evaluation_of(network))
    wanted = sorted(name for name, which in job.evaluations if which == network)
    return [name for name in wanted if name not in done or (name in job.series and "series" not in done[name])]


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
    session = Session(inputs, corrupted=corrupted_images(job), squeeze=True)  # as Choe et al., whom Table 8 follows
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


def missing_lams(job: Job) -> list[float]:
    """List the values of lam at which no mixed samples are kept yet.

    Args:
        job: The job.

    Returns:
        The values, in the order of the job's.
    """
    path = RunFolder(job.folder).samples
    kept = MixedSamples.read(path).mixed if job.lams and path.is_file() else {}
    return [lam for lam in job.lams if lam not in kept]


def keep_samples(job: Job) -> None:
    """Mix test images at each lam of the job and keep them in the run folder, beside those of other experiments.

    Args:
        job: A trained job.
    """
    import torch

    from automix.training.load import load_task, preview

    folder = RunFolder(job.folder)
    earlier = MixedSamples.read(folder.samples).mixed if folder.samples.is_file() else {}
    task, card, config = load_task(job.folder)
    x, y = preview(config)
    lams = sorted({*earlier, *job.lams})
    samples = mix_samples(task, x, torch.tensor(card.mean), torch.tensor(card.std), lams, y)
    folder.evaluation.mkdir(exist_ok=True)
    samples.write(folder.samples)
