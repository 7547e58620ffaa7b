"""What a training step costs beside the network: calls of the package's own functions."""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import nn

import automix
from automix.tasks.task import Task

SOURCE = str(Path(automix.__file__).parent)
NETWORK: dict[str, Any] = {"num_classes": 10, "image_size": 32, "layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]}


def make_step(method: str, **options: Any) -> Any:
    """A training step of a method on a narrow ResNet, after two steps that import and allocate."""
    torch.manual_seed(0)
    task = automix.create_task(method, automix.create_model("resnet18", **NETWORK), **options)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.01))
    x, y = torch.randn(8, 3, 32, 32), torch.arange(8)

    def step() -> None:
        task(x, y).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        task.update(0.3)

    for _ in range(2):
        step()
    return step


def count_calls(step: Any) -> Counter[str]:
    """The calls of functions in src/automix during a step, by file and name."""
    calls: Counter[str] = Counter()

    def hook(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            calls[f"{frame.f_code.co_filename.removeprefix(SOURCE)}:{frame.f_code.co_name}"] += 1

    sys.setprofile(hook)
    try:
        step()
    finally:
        sys.setprofile(None)
    return calls


@pytest.mark.parametrize(
    ("method", "options", "most"),
    [
        ("vanilla", {}, 39),
        ("mixup", {}, 46),
        ("mixup", {"ema": True}, 54),
        ("cutmix", {}, 59),
        ("cutmix", {"alpha": 1, "per_sample": True}, 63),
        ("automix", {}, 150),
    ],
)
def test_a_step_makes_few_calls(method: str, options: dict[str, Any], most: int) -> None:
    calls = count_calls(make_step(method, **options))
    assert calls.total() <= most, calls.most_common(15)
    assert calls["/core/tensor_checks.py:check_batch"] <= 2  # by the task and by the method's function


def test_the_count_sees_every_call() -> None:
    task = automix.create_task("vanilla", nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4)))
    calls = count_calls(lambda: task(torch.randn(2, 3, 8, 8), torch.tensor([0, 1])))
    assert calls["/tasks/task.py:forward"] == 1
    assert isinstance(task, Task)
