"""Two processes under torchrun give the gradients of one process on the whole batch."""

import os
import subprocess
import sys
from pathlib import Path

import torch
from conftest import batch
from ddp_worker import make_task

from automix import AutoMix
from automix.core.draws import step_generator
from automix.methods.automix.pairs import Pairs


def test_two_ranks_equal_one_process_on_the_global_batch(tmp_path: Path) -> None:
    """Within 1e-10 in float64: only the order of the sums differs."""
    out = tmp_path / "gradients.pt"
    worker = Path(__file__).with_name("ddp_worker.py")
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        str(worker),
        str(out),
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(launch, env=environment, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    distributed = torch.load(out, weights_only=True)

    task = make_task()
    x, y = batch(8)
    x = x.double()
    drawn = iter([one_process_pairs(task, x, which) for which in (0, 1)])
    task.draw = lambda *args, **options: next(drawn)  # type: ignore[method-assign]
    task.training_step(x, y, step_generator(0, 0)).loss.backward()
    expected = {name: p.grad for name, p in task.named_parameters() if p.grad is not None}
    assert distributed.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(distributed[name], gradient, rtol=1e-10, atol=1e-12)


def one_process_pairs(task: AutoMix, x: torch.Tensor, which: int) -> Pairs:
    """What the two ranks drew for their shards (samples rank, rank + 2, ...), as pairs of the global batch."""
    lam, index = torch.empty(len(x), dtype=x.dtype), torch.empty(len(x), dtype=torch.int64)
    for rank in (0, 1):
        generator = step_generator(0, 0, rank)
        shard = x[rank::2]
        drawn = [task.draw(shard, generator) for _ in range(2)][which]
        lam[rank::2] = drawn.lam
        index[rank::2] = drawn.index * 2 + rank
    return Pairs(lam, index)
