"""Two processes, one of which is killed: the other says so and ends, and torchrun starts both again where they were."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors import safe_open

from automix.runs.checkpoint import read_checkpoint
from faults.conftest import Record
from faults.runs import CHECKPOINT, digest

pytestmark = pytest.mark.slow

LINE = "--batch-size 12 --epochs 20 --lr 0.01 --checkpoint-minutes 0 --eval-every 20 --device cpu"
NETWORK = "--model-options.layers [1,1,1,1] --model-options.channels [8,8,8,8]"
STEPS = 60
LIMIT = 60  # seconds in which the survivor has to end


def words(photos: Path, out: Path) -> list[str]:
    return ["-m", "automix", "train", str(photos), "--out", str(out), "--resume", *LINE.split(), *NETWORK.split()]


def wait_for(what: Callable[[], bool], *processes: "subprocess.Popen[str]") -> None:
    """However long it takes, while the processes live."""
    while not what():
        assert all(process.poll() is None for process in processes), "a process ended before what was waited for"
        time.sleep(0.02)


def step_of(folder: Path) -> int:
    """Of the checkpoint; 0 before the first one, and for the moment in which the next takes its place."""
    try:
        with safe_open(folder / CHECKPOINT, framework="pt") as file:
            return int(json.loads(file.metadata()["automix"])["facts"]["step"])
    except (FileNotFoundError, RuntimeError):  # safetensors' own words for a file that goes while it is opened
        return 0


# --- without torchrun's help: a survivor on its own -------------------------------------------------------------------


def start(rank: int, port: int, arguments: list[str]) -> "subprocess.Popen[str]":
    place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
    meeting = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.Popen(command, env={**os.environ, **place, **meeting}, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("killed", [0, 1])
def test_the_survivor_ends_with_a_line(killed: int, photos: Path, tmp_path: Path, record: Record) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    pair = [start(rank, port, words(photos, tmp_path / "run")) for rank in (0, 1)]
    try:
        wait_for(lambda: step_of(tmp_path / "run") >= 3, *pair)
        pair[killed].kill()
        begin = time.monotonic()
        error = pair[1 - killed].communicate(timeout=LIMIT)[1]
        seconds = time.monotonic() - begin
    finally:
        for process in pair:
            process.kill()
            process.communicate()
    assert pair[killed].returncode == -signal.SIGKILL
    assert pair[1 - killed].returncode == 1
    said = [line for line in error.splitlines() if line.startswith("automix: ")]
    assert len(said) == 1, error
    assert f"process {1 - killed} of 2 lost another one" in said[0]
    assert "Traceback" not in error
    assert 3 <= read_checkpoint(tmp_path / "run" / CHECKPOINT).facts["step"] < STEPS
    record(
        f"SIGKILL of process {killed} of 2", 1, 1, f"the other ended with a line after {seconds:.1f} s; 1 step at most"
    )


# --- under torchrun ---------------------------------------------------------------------------------------------------


def torchrun(arguments: list[str], restarts: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return subprocess.Popen(
        [*command, "--max-restarts", str(restarts), "--monitor-interval", "0.1", *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def worker(agent: int, rank: int) -> int | None:
    """The process id of torchrun's worker `rank`, if it is there."""
    for child in Path(f"/proc/{agent}/task/{agent}/children").read_text().split():
        try:
            environment = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        except OSError:  # it has just ended
            continue
        if f"RANK={rank}".encode() in environment:
            return int(child)
    return None


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds torchrun's workers in /proc")
def test_torchrun_restarts_both_from_the_checkpoint(photos: Path, tmp_path: Path, record: Record) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    undisturbed = torchrun(words(photos, whole), restarts=0)
    error = undisturbed.communicate(timeout=300)[1]
    assert undisturbed.returncode == 0, error

    agent = torchrun(words(photos, killed), restarts=2)
    try:
        victims: list[int] = []
        for rank, after in ((1, 5), (0, 20)):
            wait_for(lambda after=after: step_of(killed) >= after, agent)  # type: ignore[misc]
            victim = worker(agent.pid, rank)
            assert victim is not None, "the run ended before it could be killed"
            os.kill(victim, signal.SIGKILL)
            victims.append(victim)
        out, error = agent.communicate(timeout=300)
    finally:
        agent.terminate()  # and its workers by it
        agent.communicate()
    assert agent.returncode == 0, error
    assert len(set(victims)) == 2
    assert out.count("resumed after step") == 2
    assert digest(killed) == digest(whole)
    record("SIGKILL of a process under torchrun --max-restarts", 2, 2, "nothing: same digest as the undisturbed run")
