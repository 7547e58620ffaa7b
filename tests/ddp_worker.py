"""One rank of test_ddp.py, started by torchrun: a step of AutoMix under DistributedDataParallel."""

import gc
import sys

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # before the group, which it would keep
from conftest import HandWritten, batch, group_norm
from torch.nn.parallel import DistributedDataParallel

import automix


def make_task() -> automix.AutoMix:
    torch.manual_seed(0)
    # No BatchNorm in the student: its statistics are those of a rank's own shard, so no equality could hold.
    return automix.AutoMix(
        HandWritten(norm=group_norm), layer="body", aux_loss="clean", block_share=1.0, mix_until=1.0
    ).double()


def main(out: str) -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    x, y = batch(8)
    x, y = x.double()[rank::2], y[rank::2]
    task = make_task()
    ddp = DistributedDataParallel(task)
    for step in range(2):  # the second step would fail if a parameter had gone unused in the first
        ddp.zero_grad()
        ddp(x, y).loss.backward()
        if step == 0 and rank == 0:
            gradients = {n: p.grad.clone() for n, p in task.named_parameters() if p.grad is not None}
            torch.save(gradients, out)
    task.update(0.5)
    task.mix_until = 0.5
    for _ in range(2):  # nor may the Mix Block go unused where nothing is mixed any more
        ddp.zero_grad()
        ddp(x, y).loss.backward()
    state = torch.cat([value.flatten() for value in task.state_dict().values()])
    gathered = [torch.empty_like(state) for _ in range(2)]
    dist.all_gather(gathered, state)
    if not torch.equal(*gathered):
        raise SystemExit("the ranks have drifted apart")
    dist.barrier()
    del ddp  # before the group: see automix/training/distributed.py
    gc.collect()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
