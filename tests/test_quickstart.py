"""`automix quickstart`: plain training and AutoMix side by side."""

import re
from pathlib import Path

import pytest

from automix.cli.main import run
from automix.training.quickstart import MethodResult, choose_quickstart, describe_comparison


def test_quickstart_trains_both_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOMIX_DATA", str(tmp_path / "nothing"))  # with photographs it would take minutes
    assert run(["quickstart", "--epochs", "1", "--seeds", "1", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    for method in ("vanilla", "automix"):
        assert re.search(rf"  {method} +\d+\.\d\d %", printed)
    assert (tmp_path / "out" / "automix-0" / "pictures" / "epoch-0001.png").is_file()


def test_quickstart_takes_photographs_if_there_are_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOMIX_DATA", str(tmp_path))
    assert choose_quickstart().settings["data"] == "shapes"
    (tmp_path / "oxford-iiit-pet").mkdir()
    assert choose_quickstart().settings["data"] == "pets"  # the weights are in the package of the extra dev
    monkeypatch.setattr("automix.training.quickstart.available_offline", list)
    assert choose_quickstart().settings["data"] == "shapes"


def test_the_comparison_has_mean_deviation_and_minutes(tmp_path: Path) -> None:
    results = {"vanilla": MethodResult([90.0, 92.0], 60.0), "automix": MethodResult([93.0, 94.0], 150.0)}
    lines = describe_comparison({"data": "shapes", "epochs": 180}, results, tmp_path).splitlines()
    assert lines[0] == "Test accuracy on shapes after 180 epochs, 2 runs each, and minutes:"
    assert lines[1].split() == ["vanilla", "91.00", "+-", "1.41", "%", "1.0"]
    assert lines[2].split() == ["automix", "93.50", "+-", "0.71", "%", "2.5"]


@pytest.mark.parametrize("words", [["--lr", "0"], ["--seeds", "0"], ["--epochs", "-1"]])
def test_wrong_values_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["quickstart", *words]) == 2
    assert capsys.readouterr().err.startswith(f"automix: {words[0][2:]} must be ")
