"""The same cells through other engines: the real ones where they are installed, and one line where they are not."""

import importlib
import importlib.util
import json
import os
import re
import sys
from pathlib import Path

import pytest

from automix.cli.bench import RunsFailedError
from automix.cli.main import execute

SMALL = [
    *("--set", "epochs=1", "batch_size=6", "per_class=1", "train_size=16", "test_size=16", "workers=0", "device=cpu"),
    *("model_options.layers=[1,1,1,1]", "model_options.channels=[8,8,8,8]", "eval_every=1"),
]
LINE = ["replica", "--methods", "vanilla", "mixup", "--columns", "shapes", "--trials", "1", *SMALL]


def missing(package: str) -> bool:
    return importlib.util.find_spec(package) is None


def numbers(out: Path) -> list[float]:
    content = json.loads((out / "replica-changed.json").read_text())
    rows = next(column for column in content["columns"] if column["name"] == "shapes")["rows"]
    return [row[network]["mean"] for row in rows if row["student"] for network in ("student", "teacher")]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """What the grid gives in this process."""
    out = tmp_path_factory.mktemp("here")
    execute(["bench", *LINE, "--out", str(out)])
    found = numbers(out)
    assert len(found) == 4
    return found


def use(launcher: str, *options: str) -> list[str]:
    return ["--launcher", launcher, *(["--launcher-options", *options] if options else [])]


def test_processes_do_the_same(
    here: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # a thread each, as in these tests
    execute(["bench", *LINE, *use("local", "processes=2"), "--out", str(tmp_path / "sound")])
    assert numbers(tmp_path / "sound") == here
    with pytest.raises(RunsFailedError, match=r"2 of 2 runs failed, .* not finite"):
        execute(["bench", *LINE, "lr=1e25", *use("local", "processes=2"), "--out", str(tmp_path / "failing")])
    assert re.search(r"\[2/2\] .* FAILED: .*not finite", capsys.readouterr().out)


@pytest.mark.skipif(missing("submitit"), reason="submitit is not installed")
@pytest.mark.filterwarnings("ignore")  # submitit leaves its log files open
def test_submitit_does_the_same(here: list[float], tmp_path: Path) -> None:
    execute(["bench", *LINE, *use("slurm", "cluster=debug"), "--out", str(tmp_path)])
    assert numbers(tmp_path) == here


@pytest.mark.skipif(missing("submitit"), reason="submitit is not installed")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_submitit_in_another_process(
    here: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run that ends well; then one more whose loss is not finite."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one = [word for word in LINE if word != "mixup"]
    execute(["bench", *one, *use("slurm", "cluster=local"), "--out", str(tmp_path / "sound")])
    assert numbers(tmp_path / "sound") == here[:2]
    with pytest.raises(RunsFailedError, match="1 of 1 runs failed"):
        execute(["bench", *one, "lr=1e25", *use("slurm", "cluster=local"), "--out", str(tmp_path / "failing")])
    assert re.search(r"FAILED: .*not finite", capsys.readouterr().out)


@pytest.mark.skipif(missing("ray"), reason="ray is not installed")
@pytest.mark.filterwarnings("ignore")
def test_ray_does_the_same(here: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ray = importlib.import_module("ray")

    try:
        execute(["bench", *LINE, *use("ray"), "--out", str(tmp_path / "sound")])
        assert numbers(tmp_path / "sound") == here
        with pytest.raises(RunsFailedError, match=r"2 of 2 runs failed, .* not finite"):
            execute(["bench", *LINE, "lr=1e25", *use("ray", "num_cpus=2"), "--out", str(tmp_path / "failing")])
    finally:
        ray.shutdown()


@pytest.mark.parametrize(("launcher", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_engine_gets_one_line(
    launcher: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f"^needs {package}: pip install {package}$"):
        execute(["bench", *LINE, *use(launcher), "--out", str(tmp_path)])


@pytest.mark.skipif(missing("submitit"), reason="submitit is not installed")
def test_slurm_without_slurm_gets_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="launcher slurm: no sbatch on this machine; accepted is local"):
        execute(["bench", *LINE, *use("slurm"), "--out", str(tmp_path / "out")])


@pytest.mark.parametrize(
    ("option", "complaint"),
    [
        ("gpus=1", "launcher options gpus: accepted is processes for the launcher local"),
        ("processes=0", "processes=0: accepted is a whole number >= 1"),
        ("processes=many", "processes=many: accepted is a whole number >= 1"),
    ],
)
def test_wrong_options_of_the_local_launcher(option: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(complaint)}"):
        execute(["bench", *LINE, *use("local", option), "--out", str(tmp_path)])
