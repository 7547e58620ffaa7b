"""What a classifier gets wrong: which classes are confused, which errors are confident, and their pictures."""

import pytest
import sklearn.metrics
import torch

from automix.data import ImageSet
from automix.evaluation.accuracy import evaluate_accuracy
from automix.evaluation.mistakes import (
    MATRIX_CLASSES,
    confusion_matrix,
    draw_confident_errors,
    draw_confusions,
    most_confident_errors,
    worst_confusions,
)
from automix.evaluation.progress import progress_lines
from automix.evaluation.samples import Samples

LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2])
PREDICTED = torch.tensor([0, 1, 1, 2, 1, 0, 1, 2])
CONFIDENCE = torch.tensor([5.0, 1, 3, 9, 5, 2, 4, 5])  # the logit of the prediction


def logits() -> torch.Tensor:
    return torch.zeros(8, 3).scatter(1, PREDICTED.unsqueeze(1), CONFIDENCE.unsqueeze(1))


def samples(labels: torch.Tensor = LABELS, classes: tuple[str, ...] = ("a", "$b_{$", "<c>")) -> Samples:
    images = torch.randint(256, (len(labels), 3, 16, 16), dtype=torch.uint8)
    return Samples(ImageSet(images, labels, classes), 16)


def test_errors_by_confidence() -> None:
    assert most_confident_errors(logits(), LABELS).tolist() == [3, 6, 2, 5, 1]
    assert most_confident_errors(logits(), PREDICTED).tolist() == []


def test_confusions_by_frequency() -> None:
    first, second, *others = worst_confusions(logits(), LABELS)
    assert (first.label, first.predicted, first.positions.tolist(), first.of) == (0, 1, [2, 1], 4)
    assert (second.label, second.predicted, second.positions.tolist(), second.of) == (0, 2, [3], 4)
    assert [(one.label, one.predicted) for one in others] == [(1, 0), (2, 1)]
    assert len(worst_confusions(logits(), LABELS, count=2)) == 2
    assert worst_confusions(logits(), PREDICTED) == []


def test_the_matrix_is_that_of_scikit_learn() -> None:
    answers, labels = torch.randn(200, 7), torch.randint(6, (200,))  # no image of the last class
    expected = sklearn.metrics.confusion_matrix(labels, answers.argmax(dim=1), labels=range(7), normalize="true")
    torch.testing.assert_close(confusion_matrix(answers, labels), torch.from_numpy(expected))


def test_pictures_are_drawn_whatever_the_names_are() -> None:
    """A class named as a formula, and one as a tag."""
    for draw in (draw_confusions, draw_confident_errors):
        picture = draw(logits(), LABELS, samples())
        assert picture.width > 900
        assert len(picture.getcolors(1 << 20) or []) > 500  # the images are in it


@pytest.mark.parametrize(
    ("labels", "count", "pictures"),
    [
        (LABELS, 3, {"accuracy-by-class", "confusions", "confident-errors", "confusion-matrix"}),
        (PREDICTED, 3, {"accuracy-by-class", "confusion-matrix"}),  # nothing is wrong
        (LABELS, MATRIX_CLASSES + 1, {"accuracy-by-class", "confusions", "confident-errors"}),
    ],
)
def test_pictures_of_the_evaluator(labels: torch.Tensor, count: int, pictures: set[str]) -> None:
    answers = torch.zeros(8, count).scatter(1, PREDICTED.unsqueeze(1), CONFIDENCE.unsqueeze(1))
    given = samples(labels, tuple(f"class {number}" for number in range(count)))
    result = evaluate_accuracy(torch.nn.Identity(), given, predictions=(answers, labels))
    assert result.pictures.keys() == pictures
    for draw in result.pictures.values():
        assert draw().width > 300


def test_progress_is_printed_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 100, 4))  # four seconds an item
    monkeypatch.setattr("automix.evaluation.progress.time.monotonic", lambda: next(clock))
    assert list(progress_lines("abcde", 5, "predicting")) == list("abcde")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "predicting: 0 of 5",
        "predicting: 2 of 5, 0:00:18 left",  # 2 items in 12 seconds
        "predicting: 5 of 5 in 0:00:24",
    ]
