"""A long chain of kills, some inside a save that is made slow; and the polite signals, through the command line."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import pytest

from automix.runs.checkpoint import read_checkpoint
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder
from automix.training import train
from faults.conftest import Record
from faults.runs import CHECKPOINT, configure, digest, fork, train_apart

pytestmark = pytest.mark.slow

KILLS = 100


def train_slowly_saving(config: TrainConfig) -> None:
    """Every file takes its time to reach the disk, and to get its name."""
    fsync, replace = os.fsync, os.replace

    def slow_fsync(descriptor: int) -> None:
        time.sleep(0.03)
        fsync(descriptor)

    def slow_replace(source: Any, target: Any) -> None:
        replace(source, target)
        time.sleep(0.03)

    os.fsync, os.replace = slow_fsync, slow_replace  # type: ignore[assignment]
    train(config, resume=True)


def leftovers(folder: Path) -> list[str]:
    """The hidden files in a run folder, except its lock."""
    return [path.name for path in folder.rglob(".*") if path.is_file() and path.name != ".lock"]


def temporary_files(folder: Path, process: int | None) -> list[Path]:
    return list(folder.glob(f".{process}-*"))


def wait_for_a_save(path: Path, child: ForkProcess) -> None:
    """Until the checkpoint at `path` is another one than now."""
    before = read_time(path)
    wait_until(lambda: read_time(path) != before, child)


def wait_until(happened: Callable[[], object], child: ForkProcess) -> None:
    """However long it takes, while the child lives."""
    while not happened() and child.is_alive():
        time.sleep(0.002)


def read_time(path: Path) -> int | None:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return None


def test_a_chain_of_kills(photos: Path, tmp_path: Path, record: Record) -> None:
    """Each child goes on where the last one was killed; in the end the run is left to finish."""
    whole, killed = (configure(photos, tmp_path / name, epochs=80) for name in ("whole", "killed"))
    chance = random.Random(8)
    kills = unreadable = inside = steps = 0
    while kills < KILLS:
        child = fork(train_slowly_saving, killed)
        # at any time, be it before the first step; or soon after a save; or inside one
        if kills % 3 == 1:
            wait_for_a_save(killed.folder / CHECKPOINT, child)
        elif kills % 3 == 2:
            wait_until(lambda child=child: temporary_files(killed.folder, child.pid), child)  # type: ignore[misc]
        time.sleep(chance.uniform(0, (1.5, 0.25, 0.06)[kills % 3]))
        child.kill()
        child.join()
        assert child.exitcode == -signal.SIGKILL, "the run failed, or ended before the chain"
        kills += 1
        inside += bool(temporary_files(killed.folder, child.pid))
        assert len(leftovers(killed.folder)) <= 2, "what dead processes left behind piles up"
        if RunFolder(killed.folder).has_checkpoint:
            assert (killed.folder / CHECKPOINT).exists(), "a moment without a checkpoint at its path"
            try:
                now = int(read_checkpoint(killed.folder / CHECKPOINT).facts["step"])
                assert now >= steps, "work that was saved is lost"
                steps = now
            except ValueError:
                unreadable += 1
    train_apart(killed)
    train_apart(whole)
    same = digest(whole.folder) == digest(killed.folder)
    seen = f"{inside} kills inside a save; {unreadable} checkpoints unreadable"
    record(
        "a chain of SIGKILLs in one run", kills, kills - unreadable, f"{'nothing' if same else 'the digest'}: {seen}"
    )
    assert unreadable == 0
    assert same
    assert inside >= KILLS // 10
    assert leftovers(killed.folder) == []


def start(photos: Path, out: Path, *options: str) -> "subprocess.Popen[str]":
    """`automix train` as a person starts it, with a checkpoint only when it is asked to leave."""
    network = ["--model-options.layers", "[1,1,1,1]", "--model-options.channels", "[8,8,8,8]"]
    line = ["train", str(photos), "--out", str(out), "--epochs", "100000", "--batch-size", "12", *network, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-m", "automix", *line],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )


def wait_for_steps(folder: Path, process: "subprocess.Popen[str]") -> None:
    while not (folder / "metrics.jsonl").exists() or not (folder / "metrics.jsonl").stat().st_size:
        assert process.poll() is None, "the run ended before its first metrics"
        time.sleep(0.05)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_polite_signal(number: signal.Signals, code: int, photos: Path, tmp_path: Path, record: Record) -> None:
    with start(photos, tmp_path / "run") as process:
        wait_for_steps(tmp_path / "run", process)
        process.send_signal(number)
        asked = time.monotonic()
        error = process.communicate(timeout=60)[1]
        seconds = time.monotonic() - asked
    step = int(read_checkpoint(tmp_path / "run" / CHECKPOINT).facts["step"])
    assert f"stopped after step {step} of" in error
    assert error.count("\n") == 1
    survived = process.returncode == code
    record(
        f"{number.name}", 1, int(survived), f"nothing: saved and left in {seconds:.1f} s with code {process.returncode}"
    )
    assert survived


def test_two_ctrl_c(photos: Path, tmp_path: Path, record: Record) -> None:
    """The second one does not wait for the save, and leaves the checkpoint that was there."""
    with start(photos, tmp_path / "run", "--checkpoint-minutes", "0") as process:
        wait_for_steps(tmp_path / "run", process)
        process.send_signal(signal.SIGINT)
        time.sleep(0.02)  # two that arrive together are one
        process.send_signal(signal.SIGINT)
        asked = time.monotonic()
        error = process.communicate(timeout=60)[1]
        seconds = time.monotonic() - asked
    assert error.count("\n") == 1
    assert read_checkpoint(tmp_path / "run" / CHECKPOINT).facts["step"] > 0
    survived = process.returncode == 130
    record("SIGINT twice", 1, int(survived), f"since the last checkpoint; left in {seconds:.1f} s with code 130")
    assert survived


def test_a_signal_before_the_first_step(photos: Path, tmp_path: Path, record: Record) -> None:
    """While data are read there is nothing to save, and no reason to stay."""
    with start(photos, tmp_path / "run") as process:
        while process.poll() is None and not (tmp_path / "run").exists():
            time.sleep(0.005)  # the folder is made before the data is read
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    record("SIGTERM at the start", 1, int(process.returncode == 143), "nothing")
    assert process.returncode == 143
