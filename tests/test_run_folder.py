"""The run folder: it can be copied and opened anywhere, resumed on moved data, and holds one training at a time."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from faults.runs import configure, digest, fork
from safetensors.torch import load_file, save_file

from automix.cli import main as cli
from automix.core.errors import AutomixError
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder
from automix.runs.metrics import deployed_network, deployed_top1, read_metrics, truncate_metrics
from automix.training import Silent, train
from automix.training.run import Run, check_counts

# --- metrics


def test_lines_that_are_no_records_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    records = [{"kind": "step", "step": 2, "loss": 1.5}, {"kind": "epoch", "step": 3, "epoch": 1, "student_top1": 50.0}]
    path.write_text("\n".join([json.dumps(records[0]), "[1]", '{"step": 3}', json.dumps(records[1]), '{"kind": "ep']))
    found = read_metrics(path)
    assert found.records == records
    assert found.unreadable == [2, 3, 5]
    assert found.of_kind("epoch") == records[1:]
    assert read_metrics(tmp_path / "none").records == []
    assert truncate_metrics(path, 2).records == records[:1]
    assert read_metrics(path) == read_metrics(path).__class__(records[:1], [])


def test_the_teacher_counts_where_there_is_one() -> None:
    student, both = {"student_top1": 40.0}, {"student_top1": 40.0, "teacher_top1": 60.0}
    assert [deployed_network(metrics) for metrics in (student, both)] == ["student", "teacher"]
    assert [deployed_top1(metrics) for metrics in (student, both, {}, {"student_top1": float("nan")})] == [
        40.0,
        60.0,
        None,
        None,
    ]


# --- a folder that was copied to another machine


@pytest.fixture(scope="module")
def moved(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of two of three epochs, copied; its data moved, its start weights deleted, wandb and its GPU missing."""
    root = tmp_path_factory.mktemp("moved")
    data, start = root / "first" / "photos", root / "first" / "start.safetensors"
    shutil.copytree(photos, data)
    train(configure(data, root / "start", epochs=1, method="vanilla"))
    save_file(load_file(root / "start" / "last.safetensors"), start)

    class Cut(Silent):
        def step(self, run: Run, metrics: dict[str, float]) -> None:
            if run.step == 7:  # in the last of three epochs; the checkpoint is that of step 6
                raise InterruptedError

    train(configure(data, root / "whole", weights=str(start)))
    config = configure(data, root / "first" / "run", weights=str(start))
    with pytest.raises(InterruptedError):
        train(config, display=Cut())
    shutil.copytree(root / "first" / "run", root / "run")
    shutil.copytree(root / "whole", root / "finished")
    shutil.move(data, root / "photos")
    for folder in (root / "run", root / "finished"):
        written = (folder / "config.yaml").read_text()
        (folder / "config.yaml").write_text(written.replace("wandb: false", "wandb: true"))
    shutil.rmtree(root / "first")
    return {"run": root / "run", "finished": root / "finished", "photos": root / "photos", "whole": root / "whole"}


def test_reading_a_run_does_not_look_at_the_machine(moved: dict[str, Path]) -> None:
    config = RunFolder(moved["run"]).read_config()
    assert config.folder == moved["run"]
    assert config.wandb
    assert not Path(config.data).exists()
    assert not Path(str(config.weights)).exists()
    TrainConfig(data="no/such/folder", weights="none.safetensors", device="cuda:9", precision="bf16")


@pytest.mark.parametrize(
    "command",
    [
        "evaluate {finished} --data {photos} --on accuracy --out {out}/evaluation",
        "mix {finished} {photos}/test --out {out}/mixed.png",
        "report {finished} --out {out}/report.html",
        "predict {finished} {photos}/test/a",
        "export {finished} --format torchscript --out {out}/classifier",
    ],
)
def test_commands_on_a_copied_run(command: str, moved: dict[str, Path], tmp_path: Path) -> None:
    assert cli.run([word.format(**moved, out=tmp_path) for word in command.split()]) == 0


def test_the_explorer_opens_a_copied_run(moved: dict[str, Path]) -> None:
    from automix.views.explorer.open import open_explorer

    assert open_explorer(str(moved["finished"]), data=str(moved["photos"])).examples


def test_a_copied_run_resumes_on_moved_data(moved: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(moved["run"], run)
    assert cli.run(["train", "--resume", "--out", str(run)]) == 2  # the data is not where it was
    line = ["train", str(moved["photos"]), "--resume", "--out", str(run), "--no-wandb"]
    assert cli.run(line) == 0
    assert digest(run) == digest(moved["whole"])
    assert RunFolder(run).read_config().data == str(moved["photos"])


def test_a_run_resumes_on_as_many_images_only() -> None:
    check_counts(Path("x"), {"training": 3, "testing": 4}, {"training": 3, "testing": 4})
    with pytest.raises(AutomixError, match=r"x: .*4 images for testing.*5"):
        check_counts(Path("x"), {"training": 3, "testing": 4}, {"training": 3, "testing": 5})


def test_alphas_that_go_by_the_dataset_do_not_change_on_the_way(photos: Path, tmp_path: Path) -> None:
    """The paper has one alpha of Mixup for CIFAR and another for Tiny-ImageNet: a folder of another name is refused."""
    for name in ("cifar10", "tiny-imagenet"):
        shutil.copytree(photos, tmp_path / name)
    small = {"epochs": 1, "batch_size": 12, "train_size": 16, "test_size": 16, "checkpoint_minutes": 0, "workers": 0}
    network = {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]}
    values = {"recipe": "cifar", "method": "mixup", "out": str(tmp_path / "run"), "model_options": network, **small}
    train(TrainConfig.from_flat({"data": str(tmp_path / "cifar10"), **values}))
    with pytest.raises(AutomixError, match=r"imagenet: mixup has other options.*alpha"):
        train(TrainConfig.from_flat({"data": str(tmp_path / "tiny-imagenet"), **values}), resume=True)


def test_other_settings_are_refused(moved: dict[str, Path]) -> None:
    config = configure(moved["photos"], moved["run"], lr=0.2, weights=RunFolder(moved["run"]).read_values()["weights"])
    with pytest.raises(AutomixError, match=r"lr=0\.1, got lr=0\.2"):
        train(config, resume=True)


def test_a_mix_block_to_start_from_may_be_deleted(photos: Path, tmp_path: Path) -> None:
    train(configure(photos, tmp_path / "first", epochs=1))
    block = tmp_path / "block.safetensors"
    shutil.copy(tmp_path / "first" / "mix_block.safetensors", block)
    config = configure(photos, tmp_path / "second", method_options={"mix_block": str(block)}, epochs=1)
    train(config)
    block.unlink()
    from automix.training import load_task

    task, _, _ = load_task(config.folder)
    state = load_file(RunFolder(config.folder).checkpoint)
    assert torch.equal(task.state_dict()["mix_block.w_p.weight"], state["/task/mix_block.w_p.weight"])


# --- one training at a time

HOLD = """
import sys
from pathlib import Path
from automix.runs.folder import RunFolder
with RunFolder(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def hold(folder: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_until_the_first_is_gone(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configure(photos, tmp_path / "run", "mixup", epochs=1)
    with hold(config.folder) as first:
        with pytest.raises(AutomixError, match=f"^{config.folder}: another process is training"):
            train(config)
        assert cli.run(["train", str(photos), "--out", str(config.folder)]) == 2
        assert capsys.readouterr().err.count("\n") == 1
        os.kill(first.pid, signal.SIGKILL)
        first.wait()
    train(config)
    with hold(config.folder):
        pass  # its standard input is closed, and it leaves in order
    train(config, overwrite=True)


def test_a_forked_child_does_not_keep_the_folder_locked(tmp_path: Path) -> None:
    """Workers that read images outlive a killed run for some seconds; they must not hold its lock."""
    read, write = os.pipe()
    with RunFolder(tmp_path / "run").lock():
        child = fork(os.read, read, 1)  # lives until there is something to read
    with RunFolder(tmp_path / "run").lock():
        assert child.is_alive()
    os.write(write, b"x")
    child.join()


def test_a_run_that_never_began_leaves_nothing(photos: Path, tmp_path: Path) -> None:
    config = configure(photos, tmp_path / "deep" / "run", "mixup", model_options={"no_such": 1})
    with pytest.raises(AutomixError, match="no_such"):
        train(config)
    assert list(tmp_path.iterdir()) == []


def test_a_file_is_no_run_folder(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("mine")
    with pytest.raises(AutomixError, match=f"{tmp_path}/run: is a file"):
        train(configure(photos, tmp_path / "run", "mixup"))


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_name_that_no_folder_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(AutomixError, match="cannot be the name of a folder"), RunFolder(tmp_path / name).lock():
        pass


@pytest.mark.parametrize(("target", "message"), [("run", "a loop of links"), ("nowhere", "a link to nothing")])
def test_a_link_that_leads_nowhere_is_no_run_folder(target: str, message: str, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "run").symlink_to(target)
    with pytest.raises(AutomixError, match=f"{tmp_path}/run: {message}; give --out a folder"):
        train(configure(photos, tmp_path / "run", "mixup"))
    if target == "run":
        with pytest.raises(AutomixError, match=f"{tmp_path}/run/inside: a loop of links"):
            train(configure(photos, tmp_path / "run" / "inside", "mixup"))


# --- what the settings say


def test_ema_says_whether_there_is_a_teacher(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options: dict[str, Any] = {"data": str(photos), "out": str(tmp_path / "run")}
    assert TrainConfig(**options).flat()["ema"] is True
    assert TrainConfig(**options, method="mixup").flat()["ema"] is False
    assert TrainConfig(**options, method_options={"momentum": None}).flat()["ema"] is False
    assert cli.run(["train", str(photos), "--no-ema"]) == 2
    assert "ema must be true with automix" in capsys.readouterr().err
