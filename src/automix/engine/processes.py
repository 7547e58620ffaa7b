"""One process or many: what a run asks of torch.distributed. Without torchrun everything here is the identity."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Processes:
    """This process's place: number `rank` of `world`, number `local` on its machine."""

    rank: int = 0
    world: int = 1
    local: int = 0

    @property
    def leads(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def mean(self, values: Tensor) -> Tensor:
        """The mean over all processes; NaN anywhere is NaN everywhere."""
        return self.total(values) / self.world

    def total(self, values: Tensor) -> Tensor:
        if self.world > 1:
            dist.all_reduce(values)
        return values

    def share_buffers(self, module: nn.Module) -> None:
        """Give every process the running statistics of the first, so that all evaluate the same network."""
        if self.world > 1:
            for buffer in module.buffers():
                dist.broadcast(buffer, 0)

    def wait(self) -> None:
        if self.world > 1:
            dist.barrier()


@contextmanager
def joined(device: str) -> Iterator[Processes]:
    """Join the other processes that torchrun started, if it did."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Processes()
        return
    local = int(os.environ["LOCAL_RANK"])
    cuda = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
    if cuda:
        torch.cuda.set_device(local)
    dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo")
    try:
        yield Processes(dist.get_rank(), dist.get_world_size(), local)
    finally:
        dist.destroy_process_group()
