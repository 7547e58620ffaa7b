"""Predictions as CSV and JSON: read back by csv and json, they are what `predict` gave."""

import csv
import json
from pathlib import Path

import pytest

import automix
from automix import AutomixError
from automix.cli import main as cli
from automix.deploy.prediction import Prediction, predict
from automix.deploy.prediction_files import write_predictions

FOUND = [
    Prediction(Path("a, b.jpg"), ('cat "tom"', "dog"), (0.75, 0.25)),
    Prediction(Path("broken.jpg"), error="no image"),
]


def test_a_csv_file_has_a_line_for_each_image(tmp_path: Path) -> None:
    write_predictions(tmp_path / "new" / "answers.csv", FOUND)
    with (tmp_path / "new" / "answers.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    assert rows == [
        ["image", "class", "probability", "class_2", "probability_2", "error"],
        ["a, b.jpg", 'cat "tom"', "0.750000", "dog", "0.250000", ""],
        ["broken.jpg", "", "", "", "", "no image"],
    ]


def test_a_json_file_has_an_object_for_each_image(tmp_path: Path) -> None:
    write_predictions(tmp_path / "answers.JSON", FOUND)
    classes = [{"class": 'cat "tom"', "probability": 0.75}, {"class": "dog", "probability": 0.25}]
    assert json.loads((tmp_path / "answers.JSON").read_text()) == [
        {"image": "a, b.jpg", "classes": classes, "error": None},
        {"image": "broken.jpg", "classes": [], "error": "no image"},
    ]


def test_other_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AutomixError, match=r"out must end in \.csv or \.json, got .*answers\.xlsx"):
        write_predictions(tmp_path / "answers.xlsx", FOUND)


def test_the_command_writes_what_predict_finds(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]}
    run = tmp_path / "run"
    automix.train(photos, out=str(run), method="mixup", epochs=1, batch_size=12, model_options=small)
    out = tmp_path / "answers.json"
    assert cli.run(["predict", str(run), str(photos / "test"), "--top", "2", "--out", str(out)]) == 0
    answers = json.loads(out.read_text())
    expected = list(predict(run, photos / "test", top=2))
    assert [answer["image"] for answer in answers] == [str(one.path) for one in expected]
    assert [answer["classes"][0]["class"] for answer in answers] == [one.classes[0] for one in expected]
    assert capsys.readouterr().out == f"{out}: {len(expected)} images\n"
