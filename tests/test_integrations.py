"""Adapters and examples: each loop trains, updates the task once a step and keeps the teacher."""

import ast
import importlib
import importlib.util
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from conftest import HandWritten, batch
from torch import Tensor, nn

import automix
from automix.integrations import update_after_step
from automix.tasks.task import Task

ROOT = Path(__file__).parent.parent


def load_example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{name}", ROOT / "examples" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # worker processes and dataclasses look it up
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # warnings of the frameworks at import
        spec.loader.exec_module(module)
    return module


@pytest.fixture
def updates(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Task, float]]:
    """Every call of `task.update`: the task and its progress."""
    calls: list[tuple[Task, float]] = []
    update = Task.update

    def counted(task: Task, progress: float = 0.0) -> None:
        calls.append((task, progress))
        update(task, progress)

    monkeypatch.setattr(Task, "update", counted)
    return calls


def check_updates(updates: list[tuple[Task, float]], steps: int) -> Task:
    """Once for each step of the optimizer, and the progress rises evenly from 0; the one task is returned."""
    assert [progress for _, progress in updates] == pytest.approx([step / steps for step in range(steps)])
    (task,) = {id(task): task for task, _ in updates}.values()
    assert task.step == steps
    return task


def same_weights(first: dict[str, Tensor], second: dict[str, Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


# --- the optimizer calls update --------------------------------------------------------------------------------------


def test_update_after_step_equals_a_loop_that_calls_update() -> None:
    x, y = batch(6)
    by_hand, by_hook = (automix.AutoMix(model(), layer="body") for model in (make_model, make_model))
    for task, hooked in ((by_hand, False), (by_hook, True)):
        torch.manual_seed(0)
        optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9)
        if hooked:
            update_after_step(task, optimizer, total_steps=3)
        for step in range(3):
            optimizer.zero_grad()
            task(x, y).loss.backward()
            optimizer.step()
            if not hooked:
                task.update(step / 3)
    assert same_weights(by_hand.state_dict(), by_hook.state_dict())


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return HandWritten()


def test_progress_ends_at_one_and_the_handle_ends_the_updates() -> None:
    task = automix.create_task("mixup", HandWritten(), ema=True)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1))
    handle = update_after_step(task, optimizer, total_steps=2)
    for _ in range(4):
        optimizer.step()
    assert (task.step, task.progress) == (4, 1.0)
    handle.remove()
    optimizer.step()
    assert task.step == 4


@pytest.mark.parametrize("total", [0, -1, 1.5, True])
def test_update_after_step_refuses_a_wrong_total(total: Any) -> None:
    task = automix.create_task("mixup", HandWritten())
    with pytest.raises(ValueError, match=rf"total_steps.*>= 1.*{total}"):
        update_after_step(task, torch.optim.SGD(task.param_groups(lr=0.1)), total)


def test_a_step_skipped_by_the_gradient_scaler_is_not_counted() -> None:
    task = automix.create_task("mixup", HandWritten(), ema=True)
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1))
    update_after_step(task, optimizer, total_steps=2)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for factor in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(task(*batch(6)).loss * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    assert task.step == 1


# --- collating -------------------------------------------------------------------------------------------------------


def test_collate_example_trains() -> None:
    assert load_example("collate").train("mixup", epochs=15, workers=0, seed=0) > 40


@pytest.mark.parametrize("workers", [0, 2])
def test_collated_batches_depend_on_the_seed_and_differ_between_epochs_and_workers(workers: int) -> None:
    example = load_example("collate")
    data, _ = automix.data.load_images("digits", per_class=20)

    def batches(seed: int) -> list[tuple[Tensor, Tensor]]:
        if workers == 0:  # then the transforms draw from this process's generator; else it has no say
            torch.manual_seed(seed)
        loader = example.make_loader(data, automix.Mixup(num_classes=10), workers, seed)
        return [item for _ in range(2) for item in loader]

    first, again, other = batches(0), batches(0), batches(1)
    assert len(first) == 8
    assert all(torch.equal(a[0], b[0]) and torch.equal(a[1], b[1]) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a[0], b[0]) for a, b in zip(first, other, strict=True))
    lams = {round(soft.amax(dim=1).min().item(), 6) for _, soft in first}
    assert len(lams) == 8  # no two batches share their draw: not those of two workers, nor those of two epochs
    assert all(soft.sum(dim=1).sub(1).abs().max() < 1e-6 for _, soft in first)


# --- timm ------------------------------------------------------------------------------------------------------------


def test_timm_example(updates: list[tuple[Task, float]], tmp_path: Path) -> None:
    accuracy = load_example("timm_loop").train("automix", epochs=4, accumulate=2, seed=0, out=tmp_path)
    assert accuracy > 40
    task = check_updates(updates, steps=4 * 6)
    saved = torch.load(tmp_path / "last.pth.tar", weights_only=True)
    assert task.teacher is not None
    assert same_weights(saved["state_dict_ema"], dict(task.teacher.state_dict()))
    assert same_weights(saved["state_dict"], dict(task.student.state_dict()))
    assert not same_weights(saved["state_dict"], saved["state_dict_ema"])


def test_timm_task_resumes_from_timms_checkpoint() -> None:
    from automix.integrations.timm import TimmTask

    source, target = (TimmTask(automix.AutoMix(HandWritten(), layer="body")) for _ in range(2))
    optimizer = torch.optim.SGD(source.task.param_groups(lr=0.1))
    update_after_step(source.task, optimizer, total_steps=4)
    for _ in range(2):
        source(*batch(6))["loss"].backward()
        optimizer.step()
    saved = {**source.get_checkpoint_state(), **source.get_checkpoint_state(ema=True)}
    target.load_checkpoint_state(saved["state_dict"], saved["task_state"])
    target.load_checkpoint_state(saved["state_dict_ema"], ema=True)
    assert same_weights(source.task.state_dict(), target.task.state_dict())
    assert (target.task.step, target.task.progress) == (2, 0.25)


def test_timm_task_clips_the_trained_parameters() -> None:
    from automix.integrations.timm import TimmTask

    wrapped = TimmTask(automix.AutoMix(HandWritten(), layer="body"))
    trained = {id(p) for group in wrapped.task.param_groups(lr=0.1) for p in group["params"]}
    assert {id(p) for p in wrapped.get_clip_parameters()} == trained
    head = {id(p) for p in wrapped.task.student.head.parameters()}  # type: ignore[union-attr]
    assert {id(p) for p in wrapped.get_clip_parameters(exclude_head=True)} == trained - head


def test_timm_task_offers_the_teacher_as_moving_average() -> None:
    from automix.integrations.timm import TimmTask

    wrapped = TimmTask(automix.create_task("cutmix", HandWritten(), ema=True))
    assert wrapped.has_ema()
    assert wrapped.setup_ema(decay=0.9) is wrapped.get_eval_model(ema=True) is wrapped.task.teacher
    plain = TimmTask(automix.create_task("cutmix", HandWritten()))
    assert not plain.has_ema()
    assert plain.get_checkpoint_state(ema=True) == {}
    with pytest.raises(ValueError, match=r"no teacher.*ema=True"):
        plain.setup_ema()


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_timm_mixup_switched_off_equals_timms_labels(smoothing: float) -> None:
    from timm.data import Mixup

    from automix.integrations.timm import TimmMixup

    x, y = batch(6)
    theirs = Mixup(mixup_alpha=1.0, label_smoothing=smoothing, num_classes=5)
    ours = TimmMixup(automix.Mixup(num_classes=5, label_smoothing=smoothing))
    mixed, rows = ours(x, y)
    assert not torch.equal(mixed, x)
    assert rows.shape == (6, 5)
    theirs.mixup_enabled = ours.mixup_enabled = False  # as timm's train.py does
    expected, (same, rows) = theirs(x.clone(), y)[1], ours(x, y)
    assert torch.equal(same, x)
    torch.testing.assert_close(rows, expected)


# --- Lightning, Hugging Face -----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")  # Lightning's: few workers, modules in eval mode (the teacher), its own old calls
def test_lightning_example(updates: list[tuple[Task, float]], tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    accuracy = load_example("lightning_module").train("automix", epochs=4, accumulate=2, seed=0, out=tmp_path)
    assert accuracy > 30
    task = check_updates(updates, steps=4 * 6)
    assert task.teacher is not None
    deployed = torch.load(tmp_path / "classifier.pt", weights_only=True)
    assert same_weights(deployed, dict(task.teacher.state_dict()))
    (checkpoint,) = (tmp_path / "checkpoints").glob("*.ckpt")
    saved = torch.load(checkpoint, weights_only=True)["state_dict"]
    assert same_weights(saved, {f"task.{name}": value for name, value in task.state_dict().items()})


@pytest.mark.filterwarnings("ignore")
def test_lightning_resumes_to_the_same_weights(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    import lightning
    from torch.utils.data import DataLoader, TensorDataset

    example = load_example("lightning_module")
    halfway = tmp_path / "halfway.ckpt"

    class SaveHalfway(lightning.Callback):
        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            if trainer.current_epoch == 1:
                trainer.save_checkpoint(halfway)

    def run(resume: Path | None = None) -> Task:
        torch.manual_seed(0)
        module = example.Digits(automix.AutoMix(HandWritten(), layer="body"))
        quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        callbacks = [] if resume else [SaveHalfway()]
        trainer = lightning.Trainer(
            max_epochs=4, accelerator="cpu", callbacks=callbacks, enable_checkpointing=False, **quiet
        )
        trainer.fit(module, DataLoader(TensorDataset(*batch(12)), batch_size=6), ckpt_path=resume)
        return module.task

    straight, resumed = run(), run(resume=halfway)
    assert resumed.step == straight.step == 8
    assert same_weights(resumed.state_dict(), straight.state_dict())


@pytest.mark.filterwarnings("ignore")
def test_hugging_face_trainer_example(updates: list[tuple[Task, float]], tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    accuracy = load_example("hf_trainer").train("automix", epochs=3, accumulate=2, seed=0, out=tmp_path)
    assert accuracy > 40
    task = check_updates(updates, steps=3 * 6)
    from transformers import AutoModelForImageClassification

    classifier = AutoModelForImageClassification.from_pretrained(tmp_path / "classifier")
    teacher: Any = task.teacher
    assert same_weights(dict(classifier.state_dict()), dict(teacher.model.state_dict()))


def test_trainer_model_evaluates_the_classifier() -> None:
    pytest.importorskip("transformers")
    from automix.integrations.huggingface import TrainerModel

    task = automix.create_task("mixup", HandWritten(), ema=True)
    x, y = batch(6)
    model = TrainerModel(task).eval()
    with torch.no_grad():
        for parameter in task.student.parameters():
            parameter.add_(1)
        assert torch.equal(model(x, y)["logits"], task.classifier(x))
        assert model(x).keys() == {"logits"}
    with pytest.raises(ValueError, match="labels"):
        model.train()(x)


@pytest.mark.filterwarnings("ignore")
def test_accelerate_example(updates: list[tuple[Task, float]]) -> None:
    pytest.importorskip("accelerate")
    assert load_example("accelerate_loop").train("mixup", epochs=6, accumulate=2, seed=0) > 30
    check_updates(updates, steps=6 * 6)


@pytest.mark.parametrize(("name", "package"), [("lightning", "lightning"), ("huggingface", "transformers")])
def test_a_missing_package_is_named_with_the_extra(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"automix.integrations.{name}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=rf"needs {package}: pip install 'automix\[{name}\]'"):
        importlib.import_module(f"automix.integrations.{name}")


# --- the notebook ----------------------------------------------------------------------------------------------------


def test_notebook_runs_and_is_saved_without_outputs() -> None:
    """Its code cells in order, in one namespace; the last expression of a cell is its output."""
    notebook = json.loads((ROOT / "examples" / "automix_tour.ipynb").read_text())
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    names: dict[str, Any] = {}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == []
        assert cell["execution_count"] is None
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), "notebook", "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), "notebook", "eval"), names))
    assert sum(hasattr(picture, "save") for picture in shown) == 2
    assert sum(names["losses"][-20:]) < 0.95 * sum(names["losses"][:20])
    assert names["accuracy"] > 25  # chance is 16.7


@pytest.mark.parametrize(
    ("missing", "wheels", "installed"),
    [
        (True, [], ["automix"]),
        (True, ["automix-0.1.0-py3.whl", "automix-0.2.0-py3.whl"], ["automix-0.2.0-py3.whl"]),
        (False, [], None),
    ],
)
def test_the_first_cell_of_the_notebook_installs_what_is_missing(
    missing: bool, wheels: list[str], installed: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for wheel in wheels:
        (tmp_path / wheel).touch()
    if missing:
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    commands: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    notebook = json.loads((ROOT / "examples" / "automix_tour.ipynb").read_text())
    first = next(cell for cell in notebook["cells"] if cell["cell_type"] == "code")
    exec("".join(first["source"]), {})
    expected = [] if installed is None else [[sys.executable, "-m", "pip", "install", "--quiet", *installed]]
    assert commands == expected


@pytest.mark.parametrize("name", ["collate", "timm_loop", "lightning_module", "hf_trainer", "accelerate_loop"])
def test_examples_refuse_zero_epochs_in_one_line(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip({"lightning_module": "lightning", "hf_trainer": "transformers"}.get(name, "torch"))
    pytest.importorskip("accelerate" if name in ("hf_trainer", "accelerate_loop") else "torch")
    monkeypatch.setattr(sys, "argv", [name, "--epochs", "0"])
    with pytest.raises(SystemExit, match="2"):
        load_example(name).main()
    assert re.search(r"error: .*--epochs.*1", capsys.readouterr().err)
