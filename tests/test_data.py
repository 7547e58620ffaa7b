"""Datasets in memory: by name, from a folder, in batches."""

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import torch
import torchvision.transforms.v2.functional as TF
from PIL import Image

from automix.cli import main as cli
from automix.core.errors import AutomixError
from automix.data import Augmentation, BatchPlan, ImageSet, MemoryLoader, load_images, open_data
from automix.data.crops import crop_and_flip


def numbered(count: int = 12, classes: int = 3, size: int = 6) -> ImageSet:
    """Image i is filled with the value i."""
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).repeat(1, 3, size, size)
    return ImageSet(images, torch.arange(count) % classes, tuple("abc"[:classes]))


def write_folder(root: Path, names: tuple[str, ...] = ("train", "test"), sizes: tuple[int, ...] = (8, 8)) -> Path:
    for split in names:
        for label, name in enumerate(("bird", "cat")):
            (root / split / name).mkdir(parents=True)
            for i, size in enumerate(sizes):
                pixels = np.full((size, size, 3), 100 * label + i, dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")
    return root


@pytest.mark.parametrize("name", ["digits", "shapes"])
def test_builtin_datasets_have_all_classes_and_repeat(name: str) -> None:
    train, test = load_images(name, image_size=16)
    for part in (train, test):
        assert part.images.shape[1:] == (3, 16, 16)
        assert part.images.dtype == torch.uint8
        assert set(part.labels.tolist()) == set(range(len(part.classes)))
    assert len(train) > 2 * len(test) * 0.9
    again, _ = load_images(name, image_size=16)
    assert torch.equal(train.images, again.images)


def test_digits_are_scikit_learns() -> None:
    train, test = load_images("digits", image_size=8)
    digits = sklearn.datasets.load_digits()
    assert len(train) + len(test) == len(digits.target)
    assert torch.equal(test.labels, torch.from_numpy(digits.target[::3]))
    expected = torch.from_numpy(digits.images[::3] * (255 / 16)).round().byte()
    assert torch.equal(test.images, expected.unsqueeze(1).repeat(1, 3, 1, 1))


@pytest.mark.parametrize("test_name", ["test", "val"])
def test_class_folders_are_read_in_alphabetical_order(tmp_path: Path, test_name: str) -> None:
    train, test = load_images(write_folder(tmp_path, ("train", test_name)))
    assert train.classes == ("bird", "cat")
    assert train.labels.tolist() == [0, 0, 1, 1]
    assert train.images[:, 0, 0, 0].tolist() == [0, 1, 100, 101]
    assert torch.equal(train.images, test.images)
    resized, _ = load_images(tmp_path, image_size=5)
    assert resized.images.shape == (4, 3, 5, 5)


def test_subsets_keep_images_and_labels_together() -> None:
    data = numbered(30)
    two = data.subset(classes=2)
    assert two.classes == ("a", "b")
    assert set(two.labels.tolist()) == {0, 1}
    few, same, other = (data.subset(per_class=4, seed=seed) for seed in (0, 0, 1))
    assert torch.bincount(few.labels).tolist() == [4, 4, 4]
    assert torch.equal(few.images, same.images)
    assert not torch.equal(few.images, other.images)
    assert torch.equal(few.images[:, 0, 0, 0] % 3, few.labels)  # images and labels stay together


def test_an_epoch_shows_every_image_once_and_the_next_in_another_order() -> None:
    loader = MemoryLoader(numbered(), BatchPlan(12, 4), padding=0, flip=False)
    assert len(loader) == 3
    values = [(loader.batch(step)[0][:, 0, 0, 0] * loader.std[0] + loader.mean[0]) * 255 for step in range(6)]
    first, second = (torch.cat(values[i : i + 3]).round().int().tolist() for i in (0, 3))
    assert sorted(first) == sorted(second) == list(range(12))
    assert first != second


def test_a_batch_is_a_function_of_seed_and_step() -> None:
    data = load_images("digits")[0]
    loader, fresh, other = (MemoryLoader(data, BatchPlan(len(data), 50, seed=seed)) for seed in (0, 0, 1))
    batches = [loader.batch(step) for step in range(40)]
    x, y = fresh.batch(35)  # resumed in the middle of the second epoch
    assert torch.equal(x, batches[35][0])
    assert torch.equal(y, batches[35][1])
    assert not torch.equal(other.batch(35)[0], x)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_crop_and_flip_are_torchvisions() -> None:
    x = torch.randint(256, (5, 3, 12, 14), dtype=torch.uint8)
    top, left = torch.tensor([0, 1, 2, 3, 4]), torch.tensor([4, 0, 3, 1, 2])
    flip = torch.tensor([True, False, True, True, False])
    ours = crop_and_flip(x, top, left, flip, (8, 10))
    for i in range(5):
        expected = TF.crop(x[i], int(top[i]), int(left[i]), 8, 10)
        assert torch.equal(ours[i], TF.horizontal_flip(expected) if flip[i] else expected)


def test_training_images_are_normalized() -> None:
    data = load_images("shapes", image_size=16, per_class=100)[0]
    pixels = MemoryLoader(data, BatchPlan(len(data), 100)).normalize(data.images)
    torch.testing.assert_close(pixels.mean(dim=(0, 2, 3)), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(pixels.std(dim=(0, 2, 3)), torch.ones(3), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_images("nonsense"), "data .*digits, shapes, .*, an existing folder.*'nonsense'"),
        (lambda: load_images("digits", image_size=0), "image_size .* >= 1"),
        (lambda: load_images("digits", classes=11), r"classes .*\[1, 10\]"),
        (lambda: load_images("digits", per_class=10_000), r"per_class .*\[1, 1\d\d\]"),
        (lambda: MemoryLoader(numbered(), BatchPlan(11, 4)), "count .* 12.* 11"),
        (lambda: MemoryLoader(numbered(), BatchPlan(12, 4), padding=-1), "padding .* >= 0"),
        (lambda: MemoryLoader(numbered(), BatchPlan(12, 4), crop="x"), "crop.*none, pad, resized"),  # type: ignore[arg-type]
        (lambda: next(MemoryLoader(numbered(), BatchPlan(12, 4)).test_batches()), "test="),
    ],
)
def test_wrong_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(AutomixError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_wrong_folders_are_refused(tmp_path: Path) -> None:
    (tmp_path / "half" / "test").mkdir(parents=True)
    with pytest.raises(AutomixError, match=r"half: no folder train .*train/<class>/"):
        load_images(tmp_path / "half")
    write_folder(tmp_path / "mixed", sizes=(8, 9))
    with pytest.raises(AutomixError, match=r"1.png: 9 x 9 px.* 8 x 8 px; pass image_size"):
        load_images(tmp_path / "mixed")
    write_folder(tmp_path / "empty")
    (tmp_path / "empty" / "test" / "dog").mkdir()
    with pytest.raises(AutomixError, match=r"test.dog: no image in it"):
        load_images(tmp_path / "empty")
    write_folder(tmp_path / "other")
    (tmp_path / "other" / "test" / "cat").rename(tmp_path / "other" / "test" / "cow")
    with pytest.raises(AutomixError, match="different classes, for instance 'cat'"):
        load_images(tmp_path / "other")


def test_training_on_one_class_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_folder(tmp_path / "one")
    for split in ("train", "test"):
        shutil.rmtree(tmp_path / "one" / split / "cat")
    with pytest.raises(AutomixError, match=r"one'?: only one class, 'bird'.* train/<class>/ and test/<class>/"):
        open_data(str(tmp_path / "one"), Augmentation(), batch_size=1)
    assert len(load_images(tmp_path / "one")[1]) == 2  # which may be meant for evaluation
    assert cli.run(["train", "digits", "--classes", "1", "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert re.search("classes .* >= 2", error)
    assert error.count("\n") == 1
