"""`automix evaluate` as a person meets it: a run in, values and pictures out, one line where it cannot be."""

import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import automix
from automix.cli import main as cli
from automix.core.errors import AutomixError
from automix.data.datasets import open_dataset
from automix.data.image_set import ImageSet, resize_and_crop_boxes
from automix.evaluation import evaluate_attacks, evaluate_corruptions, evaluate_mixed, predict_logits, task_mixer
from automix.evaluation.inputs import open_inputs
from automix.evaluation.plan import estimate_seconds, plan_evaluators
from automix.evaluation.results_file import read_results
from automix.evaluation.samples import Samples
from automix.evaluation.session import Session
from automix.evaluation.suite import EVALUATORS, Passes, Skipped, evaluate
from automix.runs.folder import RunFolder
from automix.tasks.image_cache import with_cache
from automix.training.load import load_task

TINY = "--model-options.layers [1,1,1,1] --model-options.channels [8,8,8,8] --epochs 1 --batch-size 24"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "shapes"
    exactly = ["--precision", "float32"]  # as evaluations are; training may be in bf16 elsewhere
    assert cli.run(["train", "shapes", *TINY.split(), "--per-class", "4", *exactly, "--out", str(out)]) == 0
    return out


def test_everything_of_a_run(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(f"evaluate {run} --on all efficiency --images 36 --out {tmp_path / 'all'}".split()) == 0
    out, err = capsys.readouterr()
    results = json.loads((tmp_path / "all" / "results.json").read_text())
    assert list(results) == list(EVALUATORS)
    for name, entry in results.items():
        assert entry["values"], name
        assert entry["images"] == 36
        for picture in entry["pictures"]:
            with Image.open(tmp_path / "all" / picture) as shown:
                assert min(shown.size) > 100
        for value in entry["values"]:
            assert f"{name}\t{value}\t" in out
    assert "automix_top2_at_0.5" in results["mixed"]["values"]  # its own mixer, beside those compared with
    assert "36 test images of shapes" in err


def test_results_of_several_calls_are_kept_side_by_side(run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(run, tmp_path / "run")
    assert cli.run(f"evaluate {run} --on accuracy --images 24".split()) == 0
    assert cli.run(f"evaluate {run} --on calibration --images 36".split()) == 0
    results = read_results(run / "evaluation")
    assert {name: entry["images"] for name, entry in results.items()} == {"accuracy": 24, "calibration": 36}


def test_results_of_the_best_weights_do_not_replace_those_of_the_last(run: Path, tmp_path: Path) -> None:
    run = shutil.copytree(run, tmp_path / "run")
    for which in ("last", "best"):
        assert cli.run(f"evaluate {run} --on accuracy --images 24 --which {which}".split()) == 0
    assert read_results(run / "evaluation")["accuracy"]["which"] == "last"
    assert read_results(run / "evaluation-best")["accuracy"]["which"] == "best"
    RunFolder(run).clear()
    assert not read_results(run / "evaluation")
    assert not read_results(run / "evaluation-best")


def test_the_accuracy_is_that_of_the_training(run: Path) -> None:
    assert cli.run(f"evaluate {run} --on accuracy".split()) == 0
    summary = json.loads((run / "summary.json").read_text())
    values = read_results(run / "evaluation")["accuracy"]["values"]
    assert values["top1"] == pytest.approx(summary["teacher_top1"], abs=1e-4)
    assert values["top5"] == pytest.approx(summary["teacher_top5"], abs=1e-4)


def test_evaluate_from_python(run: Path, tmp_path: Path) -> None:
    results = evaluate(run, ["calibration", "accuracy"], images=24, device="cpu")
    assert list(results) == ["accuracy", "calibration"]
    assert not (tmp_path / "results.json").exists()
    written = evaluate(run, "accuracy", images=24, device="cpu", out=tmp_path)
    assert written["accuracy"].values == results["accuracy"].values == read_results(tmp_path)["accuracy"]["values"]


@pytest.mark.parametrize("method", ["augmix", "pixmix", "vanilla"])
def test_methods_that_do_not_mix_pairs_are_not_scored_as_mixers(method: str, photos: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    assert cli.run(["train", str(photos), *TINY.split(), "--method", method, "--out", str(run)]) == 0
    result = evaluate(run, "mixed", device="cpu")["mixed"]
    assert {name.split("_")[0] for name in result.values} == {"mixup", "cutmix"}
    assert any(method in note and "pairs" in note for note in result.notes)


def test_without_boxes_localization_is_left_out_of_all_and_refused_by_name(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert cli.run(["train", str(photos), *TINY.split(), "--method", "mixup", "--out", str(run)]) == 0
    assert cli.run(f"evaluate {run} --on localization".split()) == 2
    assert "boxes" in capsys.readouterr().err
    assert cli.run(f"evaluate {run} --on accuracy all --images 12".split()) == 0
    assert "localization: left out, the data has no boxes" in capsys.readouterr().err
    left_out = ("localization", "efficiency")
    assert list(read_results(run / "evaluation")) == [name for name in EVALUATORS if name not in left_out]


def test_all_is_without_efficiency_and_a_folder_has_one_severity(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    assert cli.run(["train", str(photos), *TINY.split(), "--method", "mixup", "--out", str(run)]) == 0
    capsys.readouterr()
    assert cli.run(f"evaluate {run} --on all --images 6".split()) == 0
    shown = capsys.readouterr().err
    assert "efficiency: left out, it is not part of 'all'; --on all efficiency adds it" in shown
    assert "corruptions: one severity of five; --severities 1 2 3 4 5 measures all of them" in shown
    notes = read_results(run / "evaluation")["corruptions"]["notes"]
    assert any("19 corruptions at severity 3, generated" in note for note in notes)
    assert cli.run(f"evaluate {run} --on corruptions --severities 1 2 --images 6".split()) == 0
    assert "one severity" not in capsys.readouterr().err
    notes = read_results(run / "evaluation")["corruptions"]["notes"]
    assert any("at severity 1, 2, generated" in note for note in notes)
    assert cli.run(f"evaluate {run} --on corruptions --severities 6".split()) == 2
    assert "in [1, 5], got 6" in capsys.readouterr().err


def test_a_named_dataset_has_all_severities(run: Path) -> None:
    inputs = open_inputs(run, images=2)
    assert Session(inputs).chosen_severities == (1, 2, 3, 4, 5)
    assert Session(inputs, severities=(2,)).chosen_severities == (2,)


def test_evaluators_share_the_pass_over_clean_images(run: Path) -> None:
    """Counted in images that go through the classifier, without gradients."""
    inputs = open_inputs(run, images=12)
    session = Session(inputs, batch_size=6, severities=(1,))
    counts = Counter[str]()
    current = ""
    clean = {image.numpy().tobytes() for x, _ in inputs.samples.batches(6) for image in x}

    def count(_: torch.nn.Module, arguments: tuple[torch.Tensor]) -> None:
        counts[current] += sum(image.detach().numpy().tobytes() in clean for image in arguments[0])

    inputs.classifier.register_forward_pre_hook(count)
    for current in ("accuracy", "calibration", "corruptions", "mixed"):
        EVALUATORS[current].run(session)
    # the map of one image is tried; automix mixes normalized pixels, which come back slightly changed
    assert (counts["accuracy"], counts["calibration"], counts["corruptions"]) == (12, 0, 0)
    assert counts["mixed"] <= 1 + 12  # at most CutMix's box that covers nothing


def test_the_plan_counts_the_passes_over_the_images(run: Path) -> None:
    """Against the images that really go through the classifier, with gradients and without."""
    inputs = open_inputs(run, images=12)
    session = Session(inputs, batch_size=6, severities=(1, 4))
    plan = plan_evaluators(session, ["all"])
    assert list(plan) == ["predictions", *EVALUATORS]
    assert isinstance(plan["efficiency"], Skipped)
    _ = session.has_cam  # tries one image
    counts = Counter[tuple[str, bool]]()
    current = "predictions"

    def count(_: torch.nn.Module, arguments: tuple[torch.Tensor]) -> None:
        counts[current, arguments[0].requires_grad] += len(arguments[0])

    inputs.classifier.register_forward_pre_hook(count)
    _ = session.predictions
    for current in EVALUATORS:
        if isinstance(plan[current], Passes):
            EVALUATORS[current].run(session)
    found = {name: (counts[name, False] + counts[name, True], counts[name, True]) for name in plan}
    assert found["predictions"] == (12, 0)
    assert found["accuracy"] == found["calibration"] == (0, 0)
    for name in ("corruptions", "attacks"):
        passes = plan[name]
        assert isinstance(passes, Passes)
        assert found[name] == (12 * passes.count, 12 * passes.with_gradients), name
    assert plan["corruptions"] == Passes(38, detail="19 corruptions x 2 severities")
    assert plan["attacks"] == Passes(23, with_gradients=21, detail="FGSM, PGD-20")
    assert plan["mixed"] == Passes(33, detail="mixup, cutmix, automix at 11 lam")
    assert 12 * 27 <= found["mixed"][0] <= 12 * 33  # at lam 0 and 1 some are images whose logits are known
    assert plan["localization"] == Passes(1, detail="class activation maps")


def test_the_plan_estimates_from_a_few_images(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that counts the images that go through the classifier: 1 second for each."""
    inputs = open_inputs(run, images=48)
    session = Session(inputs, severities=(1,))
    plan = plan_evaluators(session, ["accuracy", "corruptions", "attacks", "efficiency"])
    seen = [0]
    inputs.classifier.register_forward_pre_hook(lambda _, x: seen.__setitem__(0, seen[0] + len(x[0])))
    monkeypatch.setattr("automix.evaluation.plan.time.perf_counter", lambda: float(seen[0]))
    seconds = estimate_seconds(session, plan)
    assert seconds == {"predictions": 48, "corruptions": 19 * 48, "attacks": 23 * 48}
    assert seen[0] == 2 * 4 * (1 + 19 + 23)  # 4 images, twice
    assert "predictions" not in vars(session)  # nothing of it is kept
    assert estimate_seconds(Session(open_inputs(run, images=23)), plan) == {}


def test_the_cost_is_printed_before_the_work(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ticks = iter(range(0, 10_000, 10))
    monkeypatch.setattr("automix.evaluation.plan.time.perf_counter", lambda: next(ticks))  # 10 seconds each
    assert cli.run(f"evaluate {run} --on accuracy attacks --images 36 --out {tmp_path}".split()) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines[:6] == [
        "36 test images of shapes, on cpu:",
        "  predictions: 1 pass (for accuracy, attacks), about 2 minutes",  # 10 s for 3 images
        "  attacks: 23 passes, 21 with gradients (FGSM, PGD-20), about 2 minutes",
        "about 4 minutes in all, as timed on a few images",
        "predicting: 0 of 1",
        "predicting: 1 of 1 in 0:00:00",
    ]
    assert lines[6] == "attacks: 0 of 20"


def test_shared_predictions_change_no_value(run: Path) -> None:
    inputs = open_inputs(run, images=24)
    given = {"predictions": predict_logits(inputs.classifier, inputs.samples)}
    mixers = Session(inputs).mixers.by_name
    evaluations: dict[str, Callable[..., Any]] = {
        "corruptions": partial(evaluate_corruptions, names=("fog", "contrast"), severities=(1, 5)),
        "attacks": partial(evaluate_attacks, steps=2, batch_size=7),
        "mixed": partial(evaluate_mixed, mixers=mixers, batch_size=9),
    }
    for name, run_evaluator in evaluations.items():
        shared, alone = (run_evaluator(inputs.classifier, inputs.samples, **options) for options in (given, {}))
        assert shared.values == alone.values, name


def test_features_of_the_mixer_are_computed_once_for_all_lams(run: Path) -> None:
    inputs = open_inputs(run, images=8)
    task = with_cache(load_task(run)[0], batches=1)
    assert isinstance(task, automix.AutoMix)
    calls: list[int] = []
    function = task.tap.function  # type: ignore[attr-defined]

    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return function(*arguments)

    task.tap.function = counted  # type: ignore[attr-defined]
    cached, plain = (task_mixer(mixing, inputs.card.mean, inputs.card.std) for mixing in (task, load_task(run)[0]))
    lams = {"lams": (0.2, 0.5, 0.7), "batch_size": 4}
    found = [
        evaluate_mixed(inputs.classifier, inputs.samples, {"automix": mixer}, **lams).values  # type: ignore[arg-type]
        for mixer in (cached, plain)
    ]
    assert found[0] == found[1]
    assert len(calls) == 2  # batches


def test_a_network_of_timm_by_name(photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its weights come from a file here; its classes, which have no names, are the data's."""
    import timm

    weights = tmp_path / "weights.safetensors"
    model = automix.create_model("test_resnet", num_classes=1000, image_size=160)
    save_file(model.state_dict(), weights)
    with pytest.raises(AutomixError, match=r"test_resnet.*1000 classes.*3"):
        open_inputs("test_resnet", data=str(photos), weights=str(weights))
    card = timm.get_pretrained_cfg("test_resnet")
    monkeypatch.setattr(card, "num_classes", 3)
    monkeypatch.setattr(timm, "get_pretrained_cfg", lambda name: card)
    with pytest.raises(AutomixError, match=r"weights\.safetensors: no 'fc\.weight' for 3 classes"):
        open_inputs("test_resnet", data=str(photos), weights=str(weights))  # not with a head of random numbers
    model = automix.create_model("test_resnet", num_classes=3, image_size=160)
    save_file(model.state_dict(), weights)
    subject = open_inputs("test_resnet", data=str(photos), weights=str(weights))
    assert subject.card.classes == ("a", "b", "c")
    assert subject.samples.image_size == 160
    x, _ = next(subject.samples.batches(2))
    assert subject.classifier(x).shape == (2, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("evaluate", "RUN"),
        ("evaluate no/such/run", "no/such/run: not found"),
        ("evaluate {run} --on callibration", "evaluation 'callibration'.*did you mean 'calibration'"),
        ("evaluate {run} --images 0", "images.*>= 1"),
        ("evaluate {run} --data digits", "12 classes.*10"),
        ("evaluate {run} --weights x.safetensors", "weights must not be given"),
        ("evaluate {run} --on corruptions --corrupted no/such", "no/such"),
        ("evaluate {run} --imges 3", "--imges.*--images"),
        ("evaluate test_resnet", "data must be given|no pretrained weights"),
        ("evaluate {run} --batch-size 0", "batch_size.*>= 1"),
    ],
)
def test_wrong_lines(arguments: str, message: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert cli.run(arguments.format(run=run).split()) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert re.search(message, err), err


def test_without_matplotlib_the_values_are_there(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)  # an import of it fails now
    assert cli.run(f"evaluate {run} --on accuracy --images 12 --out {tmp_path}".split()) == 0
    out, err = capsys.readouterr()
    assert "accuracy\ttop1\t" in out
    assert "not all pictures are drawn: plots need matplotlib" in err
    assert read_results(tmp_path)["accuracy"]["pictures"] == []


def test_damaged_results_are_named(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results.json").write_text("{")
    assert cli.run(f"evaluate {run} --on accuracy --out {tmp_path}".split()) == 2
    assert "results.json: cannot be read" in capsys.readouterr().err


def test_samples_come_in_order_and_spread_over_the_classes() -> None:
    images = torch.arange(10, dtype=torch.uint8).view(10, 1, 1, 1).expand(10, 3, 4, 4)
    samples = Samples(ImageSet(images, torch.tensor([0] * 5 + [1] * 5), ("a", "b")), 4)
    x, y = next(samples.batches(3))
    assert (x[:, 0, 0, 0] * 255).round().tolist() == [0, 1, 2]
    assert len(list(samples.batches(3))) == 4
    x, y = next(samples.first(4).batches())
    assert y.tolist() == [0, 0, 1, 1]
    assert samples.first(99) is samples


@pytest.mark.parametrize(
    ("shape", "size", "crop", "box", "expected"),
    [
        ((32, 32), 32, 1.0, [1, 2, 3, 4], [1, 2, 3, 4]),
        ((64, 32), 32, 1.0, [16, 0, 48, 32], [0, 0, 32, 32]),  # the center of a wide image
        ((64, 32), 32, 1.0, [0, 0, 32, 16], [0, 0, 16, 16]),  # half of it is cut off
        ((10, 20), 5, 1.0, [0, 0, 10, 20], [0, 0, 5, 5]),
        ((100, 100), 80, 0.8, [10, 10, 90, 90], [0, 0, 80, 80]),  # resized to 100, the center of 80
    ],
)
def test_boxes_follow_the_image(
    shape: tuple[int, int], size: int, crop: float, box: list[float], expected: list[float]
) -> None:
    assert resize_and_crop_boxes(torch.tensor([box], dtype=torch.float32), shape, size, crop)[0].tolist() == expected


@pytest.mark.skipif("AUTOMIX_DATA" not in os.environ, reason="AUTOMIX_DATA is not set")
def test_boxes_of_real_photos_lie_in_the_prepared_image() -> None:
    """The birds' boxes after resizing and cropping, against painting the box and resizing that."""
    from automix.data.image_files import ImageFiles
    from automix.data.image_set import resize_and_crop

    test = open_dataset("cub200")[1]
    assert isinstance(test, ImageFiles)
    assert test.boxes is not None
    few = test.take(torch.arange(0, len(test), len(test) // 12))
    prepared = next(Samples(few, 96, 0.9).parts())
    assert prepared.boxes is not None
    assert few.boxes is not None
    for index in range(len(few)):
        image, _ = few.read(index)
        painted = Image.new("RGB", image.size)
        x0, y0, x1, y1 = (round(v) for v in few.boxes[index].tolist())
        painted.paste((255, 255, 255), (x0, y0, x1, y1))
        fitted = torch.from_numpy(np.array(resize_and_crop(painted, painted.size, 96, 0.9)))[..., 0] > 127
        rows, columns = fitted.any(1).nonzero().flatten(), fitted.any(0).nonzero().flatten()
        seen = torch.tensor([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]).float()
        assert (seen - prepared.boxes[index]).abs().max() <= 1.5
