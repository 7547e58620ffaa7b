"""The engine on a folder of small images: it trains every method, repeats itself, and loses nothing when killed."""

import io
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file

import automix
from automix import AutomixError, AutoMixSettings
from automix.cli import main as cli
from automix.methods import has_own_teacher
from automix.runs.config import Options, TrainConfig, read_config
from automix.runs.recipes import RECIPES, find_recipe
from automix.training import NotFiniteError, Silent, Stopped, train
from automix.training.display import Bar, Lines
from automix.training.run import Run

WITHOUT_FILES = [name for name in automix.methods() if name != "stylemix"]
every_method = pytest.mark.parametrize("method", WITHOUT_FILES)

TINY: Options = {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]}


def configure(photos: Path, out: Path, method: str = "automix", **changes: Any) -> TrainConfig:
    """3 epochs of 3 steps of 12 images, a checkpoint after every step."""
    settings = {name: changes.pop(name) for name in list(changes) if hasattr(find_recipe("quick"), name)}
    token = method == "transmix"  # needs a class token
    config = TrainConfig(
        data=str(photos),
        method=method,
        out=str(out),
        model="deit_tiny_patch16_224" if token else "resnet18",
        model_options={"depth": 4, "embed_dim": 24} if token else TINY,
        checkpoint_minutes=0,
        settings=replace(find_recipe("quick"), **{"epochs": 3, "batch_size": 12, **settings}),
    )
    return replace(config, **changes)


def final_state(folder: Path) -> dict[str, bytes]:
    """Every tensor of the checkpoint: student, teacher, Mix Block, optimizer."""
    tensors = load_file(folder / "checkpoint.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def lines(folder: Path, kind: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [record for record in records if record["kind"] == kind]


def test_an_epochs_means_are_over_the_steps_that_have_the_number(photos: Path, tmp_path: Path) -> None:
    config = configure(photos, tmp_path / "run", "mixup", method_options={"mix_until": 0.3})
    train(config)
    first, second, third = lines(config.folder, "epoch")
    assert "loss_clean" not in first
    assert "loss_mixed" not in third
    # of the second epoch's three steps, which begin at 2/9, 3/9 and 4/9 of the training, the first one mixes
    assert second["loss"] == pytest.approx((second["loss_mixed"] + 2 * second["loss_clean"]) / 3)


@every_method
def test_a_run_leaves_what_it_promises(method: str, photos: Path, tmp_path: Path) -> None:
    summary = train(configure(photos, tmp_path / "run", method))
    folder = tmp_path / "run"
    names = {path.name for path in folder.iterdir()}
    assert names == {
        ".lock",
        "config.yaml",
        "checkpoint.safetensors",
        "checkpoint-previous.safetensors",
        "last.safetensors",
        "best.safetensors",
        "metrics.jsonl",
        "summary.json",
        "pictures",
        "tensorboard",
        *(["mix_block.safetensors"] if method == "automix" else []),
    }
    epochs = lines(folder, "epoch")
    assert [record["step"] for record in epochs] == [3, 6, 9]
    # the learning rate and the task's progress are those of the last step done, of nine
    rates = [0.1 * (1 + math.cos(math.pi * step / 9)) / 2 for step in (2, 5, 8)]
    assert [record["lr"] for record in epochs] == pytest.approx(rates)
    state = load_file(folder / "checkpoint.safetensors")["/task/_extra_state"]
    assert state.tolist() == pytest.approx([9, 8 / 9])
    assert summary == json.loads((folder / "summary.json").read_text())
    assert summary["student_top1"] == epochs[-1]["student_top1"]
    assert summary["best_top1"] == max(record.get("teacher_top1", record["student_top1"]) for record in epochs)
    assert ("teacher_top1" in summary) == has_own_teacher(method)
    assert {"loss", "lam", "mixed_accuracy", "lr", "images_per_second"} <= epochs[0].keys()
    assert [name for name in epochs[0] if name.startswith("loss_")]
    assert sorted(path.name for path in (folder / "pictures").iterdir()) == [
        *(f"epoch-000{n}.png" for n in range(4)),
        "over-time.png",
    ]


def test_a_run_repeats_from_its_config_file(photos: Path, tmp_path: Path) -> None:
    train(configure(photos, tmp_path / "one", seed=5))
    line = ["train", "--config", str(tmp_path / "one" / "config.yaml"), "--out", str(tmp_path / "two")]
    assert cli.run(line) == 0
    assert final_state(tmp_path / "one") == final_state(tmp_path / "two")
    other = train(configure(photos, tmp_path / "three", seed=6))
    assert other["steps"] == 9
    assert final_state(tmp_path / "one") != final_state(tmp_path / "three")


class KillAt(Silent):
    """Kills its own process, without a chance to clean up, when a step is done."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        if run.step == self.at:
            os.kill(os.getpid(), signal.SIGKILL)


@every_method
def test_a_killed_run_ends_as_if_nothing_had_happened(method: str, photos: Path, tmp_path: Path) -> None:
    whole, killed = (configure(photos, tmp_path / name, method, ema=True) for name in ("whole", "killed"))
    train(whole)
    step = random.Random(method).randint(2, 8)
    child = multiprocessing.get_context("fork").Process(target=train, args=(killed,), kwargs={"display": KillAt(step)})
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    train(killed, resume=True)
    assert final_state(whole.folder) == final_state(killed.folder)
    # The averages of the epoch that was cut in two differ, its accuracies and everything else do not.
    keys = ("step", "epoch", "student_top1", "teacher_top1", "lr")
    for one, two in zip(lines(whole.folder, "epoch"), lines(killed.folder, "epoch"), strict=True):
        assert [one[key] for key in keys] == [two[key] for key in keys]


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adamw"},
        {"optimizer": "lamb"},
        {"drop_path": 0.5, "dropout": 0.5},
        {"rand_augment": "9/0.5", "erasing": 0.5, "repeats": 3, "workers": 2},  # streamed, ends in mid-epoch
        {"accumulate": 3},
        {"balance": "sampling"},
        {"balance": "loss"},
    ],
)
def test_resume_knows_every_source_of_state_and_chance(options: dict[str, Any], photos: Path, tmp_path: Path) -> None:
    whole, cut = (configure(photos, tmp_path / name, "mixup", lr=0.01, **options) for name in ("whole", "cut"))
    train(whole)
    interrupt(cut, after=4)
    train(cut, resume=True)
    assert final_state(whole.folder) == final_state(cut.folder)


@pytest.mark.parametrize("method", ["vanilla", "automix", "comixup"])
def test_balanced_classes_change_the_training(method: str, photos: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    shutil.copytree(photos, few)
    classes = sorted((few / "train").iterdir())
    for image in sorted(classes[0].iterdir())[3:]:
        image.unlink()
    states = []
    for balance in ("none", "sampling", "loss"):
        config = configure(few, tmp_path / balance, method, balance=balance, epochs=1, batch_size=6)
        train(config)
        states.append(final_state(config.folder))
    assert states[0] != states[1]
    assert states[0] != states[2]


class SignalAt(Silent):
    def __init__(self, step: int, number: int) -> None:
        self.at, self.number = step, number

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        if run.step == self.at:
            signal.raise_signal(self.number)


def interrupt(config: TrainConfig, after: int, number: int = signal.SIGTERM) -> Stopped:
    with pytest.raises(Stopped) as caught:
        train(config, display=SignalAt(after, number))
    return caught.value


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_leaves_a_checkpoint(number: int, code: int, photos: Path, tmp_path: Path) -> None:
    config = configure(photos, tmp_path / "run", checkpoint_minutes=60)
    before = signal.getsignal(number)
    stopped = interrupt(config, after=3, number=number)
    assert stopped.exit_code == code
    assert "stopped after step 3 of 9" in str(stopped)
    assert (config.folder / "checkpoint.safetensors").exists()
    assert signal.getsignal(number) == before
    with (config.folder / "metrics.jsonl").open("a") as file:  # as if it had gone on and been killed while writing
        file.write('{"step": 6, "kind": "epoch", "epoch": 2}\n{"step": 7, "ki')
    train(config, resume=True)
    assert [record["step"] for record in lines(config.folder, "epoch")] == [3, 6, 9]


def test_a_run_is_neither_overwritten_nor_mixed_up(photos: Path, tmp_path: Path) -> None:
    config = configure(photos, tmp_path / "run", "mixup", epochs=1)
    config.folder.mkdir()
    others = [config.folder / name for name in ("mine.safetensors", "notes.txt")]
    for path in others:
        path.write_text("somebody's")
    train(config)
    first = final_state(config.folder)
    with pytest.raises(ValueError, match=r"run: holds a run already.*--resume"):
        train(config)
    with pytest.raises(ValueError, match=r"lr=0\.1, got lr=0\.2"):
        train(configure(photos, tmp_path / "run", "mixup", epochs=1, lr=0.2), resume=True)
    train(config, resume=True)  # nothing is left to do
    assert final_state(config.folder) == first
    of_the_old_run = [config.folder / name for name in ("mix_block.safetensors", "report.html", "evaluation/cam.png")]
    for path in of_the_old_run:
        path.parent.mkdir(exist_ok=True)
        path.write_text("of weights that are no more")
    train(configure(photos, tmp_path / "run", "mixup", epochs=1, lr=0.2), overwrite=True)
    assert not any(path.exists() for path in of_the_old_run)
    assert final_state(config.folder) != first
    assert read_config(config.folder / "config.yaml")["lr"] == 0.2
    assert len(lines(config.folder, "epoch")) == 1
    assert all(path.read_text() == "somebody's" for path in others)


def test_what_is_not_finite_stops_the_run_before_the_update(photos: Path, tmp_path: Path) -> None:
    config = configure(photos, tmp_path / "run", lr=1e25)
    with pytest.raises(
        NotFiniteError, match=r"step \d: .*loss.* not finite \(loss .*loss_mixed .*lam 0\.\d+.*\); the weights are"
    ):
        train(config)
    assert all(tensor.isfinite().all() for tensor in load_file(config.folder / "checkpoint.safetensors").values())


def test_accumulated_pieces_are_the_whole_batch(photos: Path, tmp_path: Path) -> None:
    """Without random draws and without BatchNorm, four pieces of three give what one batch of twelve gives."""
    options = {"model_options": {**TINY, "norm_layer": "groupnorm1"}, "crop": "none", "flip": False}
    options["precision"] = "float32"  # bf16 would round the pieces apart
    for pieces in (1, 4):
        train(configure(photos, tmp_path / str(pieces), "vanilla", accumulate=pieces, **options))
    one, four = (load_file(tmp_path / name / "last.safetensors") for name in "14")
    for name in one:
        torch.testing.assert_close(one[name], four[name], rtol=1e-3, atol=1e-5)


def test_bf16_trains_and_is_another_computation(photos: Path, tmp_path: Path) -> None:
    config = configure(photos, tmp_path / "bf16", precision="bf16", epochs=1)
    train(config)
    train(configure(photos, tmp_path / "float32", precision="float32", epochs=1))
    half, full = (load_file(tmp_path / name / "last.safetensors") for name in ("bf16", "float32"))
    assert all(tensor.dtype != torch.bfloat16 for tensor in half.values())
    assert any(not torch.equal(half[name], full[name]) for name in full)


def test_gradients_are_clipped_to_their_norm(photos: Path, tmp_path: Path) -> None:
    """With plain SGD and no decay, the first step moves the weights by lr times the clipped norm."""
    options = {"clip_grad": 0.01, "momentum": 0.0, "weight_decay": 0.0, "epochs": 1, "batch_size": 36}
    config = configure(photos, tmp_path / "run", "vanilla", **options)

    class Keep(Silent):
        def begin(self, run: Run) -> None:
            self.run = run
            self.before = [parameter.detach().clone() for parameter in run.trained_parameters]

    keep = Keep()
    train(config, display=keep)
    moved = torch.cat(
        [(now - old).flatten() for now, old in zip(keep.run.trained_parameters, keep.before, strict=True)]
    )
    assert moved.norm().item() == pytest.approx(0.1 * 0.01, rel=1e-3)


def test_a_broken_image_is_named(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import shutil

    folder = tmp_path / "photos"
    shutil.copytree(photos, folder)
    broken = folder / "train" / "a" / "broken.png"
    broken.write_bytes(b"no image")
    assert cli.run(["train", str(folder), "--out", str(tmp_path / "run"), "--batch-size", "12"]) == 2
    error = capsys.readouterr().err
    assert str(broken) in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_every_recipe_trains(recipe: str, photos: Path, tmp_path: Path) -> None:
    """Two steps of each, in small: RandAugment, erasing, repeated augmentation, LAMB, BCE and all the rest at work."""
    settings = replace(
        find_recipe(recipe), epochs=1, warmup_epochs=0, batch_size=18, train_size=32, test_size=40, pretrained=False
    )
    # drop path needs a network that has it
    config = configure(photos, tmp_path / "run", "mixup_or_cutmix", settings=settings, recipe=recipe, workers=0)
    summary = train(config)
    assert summary["steps"] == 2
    assert ("teacher_top1" in summary) == settings.ema
    assert all(value.isfinite().all() for value in load_file(config.folder / "last.safetensors").values())


def test_predict_export_and_mix_use_what_was_trained(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = configure(photos, tmp_path / "run", epochs=1)
    train(config)
    image = next((photos / "test" / "b").iterdir())
    assert cli.run(["predict", str(config.folder), str(image), "none.png"]) == 2
    out, err = capsys.readouterr()
    assert re.fullmatch(rf"{image}\t([abc] \d+\.\d%(  )?){{3}}\n", out)
    assert err.startswith("automix: none.png: ")
    assert cli.run(["export", str(config.folder), "--format", "torchscript"]) == 0
    assert "logits differ from the model's by" in capsys.readouterr().out
    assert (config.folder / "classifier.pt").is_file()
    for sources in ([config.folder], [config.folder, photos / "test"], [photos / "test", "--method", "cutmix"]):
        picture = tmp_path / "mixed.png"
        assert cli.run(["mix", *map(str, sources), "--out", str(picture), "--lams", "0.3"]) == 0
        assert "lam 0.3" in capsys.readouterr().out
        picture.unlink()
    monkeypatch.chdir(tmp_path)
    for sources, path in (([config.folder], config.folder / "pictures"), ([photos / "test"], Path("runs"))):
        assert cli.run(["mix", *map(str, sources)]) == 0
        assert capsys.readouterr().out.startswith(f"{path / 'mixed.png'}: ")
        assert (path / "mixed.png").is_file()
    assert not Path("mixed.png").exists()


def test_weights_to_start_from(photos: Path, tmp_path: Path) -> None:
    """Another head is left out, a file of another network is refused."""
    train(configure(photos, tmp_path / "first", "vanilla", epochs=1))
    start = str(tmp_path / "first" / "last.safetensors")
    config = configure(
        photos, tmp_path / "second", "vanilla", weights=start, classes=2, batch_size=6, lr=1e-9, epochs=1
    )
    train(config)
    first, second = (load_file(tmp_path / name / "last.safetensors") for name in ("first", "second"))
    torch.testing.assert_close(first["layer1.0.conv1.weight"], second["layer1.0.conv1.weight"])
    assert first["fc.weight"].shape[0] == 3
    assert second["fc.weight"].shape[0] == 2
    with pytest.raises(ValueError, match=r"last\.safetensors does not fit wrn_10_1: .*--weights"):
        train(configure(photos, tmp_path / "third", "vanilla", weights=start, model="wrn_10_1", model_options={}))


def test_what_a_person_sees(photos: Path, tmp_path: Path) -> None:
    """On a narrow terminal the bar and the lines, elsewhere the lines alone."""
    for name, width, terminal in (("bar", 40, True), ("lines", 200, False)):
        file = io.StringIO()
        console = Console(file=file, width=width, force_terminal=terminal, soft_wrap=True, highlight=False)
        train(configure(photos, tmp_path / name), display=Bar(console) if terminal else Lines(console))
        text = file.getvalue()
        assert "automix on " in text
        line = r"epoch +3/3  mixed loss \d+\.\d{3}  student \S+ %  teacher \S+ %  \d+ images/s  0:00:00 left"
        assert re.search(line, text)
        assert re.search(r"epoch +1/3  mixed loss", text)
        assert text.count("mixing ends after step") == 1
        assert f"automix predict {tmp_path / name} photo.jpg" in text
        assert "teacher, last" in text
        assert ("\x1b[?25l" in text) == terminal  # the cursor is hidden
        assert text.count("\x1b[?25h") == text.count("\x1b[?25l")  # and shown again


@pytest.mark.parametrize(("preset", "share"), [("tuned", 0.25), ("paper", 1.0)])
def test_the_settings_of_a_preset_are_recorded_in_full(preset: str, share: float, tmp_path: Path) -> None:
    config = TrainConfig.from_flat({"data": "shapes", "preset": preset, "method_options": {"lam_margin": 0.1}})
    config.save(tmp_path / "config.yaml")
    values = read_config(tmp_path / "config.yaml")
    recorded = values["method_settings"]
    assert recorded == AutoMixSettings.from_preset(preset, lam_margin=0.1).to_dict()
    assert (recorded["block_share"], recorded["lam_margin"]) == (share, 0.1)
    assert TrainConfig.from_flat(values) == config
    assert TrainConfig.from_flat({"data": "shapes", "method": "cutmix"}).method_settings == {}


def test_a_run_is_not_continued_under_another_meaning_of_its_preset(photos: Path, tmp_path: Path) -> None:
    config = configure(photos, tmp_path / "run", "automix")
    train(config)
    file = config.folder / "config.yaml"
    file.write_text(file.read_text().replace("block_share: 0.25", "block_share: 0.5"))
    with pytest.raises(AutomixError, match=r"was trained with method_settings=.*block_share"):
        train(config, resume=True)


def test_training_from_python_is_one_call(photos: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"method": "mixup", "epochs": 1, "batch_size": 12, "model_options": TINY}
    summary = automix.train(photos, out=str(tmp_path / "run"), **settings)
    assert (summary["method"], summary["steps"]) == ("mixup", 3)
    assert set(automix.evaluate(tmp_path / "run", "accuracy")) == {"accuracy"}
    (answer,) = automix.predict(tmp_path / "run", next(photos.rglob("*.png")), top=1)
    assert answer.classes[0] in automix.load_classifier(tmp_path / "run")[1].classes
    with pytest.raises(AutomixError, match=r"epoch.*did you mean 'epochs'"):
        automix.train(photos, epoch=1)
    with pytest.raises(AutomixError, match="epochs must be set in the configuration"):
        automix.train(configure(photos, tmp_path / "other"), epochs=1)
