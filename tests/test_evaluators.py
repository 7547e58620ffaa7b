"""What holds for every evaluator: nothing is changed, progress is shown, wrong input is refused, pictures are drawn."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import HandWritten
from evaluation_data import COLORS, RecordingTrack, squares, unchanged
from torch import nn

from automix.core.errors import AutomixError
from automix.data.image_set import ImageSet
from automix.evaluation import (
    EVALUATORS,
    EvaluationResult,
    Samples,
    evaluate_accuracy,
    evaluate_attacks,
    evaluate_calibration,
    evaluate_corruptions,
    evaluate_efficiency,
    evaluate_localization,
    evaluate_mixed,
    method_mixer,
)
from automix.views.report.evaluations import CAPTIONS

Evaluate = Callable[..., EvaluationResult]


def efficiency(model: nn.Module, samples: Samples, **options: Any) -> EvaluationResult:
    given = {"num_classes": len(samples.classes), "image_size": 16, "batch_size": 6, "steps": 1, "method": "mixup"}
    return evaluate_efficiency(model, **{**given, **options})


OF_BATCHES: dict[str, Evaluate] = {
    "accuracy": evaluate_accuracy,
    "calibration": evaluate_calibration,
    "corruptions": partial(evaluate_corruptions, names=("contrast",), severities=(1,)),
    "attacks": partial(evaluate_attacks, steps=2),
    "localization": evaluate_localization,
    "localization by Grad-CAM": partial(evaluate_localization, method="grad_cam", layer="body"),
}
OF_IMAGES: dict[str, Evaluate] = {
    **OF_BATCHES,
    "mixed": partial(evaluate_mixed, mixers={"cutmix": method_mixer("cutmix")}, lams=(0.5, 1)),
}
ALL: dict[str, Evaluate] = {**OF_IMAGES, "efficiency": efficiency}


def half_frozen() -> HandWritten:
    model = HandWritten(3).train()
    model.stem.eval().requires_grad_(False)
    return model


def no_images() -> Samples:
    empty = torch.zeros(0, 3, 16, 16, dtype=torch.uint8)
    return Samples(ImageSet(empty, torch.zeros(0, dtype=torch.int64), COLORS, torch.zeros(0, 4)), 16)


@pytest.mark.parametrize("name", ALL)
def test_model_and_random_numbers_stay_as_they_are(name: str) -> None:
    model = half_frozen()
    with unchanged(model):
        first = ALL[name](model, squares())
    again = ALL[name](model, squares())
    assert {**first.values, "step_ratio": 0} == {**again.values, "step_ratio": 0}  # a time is never the same


@pytest.mark.parametrize("name", ALL)
def test_progress_reaches_its_total(name: str) -> None:
    track = RecordingTrack()
    ALL[name](HandWritten(3), squares(), batch_size=4, track=track)
    assert track.seen == track.total > 0


@pytest.mark.parametrize("name", OF_BATCHES)
def test_values_do_not_depend_on_the_batch_size(name: str) -> None:
    model = HandWritten(3).eval()
    found = [OF_BATCHES[name](model, squares(9), batch_size=size).values for size in (2, 9)]
    assert found[0] == pytest.approx(found[1], abs=1e-3)


@pytest.mark.parametrize("name", EVALUATORS)
def test_names_agree_with_the_pages(name: str) -> None:
    docs = Path(__file__).parents[1] / "docs" / "evaluate"
    assert f"--on {name}" in (docs / f"{name}.md").read_text()
    assert f"[{name}]({name}.md)" in (docs / "README.md").read_text()
    assert name in ALL


@pytest.mark.parametrize("name", ALL)
def test_values_have_notes_and_pictures(name: str) -> None:
    result = ALL[name](HandWritten(3), squares())
    assert dict(result) == result.values
    assert all(isinstance(value, float) for value in result.values.values())
    assert all(note and "\n" not in note for note in result.notes)
    assert result.pictures.keys() <= CAPTIONS.keys()  # of the report
    assert result.pictures
    for draw in result.pictures.values():
        picture = draw()
        assert picture.mode == "RGB"
        assert min(picture.size) > 100


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("batch_size", [0, -1, 2.5])
def test_batch_size_must_be_a_positive_whole_number(name: str, batch_size: Any) -> None:
    with pytest.raises(AutomixError, match=r"batch_size.*[12]"):
        ALL[name](HandWritten(3), squares(), batch_size=batch_size)


@pytest.mark.parametrize("num_classes", [2, 4])
@pytest.mark.parametrize("name", ALL)
def test_the_model_must_have_the_classes_of_the_data(name: str, num_classes: int) -> None:
    with pytest.raises(AutomixError, match=f"3 logits.*got {num_classes}"):
        ALL[name](HandWritten(num_classes), squares())


@pytest.mark.parametrize("name", OF_IMAGES)
def test_samples_must_not_be_empty(name: str) -> None:
    with pytest.raises(AutomixError, match="samples must"):
        OF_IMAGES[name](HandWritten(3), no_images())
