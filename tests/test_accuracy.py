"""Predictions of a classifier, its accuracies, and the paper's protocol over epochs and trials."""

import json
import os
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from conftest import HandWritten
from scipy.stats import binomtest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, top_k_accuracy_score
from torch import Tensor, nn
from torchmetrics.functional.classification import multiclass_accuracy

from automix.core.accuracy import accuracy_interval, topk_accuracy, topk_correct
from automix.core.errors import AutomixError
from automix.data import ImageSet, draw_shapes, open_dataset
from automix.data.shapes import CLASSES
from automix.evaluation.accuracy import (
    draw_worst_classes,
    evaluate_accuracy,
    most_frequent_error,
    per_class_accuracy,
)
from automix.evaluation.predictions import predict_logits
from automix.evaluation.samples import Samples
from automix.runs.protocol import median_of_last, over_trials, protocol


class Lookup(nn.Module):
    """Gives the logits that belong to an image's first value: an answer for every image, known beforehand."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.logits = nn.Parameter(logits)

    def forward(self, x: Tensor) -> Tensor:
        return self.logits[(x[:, 0, 0, 0] * 255).round().long()]


def numbered(labels: list[int], classes: int) -> Samples:
    """Images whose values are their numbers."""
    images = torch.arange(len(labels), dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 3, 2, 2)
    return Samples(ImageSet(images, torch.tensor(labels), tuple(f"class {i}" for i in range(classes))), 2)


def drawn(count: int = 60) -> Samples:
    shapes = draw_shapes(count, 16)
    return Samples(ImageSet(shapes.images, shapes.labels, CLASSES), 16)


# six classes, six images: right, second, third, fifth, sixth (last), right
HAND_LABELS = [0, 1, 2, 3, 4, 0]
HAND_LOGITS = torch.tensor(
    [
        [9.0, 1, 2, 3, 4, 5],
        [9.0, 8, 2, 3, 4, 5],
        [9.0, 8, 7, 3, 4, 5],
        [9.0, 8, 7, 2, 4, 1],
        [9.0, 8, 7, 6, 0, 5],
        [9.0, 1, 2, 3, 4, 5],
    ]
)


def test_values_worked_out_by_hand() -> None:
    found = evaluate_accuracy(Lookup(HAND_LOGITS), numbered(HAND_LABELS, 6), batch_size=4)
    # per class: 0 has both right; 1, 2, 3, 4 none of one; 5 has no images
    expected = {"top1": 100 * 2 / 6, "top5": 100 * 5 / 6, "mean_class_accuracy": 100 / 5}
    assert {name: found.values[name] for name in expected} == pytest.approx(expected)
    assert found.values.keys() - expected.keys() == {"top1_low", "top1_high"}
    assert found.notes == ("1 of 6 classes have no images and do not count",)


def test_accuracies_are_those_of_scikit_learn_and_torchmetrics() -> None:
    logits, labels = torch.randn(500, 8), torch.randint(8, (500,)) ** 2 % 8  # unequal classes: 0, 1 and 4 only
    labels[:40] = torch.arange(40) % 8
    assert topk_accuracy(logits, labels) == pytest.approx(100 * accuracy_score(labels, logits.argmax(dim=1)))
    for top in (1, 5):
        torchmetrics = multiclass_accuracy(logits, labels, num_classes=8, top_k=top, average="micro")
        assert topk_accuracy(logits, labels, top) == pytest.approx(100 * torchmetrics.item())
        assert topk_accuracy(logits, labels, top) == pytest.approx(
            100 * top_k_accuracy_score(labels, logits, k=top, labels=range(8))
        )
    by_class = multiclass_accuracy(logits, labels, num_classes=8, average="none")
    ours = per_class_accuracy(logits.argmax(dim=1), labels, 8)
    torch.testing.assert_close(ours.float(), 100 * by_class)
    mean = 100 * balanced_accuracy_score(labels, logits.argmax(dim=1))
    assert ours.mean().item() == pytest.approx(mean)


@pytest.mark.parametrize(("right", "count"), [(0, 12), (1, 7), (844, 1171), (500, 500)])
def test_the_interval_is_that_of_scipy(right: int, count: int) -> None:
    expected = binomtest(right, count).proportion_ci(0.95, method="wilson")
    assert accuracy_interval(100 * right / count, count) == pytest.approx((100 * expected.low, 100 * expected.high))


def test_correct_predictions_by_hand() -> None:
    correct = topk_correct(HAND_LOGITS, torch.tensor(HAND_LABELS), (1, 2, 5, 99))
    assert correct.int().tolist() == [[1, 0, 0, 0, 0, 1], [1, 1, 0, 0, 0, 1], [1, 1, 1, 1, 0, 1], [1] * 6]


def test_a_note_says_that_top5_is_trivial_for_five_classes_or_fewer() -> None:
    found = evaluate_accuracy(Lookup(torch.eye(3)), numbered([0, 2, 1], 3))
    assert found.values["top1"] == pytest.approx(100 / 3)
    assert found.values["top5"] == 100
    assert found.notes == ("top5 is 100 by definition: there are 3 classes",)


def test_logits_are_those_of_the_model_in_eval_mode() -> None:
    model, samples = HandWritten(len(CLASSES)).train(), drawn()
    logits, labels = predict_logits(model, samples, batch_size=7)
    assert logits.dtype == torch.float32
    assert not logits.requires_grad
    assert labels.tolist() == samples.source.labels.tolist()  # type: ignore[union-attr]
    with torch.no_grad():
        torch.testing.assert_close(logits, model.eval()(draw_shapes(60, 16).images / 255))


def test_a_bfloat16_classifier_gets_bfloat16_images() -> None:
    model = HandWritten(len(CLASSES)).eval()
    exact, _ = predict_logits(model, drawn())
    half, _ = predict_logits(model.bfloat16(), drawn())
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, exact, atol=0.05, rtol=0.05)


def test_given_predictions_replace_the_forward_pass() -> None:
    model, samples = HandWritten(len(CLASSES)), drawn()
    predictions = predict_logits(model, samples)
    model.forward = None  # type: ignore[assignment]
    assert evaluate_accuracy(model, samples, predictions=predictions).values["top1"] == topk_accuracy(*predictions)


@pytest.mark.parametrize(
    ("predictions", "message"),
    [
        ((torch.eye(3)[:2], torch.tensor([0, 3])), r"\[0, 2\].*3"),
        ((torch.zeros(1, 3, 2), torch.tensor([0])), r"predictions.*\(N, C\).*\(N,\)"),
        ((torch.zeros(4, 3), torch.zeros(3, dtype=torch.int64)), r"predictions.*\(N, C\).*\(N,\)"),
        ((torch.full((1, 3), torch.nan), torch.tensor([0])), "finite"),
    ],
)
def test_wrong_predictions_are_refused(predictions: tuple[Tensor, Tensor], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_accuracy(Lookup(torch.eye(3)), numbered([0, 2], 3), predictions=predictions)


def test_most_frequent_error() -> None:
    assert most_frequent_error(torch.tensor([1, 1, 1, 3, 3, 0, 1, 2]), 1) == (3, 25.0)
    assert most_frequent_error(torch.tensor([4, 4]), 4)[1] == 0
    assert most_frequent_error(torch.tensor([0, 0, 7, 5]), 9) == (0, 50.0)


@pytest.mark.parametrize("classes", [1, 2, 12, 1000])
def test_the_picture_has_room_for_any_number_of_classes(classes: int) -> None:
    labels = torch.arange(2 * classes) % classes
    names = tuple(f"{'a very long name of class number ' * (i % 2)}{i} $x_$" for i in range(classes))
    picture = draw_worst_classes(torch.randint(classes, (2 * classes,)), labels, names)
    assert picture.width == 1080
    assert picture.height == pytest.approx(120 * (1.1 + 0.24 * min(classes, 20)), abs=1)


# --- the protocol


def test_the_median_is_over_the_last_ten_epochs_not_the_last_ten_values() -> None:
    rising = {epoch: float(epoch) for epoch in range(1, 31)}
    assert median_of_last(rising) == (25.5, 10)
    assert median_of_last({epoch: rising[epoch] for epoch in range(3, 31, 3)}) == (25.5, 4)  # 21, 24, 27, 30
    assert median_of_last({1: 5.0, 2: 50.0, 3: 6.0}) == (6.0, 3)
    assert median_of_last(rising, count=3) == (29.0, 3)
    assert median_of_last({2: 1.0, 1: 9.0}, count=1) == (1.0, 1)  # in any order


def test_trials_have_a_sample_deviation() -> None:
    trials = over_trials([76.0, 76.3, 75.7])
    assert [trials.mean, trials.std] == pytest.approx([76, 0.3])
    assert str(trials) == "76.00 +- 0.30 (3 trials, median of the last 10 epochs)"
    assert str(over_trials([76.0])) == "76.00 (1 trial, median of the last 10 epochs)"
    assert over_trials([1.0]).std is None


def write_run(folder: Path, seed: int, top1: dict[int, float], teacher: bool = False, **config: Any) -> Path:
    folder.mkdir()
    settings = {"data": "shapes", "method": "mixup", "epochs": 12, "eval_every": 1, "lr": 0.1, **config}
    settings |= {"seed": seed, "out": str(folder)}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    records: list[dict[str, Any]] = [{"kind": "step", "step": 0, "loss": 1.0}]
    for epoch in range(1, max(top1) + 1):
        record: dict[str, Any] = {"kind": "epoch", "step": epoch, "epoch": epoch}
        if epoch in top1:
            record["student_top1"] = -1.0 if teacher else top1[epoch]
            record |= {"teacher_top1": top1[epoch]} if teacher else {}
        records.append(record)
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records) + '{"kind": "ep')
    return folder


@pytest.mark.parametrize("teacher", [False, True])
def test_folders_of_runs_give_the_papers_line(tmp_path: Path, teacher: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    trials = [dict(enumerate((70 + torch.rand(12, generator=generator)).tolist(), start=1)) for _ in range(3)]
    runs = [write_run(tmp_path / f"run-{seed}", seed, trials[seed], teacher) for seed in range(3)]
    medians = [statistics.median(list(trial.values())[-10:]) for trial in trials]
    expected = f"{statistics.mean(medians):.2f} +- {statistics.stdev(medians):.2f}"
    assert str(protocol(runs)) == f"{expected} (3 trials, median of the last 10 epochs)"


def test_a_run_that_was_evaluated_seldom_says_so(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", 0, {4: 50.0, 8: 60.0, 12: 61.0})
    assert str(protocol([run])) == "60.00 (1 trial, median of the 3 measured of the last 10 epochs)"


def test_runs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    ten = dict.fromkeys(range(1, 13), 70.0)
    run = write_run(tmp_path / "a", 0, ten, workers=2)
    again, other = write_run(tmp_path / "b", 0, ten), write_run(tmp_path / "c", 1, ten, lr=0.2)
    unfinished = write_run(tmp_path / "d", 2, {11: 70.0})
    (empty := tmp_path / "e").mkdir()
    (nothing_logged := write_run(tmp_path / "f", 3, ten)).joinpath("metrics.jsonl").unlink()
    for runs, message in {
        (run, again): f"{again}.* seed 0 .*{run}",
        (run, other): rf"{other}: lr=0\.2 .*lr=0\.1",
        (run, unfinished): f"{unfinished}: 11 of 12 epochs",
        (empty,): f"{empty}/config.yaml: no such file",
        (nothing_logged,): rf"{nothing_logged}: no metrics\.jsonl",
        (): "runs must be one folder or more",
    }.items():
        with pytest.raises(AutomixError, match=message):
            protocol(list(runs))


def test_runs_may_differ_in_what_decides_nothing(tmp_path: Path) -> None:
    ten = dict.fromkeys(range(1, 13), 70.0)
    runs = [write_run(tmp_path / name, seed, ten, workers=seed) for seed, name in enumerate("ab")]
    assert protocol(runs).std == 0


@pytest.mark.skipif("AUTOMIX_DATA" not in os.environ, reason="AUTOMIX_DATA is not set")
def test_real_photos() -> None:
    """The labels are the photos' own: logits that know them are right, those of a new network are not."""
    samples = Samples(open_dataset("cifar100")[1], 32).first(200)
    model = HandWritten(100)
    logits, labels = predict_logits(model, samples)
    told = nn.functional.one_hot(labels, 100).float()
    assert evaluate_accuracy(model, samples, predictions=(told, labels)).values["top1"] == 100
    assert evaluate_accuracy(model, samples, predictions=(logits, labels)).values["top1"] < 20
