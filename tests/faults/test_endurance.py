"""Two thousand steps: memory, open files and threads stay as they were after a few hundred, and files grow evenly."""

import json
import multiprocessing
import os
import statistics
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from automix.runs.config import TrainConfig
from automix.runs.recipes import find_recipe
from automix.training import Silent, train
from automix.training.run import Run
from faults.conftest import Record

pytestmark = pytest.mark.slow

STEPS = 2000
WARM = 600  # steps after which every cache is full, every picture has been drawn once
EVERY = 20  # steps between two looks
MEGABYTES = 8.0  # that may come and go: the allocator's own
BYTES_PER_NUMBER = 200  # in TensorBoard's file


def look(run: Run) -> dict[str, float]:
    """What this process holds now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "step": run.step,
        "megabytes": pages * os.sysconf("SC_PAGE_SIZE") / 2**20,
        "files": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
        "metrics": run.folder.metrics.stat().st_size,
    }


class Watch(Silent):
    """Looks every so many steps."""

    def __init__(self) -> None:
        self.seen: list[dict[str, float]] = []

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        if run.step % EVERY == 0:
            self.seen.append(look(run))


def train_and_watch(method: str, out: Path) -> None:
    torch.set_num_threads(1)
    settings = replace(find_recipe("quick"), epochs=40, batch_size=4, train_size=16, lr=0.01)
    config = TrainConfig(
        data="shapes",
        method=method,
        out=str(out),
        classes=4,
        per_class=50,
        model_options={"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]},
        eval_every=10,
        checkpoint_minutes=0.05,
        device="cpu",
        settings=settings,
    )
    watch = Watch()
    train(config, display=watch)
    (out / "watch.json").write_text(json.dumps(watch.seen))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
@pytest.mark.parametrize("method", ["automix", "mixup", "puzzlemix", "manifoldmix"])
def test_nothing_piles_up(method: str, tmp_path: Path, record: Record) -> None:
    # a process of its own, newly started: nothing of the test suite is in its memory
    child = multiprocessing.get_context("spawn").Process(target=train_and_watch, args=(method, tmp_path / "run"))
    child.start()
    child.join(timeout=900)
    child.kill()
    assert child.exitcode == 0
    seen = json.loads((tmp_path / "run" / "watch.json").read_text())
    assert seen[-1]["step"] == STEPS
    middle = [at for at in seen if WARM <= at["step"] < (WARM + STEPS) / 2]
    late = [at for at in seen if at["step"] >= (WARM + STEPS) / 2]

    before, after = (statistics.median(at["megabytes"] for at in part) for part in (middle, late))
    assert after - before < MEGABYTES, f"memory grew from {before:.1f} to {after:.1f} MB"
    for kind in ("files", "threads"):
        most, more = (max(at[kind] for at in part) for part in (middle, late))
        assert more <= most, f"open {kind}: {most} at first, {more} later"
    check_files(tmp_path / "run", seen)
    figures = f"memory {before:.1f} -> {after:.1f} MB, {late[-1]['files']} files, {late[-1]['threads']} threads open"
    record(f"2,000 steps of {method}", 1, 1, f"nothing: {figures}")


def check_files(folder: Path, seen: list[dict[str, float]]) -> None:
    """Each half of the run writes about as much as the other, and TensorBoard so much for each number.

    The second half writes a little more: the last ten epochs are always evaluated.
    """
    half = next(at["metrics"] for at in seen if at["step"] == STEPS / 2)
    whole = seen[-1]["metrics"]
    assert whole <= 2.6 * half, f"metrics.jsonl: {half} bytes after a half, {whole} at the end"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    numbers = sum(isinstance(value, float) for line in lines for value in line.values())
    events = sum(path.stat().st_size for path in (folder / "tensorboard").iterdir())
    assert events <= BYTES_PER_NUMBER * numbers, f"tensorboard/: {events} bytes for {numbers} numbers"
