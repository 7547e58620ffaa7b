"""Launchers of the runs of a grid: this process, several processes, Ray, or Slurm through submitit.

Each of them calls `run_job` for the same jobs and leaves the same folders. Processes on other machines need the same
`--out` and data root on a shared disk.
"""

import multiprocessing
import os
import re
import shutil
import signal
from collections.abc import Callable, Sequence
from importlib import import_module
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from automix.core.errors import AutomixError
from automix.core.validation import check_whole
from automix.studies.plan import Job
from automix.studies.progress import GridProgress, RunBar
from automix.studies.run_job import run_job
from automix.training.signals import Stopped

Options = dict[str, Any]

FAILURES = (ArithmeticError, RuntimeError, ValueError)  # a loss that is not finite, no memory, bad files


def run_local(jobs: Sequence[Job], progress: GridProgress, options: Options) -> None:
    """Run the jobs on this machine.

    A failed run does not end the grid; Ctrl-C does.

    Args:
        jobs: The jobs.
        progress: Reports each run that ends.
        options: ``processes``: runs at a time, each with its share of the cores; 1 if not given.
    """
    processes = options.pop("processes", 1)
    if options:
        raise AutomixError(f"options of launcher local must be processes, got {', '.join(options)}")
    check_whole("processes", processes, 1)
    if processes > 1:
        return _run_in_processes(jobs, progress, processes)
    for job in jobs:
        display = RunBar(progress, job)
        try:
            progress.done(run_job(job, display))
        except FAILURES as error:
            progress.fail(job.name, str(error))
    return None


def _run_in_processes(jobs: Sequence[Job], progress: GridProgress, processes: int) -> None:
    """Run several jobs at a time; on few cores, runs of one thread each are faster than one run of several."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    waiting = list(jobs)
    running: dict[int, tuple[Job, SpawnProcess, Connection]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                job = waiting.pop(0)
                process, receiver = _start(job, threads)
                running[process.sentinel] = job, process, receiver
            for ended in wait(list(running)):
                job, process, receiver = running.pop(ended)  # type: ignore[arg-type]
                process.join()
                reason = receiver.recv() if receiver.poll() else f"its process ended with exit code {process.exitcode}"
                progress.fail(job.name, reason) if reason else progress.done(job.name)
    finally:
        for _, process, _ in running.values():
            process.terminate()  # the training saves its state
        for _, process, _ in running.values():
            process.join()


def _start(job: Job, threads: int) -> tuple[SpawnProcess, Connection]:
    """Start a process for `job`; the connection receives why it failed, or an empty text."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit the state of torch's threads
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_run_and_send, args=(job, threads, sender))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: the training handles SIGTERM itself
    process.start()
    signal.signal(signal.SIGINT, before)
    sender.close()
    return process, receiver


def _run_and_send(job: Job, threads: int, sender: Connection) -> None:
    import torch

    torch.set_num_threads(threads)
    try:
        run_job(job)
        sender.send("")
    except (*FAILURES, Stopped) as error:
        sender.send(str(error))


def run_on_ray(jobs: Sequence[Job], progress: GridProgress, options: Options) -> None:
    """Run the jobs as Ray tasks, on a running cluster or on this machine.

    Args:
        jobs: The jobs.
        progress: Reports each run that ends.
        options: Options of a Ray task, such as num_cpus and num_gpus.
    """
    engine = _import("ray")
    if not engine.is_initialized():
        engine.init(log_to_driver=False)
    task = engine.remote(**{"num_cpus": 1, "max_retries": 0, **options})(run_job)
    names = {task.remote(job): job.name for job in jobs}
    waiting = list(names)
    while waiting:
        (done,), waiting = engine.wait(waiting, num_returns=1)
        try:
            progress.done(engine.get(done))
        except engine.exceptions.RayTaskError as error:
            progress.fail(names[done], str(error.cause))


def run_on_slurm(jobs: Sequence[Job], progress: GridProgress, options: Options) -> None:
    """Run the jobs as a Slurm job array.

    Args:
        jobs: The jobs.
        progress: Reports each run that ends.
        options: submitit's options, such as slurm_partition, gpus_per_node and timeout_min. ``cluster=local`` starts
            a process of this machine for every run at once, ``cluster=debug`` runs them in this process.
    """
    engine = _import("submitit")
    cluster = options.pop("cluster", "slurm")
    if cluster == "slurm" and shutil.which("sbatch") is None:
        raise AutomixError("launcher slurm needs sbatch, which this machine does not have; use local")
    if not jobs:
        return
    executor = engine.AutoExecutor(folder=jobs[0].folder.parent / "submitit", cluster=cluster)
    executor.update_parameters(**{"name": "automix", "timeout_min": 24 * 60, **options})
    submitted = executor.map_array(run_job, jobs)
    names = {id(task): job.name for task, job in zip(submitted, jobs, strict=True)}
    for task in engine.helpers.as_completed(submitted, poll_frequency=2):
        error = task.exception()
        progress.done(names[id(task)]) if error is None else progress.fail(names[id(task)], _cause(str(error)))


def _cause(trace: str) -> str:
    """Take the line of the last error out of submitit's traceback."""
    errors = [line for line in trace.splitlines() if re.match(r"[\w.]+(Error|Exception|Stopped)\b", line)]
    return errors[-1] if errors else trace


def _import(package: str) -> Any:
    try:
        return import_module(package)
    except ImportError:
        raise AutomixError(f"this launcher needs {package}: pip install {package}") from None


LAUNCHERS: dict[str, Callable[[Sequence[Job], GridProgress, Options], None]] = {
    "local": run_local,
    "ray": run_on_ray,
    "slurm": run_on_slurm,
}
"""The launchers by name."""
