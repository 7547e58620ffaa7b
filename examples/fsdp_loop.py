"""AutoMix with FSDP2: student, teacher and Mix Block are sharded over the processes, and so are the checkpoints.

    torchrun --nproc-per-node 2 examples/fsdp_loop.py [--method automix|puzzlemix|mixup] [--stop N] [--out DIR]

On random images, on the CPU if there is no GPU. A second start continues from the checkpoint in DIR. With one process
(no torchrun) each step accumulates the two halves of the batch, which gives the same weights.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard

import automix

PARTS = 2  # of each batch: processes, or accumulated pieces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--method", default="automix", choices=["automix", "puzzlemix", "mixup"])
    parser.add_argument("--steps", type=int, default=4, help="steps of the whole training")
    parser.add_argument("--stop", type=int, default=None, help="leave after this step; a second start continues")
    parser.add_argument("--out", type=Path, default=Path("runs/fsdp_loop"))
    arguments = parser.parse_args()
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes not in (1, PARTS):
        parser.error(f"torchrun must start {PARTS} processes, got {processes}")
    device = "cuda" if torch.cuda.is_available() and processes > 1 else "cpu"
    mesh = None if processes == 1 else init_device_mesh(device, (processes,))
    weights = train(arguments.method, arguments.steps, arguments.stop or arguments.steps, arguments.out, mesh)
    if not dist.is_initialized() or dist.get_rank() == 0:
        arguments.out.mkdir(parents=True, exist_ok=True)
        torch.save(weights, arguments.out / "weights.pt")
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def train(method: str, steps: int, stop: int, out: Path, mesh: DeviceMesh | None) -> dict[str, Tensor]:
    """Train until step `stop` of `steps`, and return the whole state of the task in the main process."""
    task = build_task(method).to("cpu" if mesh is None else mesh.device_type)
    if mesh is not None:
        shard(task, mesh)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9)
    if (out / "checkpoint" / ".metadata").exists():
        load(out / "checkpoint", task, optimizer)
    pieces = range(PARTS) if mesh is None else [mesh.get_rank()]
    device = next(task.parameters()).device
    while task.step < stop:
        x, y = (tensor.to(device) for tensor in draw_batch(task.step))
        for piece in pieces:
            out_of_piece = task(x[piece::PARTS], y[piece::PARTS])
            (out_of_piece.loss / len(pieces)).backward()  # FSDP averages over the processes
        optimizer.step()
        optimizer.zero_grad()
        task.update(task.step / steps)
    save(out / "checkpoint", task, optimizer)
    whole = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state: dict[str, Any] = get_model_state_dict(task, options=whole)
    return state


def build_task(method: str) -> automix.Task:
    """A small network in float64. It has no BatchNorm, whose statistics are those of a process's own images."""
    torch.manual_seed(0)
    body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(2, 16), nn.ReLU(), nn.Conv2d(16, 16, 3, 2, 1))
    model = nn.Sequential()
    model.add_module("body", body)
    model.add_module("head", nn.Sequential(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5)))
    if method == "automix":
        return automix.AutoMix(model, layer="body").double()
    return automix.create_task(method, model, ema=True).double()


def shard(task: automix.Task, mesh: DeviceMesh) -> None:
    """Shard what the task owns. Large networks are sharded block by block first, as torch's documentation shows."""
    for name in ("student", "teacher", "mix_block"):
        part = getattr(task, name, None)
        if part is not None:
            fully_shard(part, mesh=mesh)


def draw_batch(step: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(step)
    x = torch.randn(8, 3, 16, 16, generator=generator, dtype=torch.float64)
    return x, torch.randint(5, (8,), generator=generator)


def save(folder: Path, task: automix.Task, optimizer: torch.optim.Optimizer) -> None:
    """Every process writes its part of the weights; step and progress are in the task's state."""
    model, optim = get_state_dict(task, optimizer)
    dcp.save({"task": model, "optimizer": optim}, checkpoint_id=folder, no_dist=not dist.is_initialized())


def load(folder: Path, task: automix.Task, optimizer: torch.optim.Optimizer) -> None:
    model, optim = get_state_dict(task, optimizer)
    state: dict[str, Any] = {"task": model, "optimizer": optim}
    dcp.load(state, checkpoint_id=folder, no_dist=not dist.is_initialized())
    set_state_dict(task, optimizer, model_state_dict=state["task"], optim_state_dict=state["optimizer"])


if __name__ == "__main__":
    main()
