"""The examples for Slurm and SkyPilot: they are well-formed, name flags that exist, and queue a stopped job again."""

import inspect
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from automix.cli.train import train
from automix.runs import TrainConfig

EXAMPLES = Path(__file__).parents[1] / "examples"
SLURM, SKYPILOT = EXAMPLES / "slurm_requeue.sh", EXAMPLES / "skypilot.yaml"


@pytest.mark.parametrize("file", [SLURM, SKYPILOT], ids=lambda file: file.name)
def test_flags_of_automix_exist(file: Path) -> None:
    settings = [*inspect.signature(train).parameters, *TrainConfig.flat_names()]
    known = {f"--{name.replace('_', '-')}" for name in settings}
    code = "\n".join(line for line in file.read_text().splitlines() if not line.startswith("#"))
    command = code.replace("\\\n", " ").partition("automix train ")[2].partition("\n")[0]
    named = re.findall(r"--[a-z][\w-]*", command)
    assert {"--out", "--resume", "--processes"} <= set(named) <= known
    assert "--resume auto" in command


def test_the_file_for_skypilot_is_a_task() -> None:
    task = yaml.safe_load(SKYPILOT.read_text())
    assert task.keys() == {"name", "resources", "workdir", "file_mounts", "envs", "setup", "run"}
    assert task["resources"]["use_spot"] is True
    (folder,) = task["file_mounts"]
    assert f'--out "{folder}/' in task["run"]
    subprocess.run(["bash", "-n"], input=task["run"], text=True, check=True)


STAND_IN = """#!/bin/bash
trap 'echo saved >> "$LOG"; exit 143' TERM
echo "$@" >> "$LOG"
[ "$TAKES" = 0 ] && exit 7
sleep "$TAKES" & wait
"""


def start(tmp_path: Path, takes: str) -> tuple["subprocess.Popen[str]", Path]:
    """The script of Slurm with stand-ins for automix and scontrol, which note how they were called."""
    log = tmp_path / "log"
    for name, text in {"automix": STAND_IN, "scontrol": '#!/bin/bash\necho "scontrol $*" >> "$LOG"\n'}.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "LOG": str(log), "TAKES": takes}
    environment |= {"SLURM_JOB_ID": "17", "SLURM_GPUS_ON_NODE": "2"}
    return subprocess.Popen(["bash", str(SLURM), "my photos/", "runs/x"], env=environment, text=True), log


def test_a_job_that_is_stopped_saves_and_is_queued_again(tmp_path: Path) -> None:
    job, log = start(tmp_path, takes="60")
    while not (log.exists() and log.read_text()):
        assert job.poll() is None, "the job ended before it could be stopped"
        time.sleep(0.05)
    job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=60) == 0
    called = "train my photos/ --out runs/x --resume auto --processes 2"
    assert log.read_text().splitlines() == [called, "saved", "scontrol requeue 17"]


def test_a_job_that_fails_is_not_queued_again(tmp_path: Path) -> None:
    job, log = start(tmp_path, takes="0")
    assert job.wait(timeout=60) == 7
    assert "scontrol" not in log.read_text()
