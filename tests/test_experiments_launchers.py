"""The same cells through each launcher, where it is installed, and a one-line error where it is not."""

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
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The numbers of the grid in this process."""
    out = tmp_path_factory.mktemp("expected")
    execute(["bench", *LINE, "--out", str(out)])
    found = numbers(out)
    assert len(found) == 4
    return found


def use(launcher: str, *options: str) -> list[str]:
    return ["--launcher", launcher, *(["--launcher-options", *options] if options else [])]


def test_processes_give_the_same_numbers(
    expected: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)  # a thread each, as in these tests
    execute(["bench", *LINE, *use("local", "processes=2"), "--out", str(tmp_path / "sound")])
    assert numbers(tmp_path / "sound") == expected
    with pytest.raises(RunsFailedError, match=r"2 of 2 runs failed, .* not finite"):
        execute(["bench", *LINE, "lr=1e25", *use("local", "processes=2"), "--out", str(tmp_path / "failing")])
    assert re.search(r"\[2/2\] .* FAILED: .*not finite", capsys.readouterr().out)


@pytest.mark.skipif(missing("submitit"), reason="submitit is not installed")
@pytest.mark.filterwarnings("ignore")  # submitit leaves its log files open
def test_submitit_gives_the_same_numbers(expected: list[float], tmp_path: Path) -> None:
    execute(["bench", *LINE, *use("slurm", "cluster=debug"), "--out", str(tmp_path)])
    assert numbers(tmp_path) == expected


@pytest.mark.skipif(missing("submitit"), reason="submitit is not installed")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_submitit_in_another_process(
    expected: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One run that ends well; then one more whose loss is not finite."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    one = [word for word in LINE if word != "mixup"]
    execute(["bench", *one, *use("slurm", "cluster=local"), "--out", str(tmp_path / "sound")])
    assert numbers(tmp_path / "sound") == expected[:2]
    with pytest.raises(RunsFailedError, match="1 of 1 runs failed"):
        execute(["bench", *one, "lr=1e25", *use("slurm", "cluster=local"), "--out", str(tmp_path / "failing")])
    assert re.search(r"FAILED: .*not finite", capsys.readouterr().out)


@pytest.mark.skipif(missing("ray"), reason="ray is not installed")
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_numbers(expected: list[float], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ray = importlib.import_module("ray")

    try:
        execute(["bench", *LINE, *use("ray"), "--out", str(tmp_path / "sound")])
        assert numbers(tmp_path / "sound") == expected
        with pytest.raises(RunsFailedError, match=r"2 of 2 runs failed, .* not finite"):
            execute(["bench", *LINE, "lr=1e25", *use("ray", "num_cpus=2"), "--out", str(tmp_path / "failing")])
    finally:
        ray.shutdown()


@pytest.mark.parametrize(("launcher", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_missing_package_is_named(launcher: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=f"pip install {package}"):
        execute(["bench", *LINE, *use(launcher), "--out", str(tmp_path)])


@pytest.mark.skipif(missing("submitit"), reason="submitit is not installed")
def test_slurm_needs_sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match=r"slurm.*sbatch"):
        execute(["bench", *LINE, *use("slurm"), "--out", str(tmp_path / "out")])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("gpus=1", "local.*processes.*gpus"),
        ("processes=0", "processes.*1"),
        ("processes=many", "processes.*1"),
    ],
)
def test_wrong_options_of_the_local_launcher(option: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        execute(["bench", *LINE, *use("local", option), "--out", str(tmp_path)])
