"""Wrong labels on purpose: how many, which, and that nothing else changes."""

from pathlib import Path
from typing import Any

import pytest
import scipy.stats
import torch
from torch import Tensor

import automix
from automix.cli.main import execute
from automix.data import Augmentation, Data, ImageSet, open_data
from automix.data.label_noise import add_label_noise, draw_shifts
from automix.runs.config import TrainConfig
from automix.studies.plan import all_settings, folder_name


def images(count: int = 1000, classes: int = 5) -> ImageSet:
    labels = torch.arange(count) % classes
    return ImageSet(torch.zeros(count, 3, 2, 2, dtype=torch.uint8), labels, tuple("abcdefghij"[:classes]))


@pytest.mark.parametrize(("noise", "wrong"), [(0.0, 0), (0.2, 200), (0.4, 400), (0.4004, 400), (0.999, 999)])
def test_the_share_of_wrong_labels_is_exact(noise: float, wrong: int) -> None:
    clean = images()
    noisy = add_label_noise(clean, noise, seed=0)
    assert noisy.labels is not None
    assert int((noisy.labels != clean.labels).sum()) == wrong
    assert int(noisy.labels.min()) >= 0
    assert int(noisy.labels.max()) <= 4
    assert isinstance(noisy, ImageSet)
    assert noisy.images is clean.images
    assert torch.equal(clean.labels, images().labels)  # the given set is not changed
    assert (noisy is clean) == (wrong == 0)


def test_every_other_class_is_as_likely_and_every_image() -> None:
    """Symmetric: from each class to each of the four others, and with no regard to the position."""
    clean = images(20_000)
    noisy = add_label_noise(clean, 0.5, seed=3)
    assert noisy.labels is not None
    counts = torch.bincount(clean.labels * 5 + noisy.labels, minlength=25).view(5, 5)
    others = counts[~torch.eye(5, dtype=torch.bool)]
    assert scipy.stats.chisquare(others.numpy()).pvalue > 0.01
    places = (noisy.labels != clean.labels).view(20, 1000).sum(dim=1)
    assert scipy.stats.chisquare(places.numpy()).pvalue > 0.01


def test_the_seed_decides() -> None:
    first, again, other = (draw_shifts(100, 10, 0.3, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    with pytest.raises(ValueError, match=r"^label_noise must be in \[0, 1\), got 1"):
        draw_shifts(100, 10, 1, 0)


def opened(noise: float, **options: Any) -> Data:
    return open_data("digits", Augmentation(), batch_size=20, per_class=30, label_noise=noise, **options)


def labels_of(data: Data, steps: int = 15) -> Tensor:
    return torch.cat([y for _, y in data.loader.batches(0, steps)])


def test_training_labels_alone_are_wrong() -> None:
    clean, noisy, other = opened(0.0), opened(0.4), opened(0.4, seed=1)
    assert (clean.wrong_labels, noisy.wrong_labels) == (0, 120)
    for (x, y), (x_noisy, y_noisy) in zip(clean.loader.test_batches(), noisy.loader.test_batches(), strict=True):
        assert torch.equal(x, x_noisy)
        assert torch.equal(y, y_noisy)
    for (x, _), (x_noisy, _) in zip(clean.loader.batches(0, 3), noisy.loader.batches(0, 3), strict=True):
        assert torch.equal(x, x_noisy)
    assert int((labels_of(clean) != labels_of(noisy)).sum()) == 120  # one epoch
    assert torch.equal(labels_of(noisy), labels_of(opened(0.4)))
    assert noisy.class_counts == tuple(torch.bincount(labels_of(noisy), minlength=10).tolist())
    assert not torch.equal(labels_of(noisy).sort().values, labels_of(other).sort().values)


def test_all_processes_see_the_same_wrong_labels() -> None:
    whole = labels_of(opened(0.4))
    halves = [opened(0.4, rank=rank, world_size=2) for rank in range(2)]
    assert torch.equal(torch.cat([labels_of(half) for half in halves]).sort().values, whole.sort().values)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # timm's reader leaves closing to the collector
def test_streamed_files_and_readers(photos: Path, tmp_path: Path) -> None:
    """A folder that is streamed, and tar files whose labels are known only by reading them."""
    import tarfile

    for part, name in (("train", "train"), ("test", "val")):
        with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
            tar.add(photos / part, arcname=".")
    for data in (str(photos), str(tmp_path)):
        clean, noisy = (
            open_data(
                data, Augmentation(train_size=72, crop="none", flip=False), batch_size=4, workers=0, label_noise=noise
            )
            for noise in (0.0, 0.25)
        )
        steps = len(clean.loader)
        assert noisy.wrong_labels == 9  # of 36
        assert int((labels_of(clean, steps) != labels_of(noisy, steps)).sum()) == 9
        for (_, y), (_, y_noisy) in zip(clean.loader.test_batches(), noisy.loader.test_batches(), strict=True):
            assert torch.equal(y, y_noisy)


def test_a_run_says_it_and_resumes_with_the_same_labels(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["train", str(photos), "--method", "mixup", "--train-size", "16", "--test-size", "16", "--batch-size", "6"]
    line += ["--recipe", "quick", "--warmup-epochs", "0", "--epochs", "1", "--device", "cpu", "--label-noise", "0.4"]
    line += [
        "--model-options.layers",
        "[1,1,1,1]",
        "--model-options.channels",
        "[8,8,8,8]",
        "--out",
        str(tmp_path / "a"),
    ]
    execute(line)
    shown = capsys.readouterr().out.splitlines()
    assert "label noise: 14 of 36 training labels are wrong; test labels are right" in shown[:5]
    assert "label_noise: 0.4" in (tmp_path / "a" / "config.yaml").read_text()
    with pytest.raises(ValueError, match="label_noise"):
        automix.train(TrainConfig.from_flat({**_flat(tmp_path / "a"), "label_noise": 0.2}), resume=True)


def _flat(folder: Path) -> dict[str, Any]:
    import yaml

    return yaml.safe_load((folder / "config.yaml").read_text())


def test_names_of_earlier_runs_stay() -> None:
    values = all_settings({"data": "cifar100", "method": "mixup", "recipe": "quick"}) | {"seed": 0}
    without = {name: value for name, value in values.items() if name != "label_noise"}
    assert folder_name(values) == folder_name(without)
    assert folder_name({**values, "label_noise": 0.2}) != folder_name(values)


@pytest.mark.parametrize("wrong", [-0.1, 1.0, float("nan"), "much"])
def test_wrong_settings_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="label_noise"):
        TrainConfig(data="shapes", label_noise=wrong)
