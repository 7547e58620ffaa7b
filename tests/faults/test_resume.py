"""A run that is killed and resumed ends with the same bytes, for every method, wherever it was killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import automix
from automix.runs.folder import RunFolder
from faults.conftest import Record
from faults.runs import configure, digest, train_apart, train_in_two, train_killed

pytestmark = pytest.mark.slow

# The checkpoint from which the run goes on: nine steps, three an epoch.
PLACES = {"first step": 1, "mid-epoch": 4, "epoch end": 6, "last step": 8}


@pytest.mark.parametrize("method", automix.methods())
def test_every_method_at_every_place(method: str, photos: Path, tmp_path: Path, record: Record) -> None:
    # +MP gives every method a teacher, so that there is one to lose
    whole = configure(photos, tmp_path / "whole", method, ema=method != "automix")
    train_apart(whole)
    wanted = digest(whole.folder)
    found = {}
    for place, step in PLACES.items():
        config = configure(photos, tmp_path / place, method, ema=method != "automix")
        train_killed(config, after=step)
        assert saved_step(config.folder) == step
        train_apart(config)
        found[place] = digest(config.folder)
    lost = [place for place in PLACES if found[place] != wanted]
    record(f"SIGKILL, then --resume: {method}", len(PLACES), len(PLACES) - len(lost), ", ".join(lost) or "nothing")
    assert not lost


@pytest.mark.parametrize("method", ["automix", "mixup_or_cutmix", "puzzlemix"])
def test_two_processes_at_every_place(method: str, photos: Path, tmp_path: Path, record: Record) -> None:
    whole = configure(photos, tmp_path / "whole", method)
    assert train_in_two(whole) == [0, 0]
    wanted = digest(whole.folder)
    found = {}
    for place, step in PLACES.items():
        config = configure(photos, tmp_path / place, method)
        assert train_in_two(config, kill_after=step)[0] == -signal.SIGKILL
        assert saved_step(config.folder) == step
        assert train_in_two(config) == [0, 0]
        found[place] = digest(config.folder)
    lost = [place for place in PLACES if found[place] != wanted]
    record(
        f"2 processes: SIGKILL, then --resume: {method}",
        len(PLACES),
        len(PLACES) - len(lost),
        ", ".join(lost) or "nothing",
    )
    assert not lost


def test_torchrun_goes_on_after_sigterm(photos: Path, tmp_path: Path, record: Record) -> None:
    """The same through the command line: torchrun passes SIGTERM on, both processes agree on the step, one saves."""
    train_in_two(configure(photos, tmp_path / "whole"))
    config = configure(photos, tmp_path / "cut")
    config.folder.mkdir()
    config.save(tmp_path / "config.yaml")
    line = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "automix"]
    line += ["train", "--config", str(tmp_path / "config.yaml"), "--resume"]
    with subprocess.Popen(
        line, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE, text=True
    ) as process:
        while process.poll() is None and not (config.folder / "checkpoint.safetensors").exists():
            pass
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert 0 < saved_step(config.folder) < 9
    subprocess.run(line, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=True, capture_output=True, timeout=120)
    same = digest(config.folder) == digest(tmp_path / "whole")
    record("torchrun, 2 processes: SIGTERM, then --resume", 1, int(same), "nothing" if same else "the digest differs")
    assert same


def saved_step(folder: Path) -> int:
    return int(RunFolder(folder).read_checkpoint().facts["step"])
