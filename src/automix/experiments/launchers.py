"""Who does the runs of a grid: this process one after the other, Ray, or Slurm through submitit.

All of them call work.finish for the same jobs and leave the same folders; only where and when differs. Processes on
other machines need the same `--out` and the same data root, on a disk that all of them share.
"""

import re
import shutil
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from automix.experiments.plan import Job
from automix.experiments.progress import OneRun, Report
from automix.experiments.work import finish

Options = dict[str, Any]


def local(jobs: Sequence[Job], report: Report, options: Options) -> None:
    """One after the other, here. A run that fails by itself does not end the grid; Ctrl-C does."""
    if options:
        raise ValueError(f"launcher options {', '.join(options)}: accepted are none for the launcher local")
    for job in jobs:
        display = OneRun(report, job)
        try:
            report.done(finish(job, display))
        except (ArithmeticError, RuntimeError, ValueError) as error:  # a loss that is not finite, no memory, bad files
            report.fail(job.name, str(error))


def ray(jobs: Sequence[Job], report: Report, options: Options) -> None:
    """Tasks of Ray, on its running cluster or on this machine; `options` are those of a task: num_cpus, num_gpus."""
    engine = _need("ray")
    if not engine.is_initialized():
        engine.init(log_to_driver=False)
    task = engine.remote(**{"num_cpus": 1, "max_retries": 0, **options})(finish)
    names = {task.remote(job): job.name for job in jobs}
    waiting = list(names)
    while waiting:
        (done,), waiting = engine.wait(waiting, num_returns=1)
        try:
            report.done(engine.get(done))
        except engine.exceptions.RayTaskError as error:
            report.fail(names[done], str(error.cause))


def slurm(jobs: Sequence[Job], report: Report, options: Options) -> None:
    """A job array of Slurm; `options` are submitit's: slurm_partition, gpus_per_node, timeout_min, ...

    ``cluster=local`` makes a process of this machine out of every run, all at once, ``cluster=debug`` none at all.
    """
    engine = _need("submitit")
    cluster = options.pop("cluster", "slurm")
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise ValueError("launcher slurm: no sbatch on this machine; accepted is local, or a machine of the cluster")
    if not jobs:
        return
    executor = engine.AutoExecutor(folder=jobs[0].folder.parent / "submitit", cluster=cluster)
    executor.update_parameters(**{"name": "automix", "timeout_min": 24 * 60, **options})
    submitted = executor.map_array(finish, jobs)
    names = {id(task): job.name for task, job in zip(submitted, jobs, strict=True)}
    for task in engine.helpers.as_completed(submitted, poll_frequency=2):
        error = task.exception()
        report.done(names[id(task)]) if error is None else report.fail(names[id(task)], _cause(str(error)))


def _cause(trace: str) -> str:
    """submitit tells a failure by its whole trace; what matters is the last error's line."""
    errors = [line for line in trace.splitlines() if re.match(r"[\w.]+(Error|Exception|Stopped)\b", line)]
    return errors[-1] if errors else trace


def _need(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise ValueError(f"needs {package}: pip install {package}") from None


LAUNCHERS: dict[str, Callable[[Sequence[Job], Report, Options], None]] = {"local": local, "ray": ray, "slurm": slurm}
