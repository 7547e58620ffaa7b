"""Calibration: hand-worked bins, and oracles for the scores and for the temperature."""

import builtins
import os
from typing import Any

import numpy as np
import pytest
import torch
from conftest import HandWritten
from scipy.optimize import minimize_scalar
from sklearn.metrics import brier_score_loss, log_loss
from torch import Tensor
from torchmetrics.functional.classification import multiclass_calibration_error

from automix.core.errors import AutomixError
from automix.data import ImageSet, draw_shapes, open_dataset
from automix.data.shapes import CLASSES
from automix.evaluation.calibration import (
    confidences,
    draw_reliability,
    evaluate_calibration,
    expected_calibration_error,
    nll_and_brier,
    reliability,
)
from automix.evaluation.samples import Samples
from automix.evaluation.temperature import cross_fit_temperature, first_half, fit_temperature


def sure(confidence: list[float], right: list[int], classes: int = 4) -> tuple[Tensor, Tensor]:
    """Logits that give class 0 just that probability, and share the rest; labels that make image i right or wrong."""
    share = torch.tensor(confidence, dtype=torch.float64).unsqueeze(1)
    logits = torch.cat([share.log(), ((1 - share) / (classes - 1)).log().expand(-1, classes - 1)], dim=1)
    return logits, 1 - torch.tensor(right)


def overconfident(count: int = 600, classes: int = 6, sharpness: float = 3.0) -> tuple[Tensor, Tensor]:
    """An overconfident classifier: labels are drawn from its softmax, which is then sharpened."""
    generator = torch.Generator().manual_seed(1)
    logits = 2 * torch.randn(count, classes, generator=generator)
    labels = logits.softmax(dim=1).multinomial(1, generator=generator).squeeze(1)
    return logits * sharpness, labels


def samples_for(labels: Tensor, classes: int) -> Samples:
    images = torch.zeros(len(labels), 3, 2, 2, dtype=torch.uint8)
    return Samples(ImageSet(images, labels, tuple(f"class {i}" for i in range(classes))), 2)


def test_a_calibrated_classifier_has_no_error() -> None:
    assert expected_calibration_error(*sure([0.8] * 10, [1] * 8 + [0] * 2)) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize(
    ("confidence", "right", "expected"),
    [
        ([0.8] * 10, [1] * 6 + [0] * 4, 0.2),  # one bin: |0.6 - 0.8|
        ([0.9, 0.9, 0.5, 0.5], [1, 0, 1, 1], 0.5 * 0.4 + 0.5 * 0.5),  # two bins, both wrong, one each way
        ([0.62, 0.64, 0.66], [0, 1, 1], abs(2 / 3 - 0.64)),  # all in [0.6, 0.667): only their means count
        ([0.59, 0.61], [0, 1], (0.59 + 0.39) / 2),  # 0.6 is an edge
        ([0.79, 0.8], [0, 1], (0.79 + 0.2) / 2),  # 0.8 is one, exactly, and belongs to the upper bin
        ([0.595, 0.605, 0.605], [1, 0, 0], (0.405 + 2 * 0.605) / 3),
        ([1 - 1e-12, 0.95, 0.94], [0, 1, 1], abs(2 / 3 - 2.89 / 3)),  # 1 belongs to the last bin
    ],
)
def test_bins_worked_by_hand(confidence: list[float], right: list[int], expected: float) -> None:
    logits, labels = sure(confidence, right)
    assert expected_calibration_error(logits, labels) == pytest.approx(expected, abs=1e-6)
    bins = reliability(logits, labels)
    assert (bins.share * (bins.accuracy - bins.confidence).abs()).nansum().item() == pytest.approx(expected, abs=1e-6)


def test_the_diagram_has_the_bins_of_the_error() -> None:
    logits, labels = overconfident()
    bins = reliability(logits, labels)
    assert len(bins.share) == 15
    assert bins.share.sum().item() == pytest.approx(1)
    summed = (bins.share * (bins.accuracy - bins.confidence).abs()).nansum().item()
    assert summed == pytest.approx(expected_calibration_error(logits, labels), abs=1e-6)
    oracle = multiclass_calibration_error(logits.double().softmax(dim=1), labels, num_classes=6, n_bins=15)
    assert oracle.item() == pytest.approx(summed, abs=1e-3)  # but for a bin of its own for 1


def test_scores_are_those_of_scikit_learn() -> None:
    logits, labels = overconfident()
    probabilities = logits.double().softmax(dim=1).numpy()
    nll, brier = nll_and_brier(logits, labels)
    assert nll == pytest.approx(log_loss(labels, probabilities, labels=range(6)))
    assert brier == pytest.approx(brier_score_loss(labels, probabilities, labels=range(6), scale_by_half=False))


def test_chunks_make_no_difference() -> None:
    logits, labels = overconfident(1201)
    many = logits.repeat(3, 1), labels.repeat(3)
    assert nll_and_brier(*many) == pytest.approx(nll_and_brier(logits, labels))
    assert expected_calibration_error(*many) == pytest.approx(expected_calibration_error(logits, labels), abs=1e-6)
    assert fit_temperature(*many) == pytest.approx(fit_temperature(logits, labels))
    assert torch.equal(confidences(many[0]), confidences(logits).repeat(3))


def oracle_temperature(logits: Tensor, labels: Tensor) -> float:
    rows = logits.double().numpy()

    def loss(log_temperature: float) -> float:
        scaled = rows / np.exp(log_temperature)
        top = scaled.max(axis=1)
        normalizer = top + np.log(np.exp(scaled - top[:, None]).sum(axis=1))
        return float((normalizer - scaled[np.arange(len(rows)), labels.numpy()]).mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-9, 9), method="bounded", options={"xatol": 1e-9}).x))


@pytest.mark.parametrize("sharpness", [0.001, 0.2, 1.0, 3.0, 1000.0])
def test_the_temperature_is_that_of_scipy(sharpness: float) -> None:
    logits, labels = overconfident(sharpness=sharpness)
    assert fit_temperature(logits, labels) == pytest.approx(oracle_temperature(logits, labels), rel=1e-5)
    assert fit_temperature(logits, labels) == pytest.approx(sharpness, rel=0.1)


def test_the_temperature_has_bounds_where_the_loss_has_no_minimum() -> None:
    logits = torch.eye(4).repeat(5, 1) * 7
    spread = 7 * (3 / 16) ** 0.5  # of (7, 0, 0, 0)
    labels = torch.arange(4).repeat(5)
    assert fit_temperature(logits, labels) == pytest.approx(spread / 1000, rel=1e-6)
    assert fit_temperature(logits, (labels + 1) % 4) == pytest.approx(spread * 1000, rel=1e-6)
    assert fit_temperature(torch.ones(8, 4), torch.arange(8) % 4) == 1
    for truth in (labels, (labels + 1) % 4):
        assert cross_fit_temperature(logits, truth)[0].isfinite().all()


def test_halves_alternate_within_classes() -> None:
    labels = torch.tensor([0, 1, 0, 1, 0, 0, 2, 1, 3])
    first = first_half(labels)
    # in the order of the classes 0 0 0 0 | 1 1 1 | 2 | 3 every other one
    assert first.tolist() == [True, True, False, False, True, False, False, True, True]


def test_each_half_is_scaled_by_the_temperature_of_the_other() -> None:
    logits, labels = overconfident()
    first = first_half(labels)
    scaled, (of_first, of_second) = cross_fit_temperature(logits, labels)
    torch.testing.assert_close(scaled[first], logits[first] / fit_temperature(logits[~first], labels[~first]))
    torch.testing.assert_close(scaled[~first], logits[~first] / fit_temperature(logits[first], labels[first]))
    assert of_first == fit_temperature(logits[first], labels[first])
    changed = logits.clone()
    changed[first] *= 5
    again, (of_first_again, of_second_again) = cross_fit_temperature(changed, labels)
    assert of_second_again == of_second
    assert of_first_again == pytest.approx(5 * of_first)
    torch.testing.assert_close(again[first], 5 * scaled[first])


def found(logits: Tensor, labels: Tensor) -> dict[str, float]:
    classes = logits.shape[1]
    return evaluate_calibration(HandWritten(classes), samples_for(labels, classes), predictions=(logits, labels)).values


def test_ece_after_scaling_does_not_depend_on_the_scale_of_the_logits() -> None:
    logits, labels = overconfident(3000)
    honest, sharp, shy = (found(logits * factor, labels) for factor in (1 / 3, 1, 1 / 9))
    for values in (sharp, shy):
        assert values["ece_scaled"] == pytest.approx(honest["ece_scaled"], abs=1e-3)
    assert honest["ece"] < 5
    assert sharp["ece"] > 10
    assert sharp["ece_scaled"] < 5
    assert sharp["overconfidence"] > 10
    assert shy["overconfidence"] < -10
    assert (honest["temperature"], sharp["temperature"], shy["temperature"]) == pytest.approx((1, 3, 1 / 3), rel=0.05)


def test_values_are_in_percent_unless_the_note_names_them() -> None:
    logits, labels = sure([0.8] * 10, [1] * 6 + [0] * 4)
    evaluation = evaluate_calibration(HandWritten(4), samples_for(labels, 4), predictions=(logits, labels))
    values = evaluation.values
    assert values["ece"] == pytest.approx(20, abs=1e-4)
    assert values["confidence"] == pytest.approx(80, abs=1e-4)
    assert values["overconfidence"] == pytest.approx(20, abs=1e-4)
    # six right: 0.2^2 + 3 (0.2 / 3)^2; four wrong: 0.8^2 + (1 - 0.2 / 3)^2 + 2 (0.2 / 3)^2
    right, wrong = 0.04 + 3 * (0.2 / 3) ** 2, 0.64 + (1 - 0.2 / 3) ** 2 + 2 * (0.2 / 3) ** 2
    assert values["brier"] == pytest.approx(0.6 * right + 0.4 * wrong)
    assert values["nll"] == pytest.approx(-0.6 * np.log(0.8) - 0.4 * np.log(0.2 / 3))
    assert all(name in evaluation.notes[0] for name in ("temperature", "brier", "nll"))


def test_a_classifier_and_images_are_enough() -> None:
    shapes = draw_shapes(48, 16)
    samples = Samples(ImageSet(shapes.images, shapes.labels, CLASSES), 16)
    evaluation = evaluate_calibration(HandWritten(12).eval(), samples, batch_size=20)
    assert list(evaluation.values) == [
        "ece", "ece_scaled", "temperature", "confidence", "overconfidence", "brier", "nll"
    ]  # fmt: skip
    assert evaluation.pictures["reliability"]().size == (1008, 684)


def test_the_picture_can_be_drawn_with_empty_bins() -> None:
    bins = reliability(*sure([0.8] * 10, [1] * 6 + [0] * 4))
    assert bins.share.count_nonzero() == 1
    assert draw_reliability({"one": bins}).size == (504, 684)


@pytest.mark.parametrize(("labels", "classes"), [([0, 0], 1), ([1], 3)])
def test_two_images_and_two_classes_are_needed(labels: list[int], classes: int) -> None:
    with pytest.raises(AutomixError, match=r"samples.*at least 2 images and 2 classes"):
        evaluate_calibration(HandWritten(5), samples_for(torch.tensor(labels), classes))


def test_torchmetrics_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *others: Any, **options: Any) -> Any:
        if name.startswith("torchmetrics"):
            raise ImportError(name)
        return real(name, *others, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(AutomixError, match=r"torchmetrics.*automix\[evaluate\]"):
        evaluate_calibration(NeverRun(5), samples_for(torch.tensor([0, 1]), 5))


class NeverRun(HandWritten):
    def forward(self, x: Tensor) -> Tensor:
        raise AssertionError("run before the check")


@pytest.mark.skipif("AUTOMIX_DATA" not in os.environ, reason="AUTOMIX_DATA is not set")
def test_real_photos() -> None:
    """A new network knows nothing, and temperature scaling makes it say so: all classes alike, 1 %."""
    samples = Samples(open_dataset("cifar100")[1], 32).first(200)
    torch.manual_seed(0)
    model = HandWritten(100)
    torch.nn.init.normal_(model.head.weight, std=20)
    values = evaluate_calibration(model, samples).values
    assert values["overconfidence"] > 5
    assert values["temperature"] > 3
    assert values["ece_scaled"] < values["ece"] / 3
