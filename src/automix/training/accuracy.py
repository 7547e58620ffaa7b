"""Accuracy on the test set of the student and of the teacher, if there is one."""

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
    """Measure top-1 and top-5 accuracy of each network; every process evaluates its share of the test set.

    Args:
        task: The task; in training mode again afterwards.
        batches: Test images and labels of this process.
        device: Where the task is.
        precision: Precision of the forward pass.
        world: The processes that evaluate together.

    Returns:
        Percentages ``student_top1``, ``student_top5`` and, with a teacher, ``teacher_top1``, ``teacher_top5``.
    """
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
