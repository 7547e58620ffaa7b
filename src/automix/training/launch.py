"""Several processes on this machine for one run, started by torch's launcher: no torchrun to type."""

import os
import uuid
from typing import Any

from automix.core.errors import AutomixError
from automix.core.validation import check_whole
from automix.runs.config import TrainConfig

Ended = tuple[int, str]
"""The exit code of a process and its message; (0, "") if all went well."""


def train_in_processes(
    config: TrainConfig, processes: int, *, resume: bool = False, overwrite: bool = False, quiet: bool = False
) -> None:
    """Train with several processes of this machine, each with a part of every batch.

    This is ``torchrun --standalone --nproc-per-node N``, without its command line. On a CPU each process computes with
    its share of the cores; on GPUs each takes one.

    Args:
        config: The settings.
        processes: Number of processes, at least 1.
        resume: Continue from the checkpoint in the run folder; without one, start.
        overwrite: Start over in the folder of an earlier run.
        quiet: Show no progress.

    Raises:
        ProcessesFailedError: A process ended with an error; the message is its own.
    """
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    check_whole("processes", processes, 1)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise AutomixError("processes must not be given under torchrun, which starts the processes itself")
    launch = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        start_method="spawn",
        max_restarts=0,
    )
    threads = max(1, (os.cpu_count() or 1) // processes)
    try:
        ended: dict[int, Ended] = elastic_launch(launch, _train)(config.flat(), resume, overwrite, quiet, threads)
    except ChildFailedError as error:
        _, first = error.get_first_failure()
        raise ProcessesFailedError(f"a process of the run ended with exit code {first.exitcode}", 1) from None
    failed = [one for one in ended.values() if one[0]]
    if failed:
        code, message = failed[0]  # the main process comes first
        raise ProcessesFailedError(message, code)


class ProcessesFailedError(RuntimeError):
    """A process of a run ended with an error.

    Args:
        message: One line, what the process said.
        exit_code: Its exit code.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def _train(values: dict[str, Any], resume: bool, overwrite: bool, quiet: bool, threads: int) -> Ended:
    """Train as one of the processes; an error is returned, so that the launcher prints no traceback of its own."""
    import torch

    from automix.training import Silent, choose_display, train

    torch.set_num_threads(threads)
    try:
        display = Silent() if quiet else choose_display()
        train(TrainConfig.from_flat(values), resume=resume, overwrite=overwrite, display=display)
    except Exception as error:
        return int(getattr(error, "exit_code", 1)), str(error) or type(error).__name__
    return 0, ""
