"""Two processes under torchrun, through the real command line, against one process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from automix.runs.folder import RunFolder

LINE = "--epochs 2 --batch-size 12 --lr 0.01 --checkpoint-minutes 0"
NETWORK = "--model-options.layers [1,1,1,1] --model-options.channels [8,8,8,8] --model-options.norm_layer groupnorm1"


def run(command: list[str]) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_folder_in_use_is_refused_by_all_processes(photos: Path, tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words = ["-m", "automix", "train", str(photos), "--out", str(tmp_path / "run"), *LINE.split(), *NETWORK.split()]
    with RunFolder(tmp_path / "run").lock():
        done = subprocess.run(
            [*torchrun, *words], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False
        )
    assert done.returncode != 0
    assert f"automix: {tmp_path}/run: another process is training in this folder" in done.stderr
    assert f"automix: {tmp_path}/run: the main process of this run was refused the folder" in done.stderr
    assert "Traceback" not in done.stderr.split("torch/distributed")[0]


@pytest.mark.parametrize("method", ["automix", "mixup_or_cutmix"])
def test_two_processes_match_one(method: str, photos: Path, tmp_path: Path) -> None:
    """Two processes draw what one process draws that accumulates two pieces: equal up to the rounding of the sums.

    The network has no BatchNorm, whose running statistics are those of the first process's images.
    """
    words = ["-m", "automix", "train", str(photos), "--method", method, *LINE.split(), *NETWORK.split()]
    run([sys.executable, *words, "--out", str(tmp_path / "one"), "--accumulate", "2"])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    text = run([*torchrun, *words, "--out", str(tmp_path / "two")])
    assert text.count("epoch   2/2") == 1  # one process speaks
    one, two = (load_file(tmp_path / name / "checkpoint.safetensors") for name in ("one", "two"))
    assert one.keys() == two.keys()
    for name in one:
        torch.testing.assert_close(one[name], two[name], rtol=1e-4, atol=1e-5)


def test_processes_is_torchrun_without_its_command_line(photos: Path, tmp_path: Path) -> None:
    """The same run once under torchrun and once with --processes, then continued by --resume auto."""
    words = ["-m", "automix", "train", str(photos), "--method", "mixup", *LINE.split(), *NETWORK.split()]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    run([*torchrun, *words, "--out", str(tmp_path / "torchrun")])
    own = [sys.executable, *words, "--out", str(tmp_path / "own"), "--processes", "2", "--resume", "auto"]
    text = run(own)
    assert text.count("epoch   2/2") == 1
    assert "2 processes" in text
    one, two = (load_file(tmp_path / name / "checkpoint.safetensors") for name in ("torchrun", "own"))
    assert all(torch.equal(one[name], two[name]) for name in one)
    assert "resumed after step" in run(own)  # finished: the same command ends at once


def test_errors_of_processes_are_one_line(photos: Path, tmp_path: Path) -> None:
    words = ["-m", "automix", "train", str(photos), "--out", str(tmp_path / "run"), *LINE.split(), *NETWORK.split()]
    with RunFolder(tmp_path / "run").lock():
        done = subprocess.run(
            [sys.executable, *words, "--processes", "2"], capture_output=True, text=True, check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    assert done.returncode == 2
    refusal = "another process is training in this folder; use another --out"
    assert done.stderr.strip() == f"automix: {tmp_path}/run: {refusal}"
