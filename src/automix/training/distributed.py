"""One process or many. Without torchrun, all of this does nothing.

The threads of a gloo group end with its last owner, and a DistributedDataParallel is one. If that one is freed last, it
waits for gloo's threads while it holds Python's lock (the GIL), which a gloo thread needs to free a tensor: the process
hangs. If the group is never freed, its threads run while the interpreter shuts down, and may abort the process. So the
networks are freed first, then the group, which `destroy_process_group` frees without the lock.
"""

import gc
import importlib
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

# For a process that hangs, or whose machine is gone: longer than the main process ever draws and saves while the others
# wait. The end of a process that is killed is noticed at once, since its connections are closed.
TIMEOUT = timedelta(minutes=10)

_LOST_CONNECTION = ("connection closed", "connection reset", "broken pipe", "timed out", "gloo", "nccl")


class ProcessLostError(ConnectionError):
    """Another process of the run has ended or does not answer."""


@dataclass(frozen=True)
class World:
    """The processes that train together, and the place of this one among them.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
        local_rank: Number of this process on its machine.
    """

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def is_main_process(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def mean(self, values: Tensor) -> Tensor:
        """Average over all processes.

        Args:
            values: The values of this process; overwritten.

        Returns:
            The mean; NaN anywhere is NaN everywhere.
        """
        return self.total(values) / self.size

    def total(self, values: Tensor) -> Tensor:
        """Sum over all processes.

        Args:
            values: The values of this process; overwritten.

        Returns:
            The sum.
        """
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def share_buffers(self, module: nn.Module) -> None:
        """Copy the buffers of the main process to all others, so that all evaluate the same network.

        Args:
            module: The module.
        """
        if self.size > 1:
            for buffer in module.buffers():
                dist.broadcast(buffer, 0)

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def process_group(device: str) -> Iterator[World]:
    """Join the other processes that torchrun started, if it did.

    At the end of the `with` block the group is destroyed and its threads have ended. Variables that hold a
    DistributedDataParallel must be gone by then.

    Args:
        device: The `device` setting, which decides the backend.

    Yields:
        The processes that train together.

    Raises:
        ProcessLostError: Another process has ended or does not answer.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield World()
        return
    world = World(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_RANK"]))
    try:
        _join(world, device)
        yield world
    except BaseException as error:
        _release_locals(error)
        if not isinstance(error, RuntimeError) or not _is_lost_connection(error):
            raise
        # from any exchange, those inside DistributedDataParallel's backward pass too
        raise ProcessLostError(
            f"process {world.rank} of {world.size} lost another one ({str(error).splitlines()[0]}); "
            "the last checkpoint is intact, continue with the same command and --resume"
        ) from error
    finally:
        if dist.is_initialized():
            gc.collect()
            dist.destroy_process_group()


def _release_locals(error: BaseException | None) -> None:
    """Forget the variables of the functions that an error has left: its traceback would keep their networks."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _join(world: World, device: str) -> None:
    cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if cuda:
        torch.cuda.set_device(world.local_rank)
    # Imported later, by DistributedDataParallel, its functions would keep the group in their default arguments.
    importlib.import_module("torch.distributed.nn.functional")
    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    if os.environ.get("GROUP_WORLD_SIZE", "1") == "1":
        # torchrun keeps its store when it restarts the processes, with the addresses of those that are dead in it
        # (pytorch issue 135712). Over several machines its count of restarts is not the same everywhere.
        store = dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)


def _is_lost_connection(error: RuntimeError) -> bool:
    words = str(error).lower()
    return isinstance(error, dist.DistError) or any(word in words for word in _LOST_CONNECTION)
