"""The end of a process group: none of its threads may outlive it, or the process hangs or aborts when it leaves."""

import importlib
import os
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from automix.training import distributed
from automix.training.distributed import ProcessLostError, process_group

pytestmark = pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the names of threads in /proc")
FUNCTIONAL = "torch.distributed.nn.functional"


@pytest.fixture(autouse=True)
def _torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of one of two processes, in which the group has this process alone."""
    for name, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(distributed, "rendezvous", lambda *_, **__: iter([(dist.HashStore(), 0, 1)]))


def threads_of_gloo() -> list[str]:
    found = []
    for thread in os.listdir("/proc/self/task"):
        name = Path(f"/proc/self/task/{thread}/comm").read_text().strip()
        found += [name] if "gloo" in name else []
    return found


def train_a_step(error: Exception | None = None) -> None:
    network = DistributedDataParallel(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    network.myself = network  # a cycle, as hooks and closures make
    network(torch.randn(4, 3)).sum().backward()
    assert threads_of_gloo()
    if error is not None:
        raise error


def test_threads_end_with_the_group() -> None:
    with process_group("cpu"):
        train_a_step()
    assert not dist.is_initialized()
    assert threads_of_gloo() == []


@pytest.mark.parametrize(
    ("error", "seen"),
    [
        (ValueError("a wrong value"), ValueError),
        (KeyboardInterrupt(), KeyboardInterrupt),
        (RuntimeError("gloo: connection closed by peer"), ProcessLostError),
    ],
)
def test_threads_end_with_the_group_after_an_error(error: Exception, seen: type[Exception]) -> None:
    """While the error, whose traceback has the variables of the training, is still there."""
    with pytest.raises(seen) as caught, process_group("cpu"):
        train_a_step(error)
    assert caught.value is error or caught.value.__cause__ is error
    assert not dist.is_initialized()
    assert threads_of_gloo() == []


def test_no_default_argument_keeps_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """torch.compile, which DistributedDataParallel imports, imports functions that have the group as a default."""
    monkeypatch.delitem(sys.modules, FUNCTIONAL)
    with process_group("cpu"):
        importlib.import_module(FUNCTIONAL)
        train_a_step()
    assert threads_of_gloo() == []
