"""Who does the runs of a grid: this process, or a few beside it, Ray, or Slurm through submitit.

All of them call work.finish for the same jobs and leave the same folders; only where and when differs. Processes on
other machines need the same `--out` and the same data root, on a disk that all of them share.
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

from automix.core.validation import check_whole
from automix.studies.plan import Job
from automix.studies.progress import OneRun, Report
from automix.studies.work import finish
from automix.training.signals import Stopped

Options = dict[str, Any]

FAILURES = (ArithmeticError, RuntimeError, ValueError)  # a loss that is not finite, no memory, bad files


def local(jobs: Sequence[Job], report: Report, options: Options) -> None:
    """One after the other, here; with ``processes=2`` two at a time, each with its share of the cores.

    A run that fails by itself does not end the grid; Ctrl-C does.
    """
    processes = options.pop("processes", 1)
    if options:
        raise ValueError(f"launcher options {', '.join(options)}: accepted is processes for the launcher local")
    check_whole("processes", processes, 1)
    if processes > 1:
        return _in_processes(jobs, report, processes)
    for job in jobs:
        display = OneRun(report, job)
        try:
            report.done(finish(job, display))
        except FAILURES as error:
            report.fail(job.name, str(error))
    return None


def _in_processes(jobs: Sequence[Job], report: Report, processes: int) -> None:
    """On few cores several runs of one thread each get further than one run of several threads."""
    threads = max(1, (os.cpu_count() or 1) // processes)
    waiting = list(jobs)
    running: dict[int, tuple[Job, SpawnProcess, Connection]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < processes:
                job = waiting.pop(0)
                process, answer = _start(job, threads)
                running[process.sentinel] = job, process, answer
            for ended in wait(list(running)):
                job, process, answer = running.pop(ended)  # type: ignore[arg-type]
                process.join()
                reason = answer.recv() if answer.poll() else f"its process ended with exit code {process.exitcode}"
                report.fail(job.name, reason) if reason else report.done(job.name)
    finally:
        for _, process, _ in running.values():
            process.terminate()  # a training saves its state
        for _, process, _ in running.values():
            process.join()


def _start(job: Job, threads: int) -> tuple[SpawnProcess, Connection]:
    """A process that does `job`, and where it tells how that went."""
    context = multiprocessing.get_context("spawn")  # a fork would inherit what torch's threads were doing
    answer, tell = context.Pipe(duplex=False)
    process = context.Process(target=_attempt, args=(job, threads, tell))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited: a training has its own way to stop
    process.start()
    signal.signal(signal.SIGINT, before)
    tell.close()
    return process, answer


def _attempt(job: Job, threads: int, tell: Connection) -> None:
    import torch

    torch.set_num_threads(threads)
    try:
        finish(job)
        tell.send("")
    except (*FAILURES, Stopped) as error:
        tell.send(str(error))


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
