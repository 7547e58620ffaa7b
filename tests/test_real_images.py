"""Real photos through the real readers: a few steps on the cuts in AUTOMIX_DATA (skipped where it is not set)."""

import json
import os
from pathlib import Path

import pytest

from automix.cli import main as cli
from automix.runs.config import TrainConfig
from automix.studies.replica import CIFAR_CUT
from automix.training import prepare
from automix.training.distributed import World
from automix.training.loop import training_step
from automix.training.signals import StopRequest

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
    # 16 channels: a convolution of 8 channels, 1x1 with stride 2, crashes in oneDNN on some CPUs (torch 2.13)
    network = "--model-options.layers [1,1,1,1] --model-options.channels [16,16,16,16]"
    assert cli.run(["train", *line.split(), *network.split(), "--epochs", "1", "--out", str(tmp_path / "run")]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["steps"] >= 2
    assert 0 <= summary["teacher_top1"] <= 100


@pytest.mark.slow
def test_masks_get_structure_and_follow_lam_within_500_steps(tmp_path: Path) -> None:
    """The first 500 of 5,000 steps on 20 classes x 100 images of CIFAR-100, as in docs/lab/2026-11-mix-block.md."""
    config = TrainConfig.from_flat({**CIFAR_CUT, "out": str(tmp_path / "run")})
    run = prepare(config, World(), resume=False, overwrite=False)
    run.task.train()
    batches = run.data.loader.batches(0, 500)
    for _ in range(500):
        training_step(run, batches, StopRequest())
    numbers, mask_warnings = run.task.diagnose(*run.data.loader.preview(400))
    for lam in (0.2, 0.5, 0.8):
        assert numbers[f"mask_spread_at_{lam}"] > 0.1
        assert abs(numbers[f"mask_mean_at_{lam}"] - lam) < 0.05
    assert not mask_warnings
