"""Every method trains on a device that is not the host, and a step never waits for it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import batch
from fake_device import make_task

import automix

HERE = Path(__file__).parent

RULES = """
import conftest, fake_device, torch
fake_device.register_device()
x = fake_device.DeviceTensor(torch.ones(3))
with fake_device.Device() as device:
    x.sum().item()
    x.to("cpu")
    x + torch.ones(3).to("fake")
    x + torch.ones(())
    assert device.copies == 1 and sum(device.reads.values()) == 2, (device.copies, device.reads)
    for wrong in (lambda: x + torch.ones(3), lambda: torch.rand(3, device="fake", generator=torch.Generator())):
        try:
            wrong()
        except RuntimeError:
            continue
        raise SystemExit("the device does not mind")
"""


def run(*arguments: str) -> str:
    """In a process of its own: the device stays registered for the life of a process."""
    paths = [str(HERE), str(HERE.parent / "src"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def steps() -> dict[str, dict[str, Any]]:
    lines = run(str(HERE / "fake_device.py"), *automix.methods()).splitlines()
    return {(line := json.loads(text))["method"]: line for text in lines}


def test_the_device_obeys_its_rules() -> None:
    run("-c", RULES)


@pytest.mark.parametrize("name", automix.methods())
def test_a_step_on_the_device_is_that_on_the_host(name: str, steps: dict[str, dict[str, Any]]) -> None:
    found = steps[name]
    assert "error" not in found, found
    assert found["reads"] == {}  # a step waits for nothing; what is logged is read by the loop, all at once
    task = make_task(name)
    optimizer = automix_sgd(task)
    for step in range(3):
        out = task(*batch())
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        task.update(step / 4)
    assert found["loss"] == pytest.approx(out.loss.item(), rel=1e-4)


def automix_sgd(task: automix.Task) -> Any:
    from torch.optim import SGD

    return SGD(task.param_groups(lr=0.1), momentum=0.9, foreach=False)
