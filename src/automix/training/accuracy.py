"""Accuracy on the test set, of the student and, where there is one, of the teacher."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from automix.core.accuracy import topk_correct
from automix.tasks.task import Task
from automix.training.distributed import World
from automix.training.hardware import Precision, autocast


@torch.no_grad()
def measure_accuracy(
    task: Task, batches: Iterator[tuple[Tensor, Tensor]], device: torch.device, precision: Precision, world: World
) -> dict[str, float]:
    """Percent top-1 and top-5 by network; every process counts its share of the test set."""
    networks: dict[str, nn.Module] = {"student": task.student}
    if task.teacher is not None:
        networks["teacher"] = task.teacher
    world.share_buffers(task)
    task.eval()
    right = torch.zeros(len(networks), 2, dtype=torch.float64)
    count = torch.zeros(1, dtype=torch.float64)
    for x, y in batches:
        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
        count += len(y)
        for number, network in enumerate(networks.values()):
            with autocast(precision, device):
                logits = network(x)
            right[number] += topk_correct(logits, y, (1, 5)).sum(dim=1).cpu()
    task.train()
    per_cent = 100 * world.total(right) / world.total(count)
    names = [f"{network}_{top}" for network in networks for top in ("top1", "top5")]
    return dict(zip(names, per_cent.flatten().tolist(), strict=True))
