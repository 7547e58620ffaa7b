"""Real photos through the real readers: a few steps on the cuts in AUTOMIX_DATA (skipped where it is not set)."""

import json
import os
from pathlib import Path

import pytest

from automix import cli

pytestmark = pytest.mark.skipif("AUTOMIX_DATA" not in os.environ, reason="AUTOMIX_DATA is not set")


@pytest.mark.parametrize(
    "line",
    [
        "cifar100 --recipe cifar --classes 3 --per-class 20 --batch-size 20",
        "tiny-imagenet --recipe tiny --classes 3 --per-class 10 --batch-size 10",
        "cub200 --recipe fine-grained --no-pretrained --classes 2 --per-class 8 --batch-size 8 --workers 1",
    ],
)
def test_automix_trains_on_real_photos(line: str, tmp_path: Path) -> None:
    network = "--model-options.layers [1,1,1,1] --model-options.channels [8,8,8,8]"
    assert cli.run(["train", *line.split(), *network.split(), "--epochs", "1", "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["steps"] >= 2
    assert 0 <= summary["teacher_top1"] <= 100
