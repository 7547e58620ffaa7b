"""Fine-tuning: resuming, stopping, real photos, the command line, and errors for wrong input."""

import errno
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file, save_file

import automix
from automix.cli import main as cli
from automix.core import files
from automix.core.draws import step_generator
from automix.core.errors import AutomixError
from automix.runs.classifier import Card, save_classifier
from automix.runs.folder import RunFolder
from automix.studies.detection import (
    DetectConfig,
    DetectionSet,
    Objects,
    evaluate_detector,
    find_detect_recipe,
    load_detector,
    train_detector,
)
from automix.studies.detection.data import training_batches
from automix.studies.detection.detector_file import CARD
from automix.studies.detection.mixing import MIN_VISIBLE, mix_scenes
from automix.studies.detection.progress import Silent
from automix.studies.detection.scenes import draw_scenes
from automix.studies.detection.train import prepare, to_target, training_step, write_results
from automix.training.signals import Stopped

pytest.importorskip("faster_coco_eval")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

CPU = torch.device("cpu")
QUICK = find_detect_recipe("quick")
TINY = replace(
    QUICK, steps=4, batch_size=2, short_sides=(40, 48), longest_side=64, proposals=20, regions=8, warmup_steps=2
)
OPTIONS: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 16), "zero_init_last": False}


def write_classifier(path: Path, size: int = 32, **options: Any) -> str:
    """An untrained narrow ResNet, without zero scales, which a frozen batch norm would keep."""
    options = {**OPTIONS, **options}
    model = automix.create_model("resnet18", num_classes=2, image_size=size, **options)
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    card = Card(
        model="resnet18",
        model_options=options,
        classes=("a", "b"),
        image_size=size,
        train_size=size,
        mean=mean,
        std=std,
    )
    save_classifier(path, model, card)
    return str(path)


@pytest.fixture
def backbone(tmp_path: Path) -> str:
    return write_classifier(tmp_path / "classifier.safetensors")


@pytest.fixture
def few_scenes(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(name: str, root: Path | None = None) -> tuple[DetectionSet, DetectionSet]:
        return draw_scenes(12), draw_scenes(4, seed=1)

    for place in ("train", "open"):
        monkeypatch.setattr(f"automix.studies.detection.{place}.open_detection_data", opened)


class StopAfterTwo(Silent):
    """Sends SIGINT in the second step."""

    def step(self, run: Any, losses: dict[str, float]) -> None:
        super().step(run, losses)
        if run.step == 2:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("few_scenes")
@pytest.mark.parametrize(("mix", "accumulate"), [("cutmix", 1), ("none", 2)])
def test_resumed_run_equals_an_uninterrupted_one(backbone: str, tmp_path: Path, mix: Any, accumulate: int) -> None:
    settings = replace(TINY, mix=mix)
    config = DetectConfig(data="shapes", backbone=backbone, accumulate=accumulate, settings=settings)
    straight, stopped = (replace(config, out=str(tmp_path / name)) for name in ("straight", "stopped"))
    state = torch.random.get_rng_state()
    results = train_detector(straight)
    assert torch.equal(torch.random.get_rng_state(), state)
    with pytest.raises(Stopped, match="step 2 of 4") as at:
        train_detector(stopped, report=StopAfterTwo())
    assert at.value.exit_code == 130
    assert not (stopped.folder / "detector.safetensors").exists()
    torch.rand(7)  # whatever happens between the sessions
    resumed = train_detector(stopped, resume=True)
    first, second = (load_file(config.folder / "detector.safetensors") for config in (straight, stopped))
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert {**resumed, "seconds": 0} == {**results, "seconds": 0}


@pytest.mark.usefixtures("few_scenes")
def test_two_processes_equal_two_micro_batches(backbone: str, tmp_path: Path) -> None:
    """After one step: later, rounding decides which of two nearly equal proposals is kept.

    The images have 64 px, a multiple of 32: torchvision infers the stride from the first image that it sees, before it
    is padded, and is wrong for images of 40 px.
    """
    step = replace(TINY, steps=1, warmup_steps=0, drops=(), short_sides=(64,))
    one = DetectConfig(
        data="shapes", backbone=backbone, accumulate=2, device="cpu", settings=step, out=str(tmp_path / "one")
    )
    train_detector(one)
    two = replace(one, accumulate=1, out=str(tmp_path / "two"))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text(yaml.safe_dump(two.flat()))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, str(Path(__file__).with_name("detect_worker.py")), str(tmp_path / "config")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    first, second = (load_file(config.folder / "detector.safetensors") for config in (one, two))
    for name, value in first.items():
        torch.testing.assert_close(second[name], value, atol=1e-5, rtol=1e-4)
    losses = [json.loads((config.folder / "metrics.jsonl").read_text())["loss"] for config in (one, two)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)


@pytest.mark.usefixtures("few_scenes")
def test_bf16_trains_weights_in_float32(backbone: str, tmp_path: Path) -> None:
    moco = replace(TINY, freeze_at=0, batch_norm="trained", head_norm=True)
    config = DetectConfig(data="shapes", backbone=backbone, device="cpu", settings=moco)
    losses, detectors = [], []
    for precision in ("float32", "bf16"):
        each: Any = replace(config, precision=precision, out=str(tmp_path / precision))
        train_detector(each)
        detectors.append(load_file(each.folder / "detector.safetensors"))
        losses.append(json.loads((each.folder / "metrics.jsonl").read_text())["loss"])
    exact, rounded = detectors
    assert {value.dtype for value in rounded.values()} == {value.dtype for value in exact.values()}
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=0.1)
    assert "roi_heads.box_head.norm.weight" in rounded
    assert load_detector(tmp_path / "bf16")[1].settings.head_norm


@pytest.mark.usefixtures("few_scenes")
def test_command_trains_and_evaluates(
    backbone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    flags = "--steps 2 --batch-size 2 --short-sides 40 --proposals 20 --regions 8 --device cpu"
    assert cli.run(["detect", "train", "shapes", "--backbone", backbone, "--out", str(run), *flags.split()]) == 0
    assert "step 2/2  loss " in capsys.readouterr().out
    results = json.loads((run / "results.json").read_text())
    assert {"mAP", "AP50", "AP75"} < results.keys()
    assert (results["kind"], results["recipe"], results["steps"], results["test_images"]) == ("c4", "quick", 2, 4)
    assert json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])["step"] == 2
    config = DetectConfig.load(run)
    assert (config.backbone, config.settings.short_sides, config.settings.regions) == (backbone, (40,), 8)
    (run / "results.json").unlink()
    (run / "detections.png").unlink()
    Path(backbone).unlink()  # the detector is complete by itself
    assert cli.run(["detect", "eval", str(run), "--device", "cpu"]) == 0
    measured = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert measured == ["mAP", "AP50", "AP75", "voc07_mAP", "voc07_AP50", "voc07_AP75"]
    again = json.loads((run / "results.json").read_text())
    assert {name: again[name] for name in ("mAP", "AP50", "AP75")} == {n: results[n] for n in ("mAP", "AP50", "AP75")}
    assert (run / "detections.png").exists()
    assert cli.run(["detect", "train", "shapes", "--backbone", backbone, "--out", str(run)]) == 2
    assert "holds a run already" in capsys.readouterr().err
    assert cli.run(["detect", "train", "--resume", "--out", str(run), "--lr", "0.5"]) == 2
    assert "lr=0.01, got lr=0.5" in capsys.readouterr().err


@pytest.mark.usefixtures("few_scenes")
@pytest.mark.parametrize("name", ["config.yaml", "results.json", "detections.png"])
def test_failed_write_keeps_the_old_file(
    backbone: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """The disk is full when the second run of a folder brings `name` to the disk."""
    config = DetectConfig(data="shapes", backbone=backbone, out=str(tmp_path / "run"), settings=replace(TINY, steps=1))
    evaluation = evaluate_detector(prepare(config, resume=False, overwrite=False).detector, draw_scenes(2))
    write_results(config.folder, config, evaluation, {})
    before = (config.folder / name).read_bytes()
    bring_to_disk = files._bring_to_disk

    def full(path: Path) -> None:
        if path.name.endswith(name):
            raise OSError(errno.ENOSPC, "No space left on device")
        bring_to_disk(path)

    monkeypatch.setattr(files, "_bring_to_disk", full)

    def write_again() -> None:
        changed = replace(config, seed=1)
        changed.save()
        write_results(config.folder, changed, evaluation, {"steps": 7})

    with pytest.raises(OSError, match="No space left"):
        write_again()
    assert (config.folder / name).read_bytes() == before
    assert [path.name for path in config.folder.iterdir() if path.name.startswith(".")] == []


@pytest.mark.usefixtures("few_scenes")
def test_second_process_in_the_folder_is_refused(backbone: str, tmp_path: Path) -> None:
    config = DetectConfig(data="shapes", backbone=backbone, out=str(tmp_path / "run"), settings=TINY)
    with RunFolder(config.folder).lock(), pytest.raises(AutomixError, match="another process"):
        train_detector(config)
    assert not config.folder.exists()


def test_targets_count_from_one_without_ignored_objects() -> None:
    target = to_target(
        Objects.from_lists([[0, 0, 1, 2], [3, 3, 4, 4], [5, 5, 6, 6]], [0, 1, 2], [False, True, False]), CPU
    )
    assert target["labels"].tolist() == [1, 3]
    assert target["boxes"].tolist() == [[0, 0, 1, 2], [5, 5, 6, 6]]


def test_scenes_are_mixed_with_their_boxes() -> None:
    """A white image and a smaller black one; the pixels and the visible shares of the boxes are counted by hand."""
    images = [torch.ones(3, 8, 8), torch.zeros(3, 4, 6)]
    corner, all_of_it, difficult = [0.0, 0, 4, 4], [0.0, 0, 6, 4], [1.0, 1, 2, 2]
    objects = [
        Objects.from_lists([corner], [3], [False]),
        Objects.from_lists([all_of_it, difficult], [5, 6], [False, True]),
    ]
    x, found = mix_scenes(images, objects, "mixup", 1.5, step_generator(0, 0))
    lam = float(x[0][0, 0, 0])
    assert 0 < lam < 1
    assert x[1].shape == (3, 8, 8)
    torch.testing.assert_close(x[0], torch.full((3, 8, 8), lam))
    torch.testing.assert_close(x[1], torch.full((3, 8, 8), 1 - lam))
    visible = [label for label, share in ((3, lam), (5, 1 - lam)) if share >= MIN_VISIBLE]
    assert found[0].labels.tolist() == visible  # the difficult object is not trained on
    assert not found[0].ignored.any()

    for step in range(20):
        x, found = mix_scenes(images, objects, "cutmix", 1.0, step_generator(0, step))
        shown = x[0][0]  # 1 where the first image is seen, 0 where the second one or its padding is
        shares = {3: shown[:4, :4].mean(), 5: 1 - shown[:4, :6].mean()}
        assert found[0].labels.tolist() == [label for label, share in shares.items() if share >= MIN_VISIBLE]
    assert mix_scenes(images, objects, "none", 1.0, step_generator(0, 0)) == (images, objects)


@pytest.mark.usefixtures("few_scenes")
def test_detector_file_for_other_classes_is_refused(backbone: str, tmp_path: Path) -> None:
    config = DetectConfig(data="shapes", backbone=backbone, out=str(tmp_path / "run"), settings=replace(TINY, steps=1))
    train_detector(config)
    file = config.folder / "detector.safetensors"
    detector, card = load_detector(config.folder)
    assert not detector.training
    weights = load_file(file)
    fewer = replace(card, classes=card.classes[:5])
    save_file(weights, file, {CARD: fewer.to_json()})
    with pytest.raises(ValueError, match=r"5 classes.*size mismatch"):
        load_detector(config.folder)
    renamed = replace(card, classes=("one", *card.classes[1:]))
    save_file(weights, file, {CARD: renamed.to_json()})
    with pytest.raises(ValueError, match=r"data must have the 12 classes .*\(one, "):
        cli.execute(["detect", "eval", str(config.folder)])
    save_file(weights, file)
    with pytest.raises(AutomixError, match="not a detector file"):
        load_detector(config.folder)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("tain shapes", "command.*train.*'tain'"),
        ("train shapes", "backbone is missing"),
        ("train --backbone x", "data is missing"),
        ("train shapes --backbone x --kind c5", "kind.*c4.*fpn"),
        ("train shapes --backbone x --recipe vocc", "recipe.*voc, coco, quick"),
        ("train shapes --backbone nowhere", "backbone must be .*'nowhere'"),
        ("train shapes --backbone x --stepps 3", "--stepps.*--steps"),
        ("train nowhere --backbone {backbone} --out {tmp}/run", "data must be .*'nowhere'"),
        ("train shapes --backbone {backbone} --weights w.safetensors", "weights.*timm name"),
        ("train shapes --backbone x --mix cutmx", "mix.*mixup.*cutmix"),
        ("train shapes --backbone x --mix mixup --mix-alpha 0", "mix_alpha must be > 0"),
        (
            "train shapes --backbone {backbone} --mix mixup --batch-size 2 --accumulate 2 --out {tmp}/run",
            "mix must be none where a process computes one image at a time, got 'mixup'",
        ),
        ("train --resume --out {tmp}/none", "config.yaml: no such file"),
        ("eval {tmp}", "no such file"),
    ],
)
def test_wrong_input_is_refused_in_one_line(backbone: str, tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        cli.execute(["detect", *line.format(tmp=tmp_path, backbone=backbone).split()])
    assert "\n" not in str(error.value)
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif("AUTOMIX_DATA" not in os.environ, reason="AUTOMIX_DATA is not set")
def test_loss_falls_on_real_photos(tmp_path: Path) -> None:
    """VOC's cut, some steps on the same few photos at 96 px."""
    backbone = write_classifier(tmp_path / "classifier.safetensors", size=224)
    settings = replace(TINY, steps=15, batch_size=4, short_sides=(96,), longest_side=160, lr=0.05, freeze_at=0)
    config = DetectConfig(data="voc", backbone=backbone, out=str(tmp_path / "run"), settings=settings)
    run = prepare(config, resume=False, overwrite=False)
    assert len(run.train) > 170
    assert len(run.test) == 60
    run.train = run.train.subset([0, 1, 2, 3])
    batches = training_batches(run.train, run.plan, 0, 15, workers=1)
    losses = [training_step(run, batches)["loss"] for _ in range(15)]
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


@pytest.mark.slow
def test_shapes_are_detected_after_a_few_hundred_steps(tmp_path: Path) -> None:
    """A narrow classifier of `shapes`, then its detector by the quick recipe."""
    from automix.runs.config import TrainConfig
    from automix.runs.recipes import find_recipe
    from automix.training import train

    options: dict[str, Any] = {"layers": [1, 1, 1, 1], "channels": [16, 32, 64, 128]}
    classifier = TrainConfig(
        data="shapes",
        method="vanilla",
        model_options=options,
        out=str(tmp_path / "classifier"),
        settings=replace(find_recipe("quick"), epochs=6),
    )
    train(classifier)
    backbone, out = str(tmp_path / "classifier"), str(tmp_path / "run")
    results = train_detector(
        DetectConfig(data="shapes", backbone=backbone, out=out, settings=replace(QUICK, steps=300))
    )
    assert results["AP50"] > 8
