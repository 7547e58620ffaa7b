"""FSDP2: student, teacher and Mix Block sharded over two processes train as one process does."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.slow  # every process imports torch's distributed checkpoints

EXAMPLE = Path(__file__).parents[1] / "examples" / "fsdp_loop.py"
TORCHRUN = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def train(start: list[str], out: Path, method: str, stop: int = 4) -> dict[str, torch.Tensor]:
    command = [sys.executable, *start, str(EXAMPLE), "--method", method, "--stop", str(stop), "--out", str(out)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return torch.load(out / "weights.pt", weights_only=True)


@pytest.mark.parametrize("method", ["automix", "puzzlemix", "mixup"])
def test_two_sharded_processes_equal_one(method: str, tmp_path: Path) -> None:
    """Within 1e-12 in float64: only the order of the sums may differ."""
    one = train([], tmp_path / "one", method)
    two = train(TORCHRUN, tmp_path / "two", method)
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-12, atol=1e-12)


def test_a_sharded_checkpoint_continues_in_one_process(tmp_path: Path) -> None:
    """Step, teacher, momentum and draws are those of a run without interruption."""
    whole = train([], tmp_path / "whole", "automix")
    train(TORCHRUN, tmp_path / "run", "automix", stop=2)
    continued = train([], tmp_path / "run", "automix")
    for name, value in whole.items():
        torch.testing.assert_close(continued[name], value, rtol=1e-12, atol=1e-12)
