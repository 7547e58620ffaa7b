"""Datasets in memory: by name, from a folder, in batches."""

import io
import re
import shutil
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import torch
import torchvision.transforms.v2.functional as TF
from PIL import Image
from rich.console import Console

from automix.cli import main as cli
from automix.core.errors import AutomixError
from automix.data import (
    Augmentation,
    BatchPlan,
    ImageSet,
    MemoryLoader,
    describe_ignored,
    load_images,
    open_data,
)
from automix.data.crops import crop_and_flip
from automix.data.decode import reads_heif
from automix.runs.config import TrainConfig
from automix.runs.recipes import find_recipe
from automix.training import train as train_run
from automix.training.display import Lines


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
    with pytest.raises(AutomixError, match=r"test.dog: no image in it; add images \(.jpg .*\) or remove the folder$"):
        load_images(tmp_path / "empty")
    write_folder(tmp_path / "other")
    (tmp_path / "other" / "test" / "cat").rename(tmp_path / "other" / "test" / "cow")
    with pytest.raises(AutomixError, match=r"must have the same classes; 'cat' has no test .* 'cow' has no training"):
        load_images(tmp_path / "other")
    shutil.rmtree(tmp_path / "other" / "train" / "cat")
    with pytest.raises(AutomixError, match=r"'cow' has no training images: add some or remove the class$"):
        load_images(tmp_path / "other")


def test_a_folder_with_train_alone_holds_every_fifth_image_out(tmp_path: Path) -> None:
    write_folder(tmp_path, ("train",), (8,) * 10)
    (tmp_path / "notes").mkdir()
    train, test = load_images(tmp_path)
    assert train.classes == ("bird", "cat")
    assert torch.bincount(train.labels).tolist() == [8, 8]
    assert torch.bincount(test.labels).tolist() == [2, 2]
    seen = torch.cat([train.images, test.images])[:, 0, 0, 0].tolist()
    assert sorted(seen) == [*range(10), *range(100, 110)]
    direct = load_images(tmp_path / "train")
    assert torch.equal(direct[1].images, test.images)
    write_folder(tmp_path, ("valid",))
    with pytest.raises(AutomixError, match=r"valid: has the classes of train; rename it to test or val") as error:
        load_images(tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("inner", ["x", "x/y"])
def test_a_folder_around_the_dataset_is_refused_with_the_one_to_give(inner: str, tmp_path: Path) -> None:
    for names in ((".",), ("train", "test")):
        root = tmp_path / names[0]
        write_folder(root / inner, names)
        (root / "x" / ".DS_Store").write_text("")
        with pytest.raises(
            AutomixError, match=rf"only folder {inner} has folders in it.* give {root / inner}$"
        ) as error:
            load_images(root)
        assert "\n" not in str(error.value)
        assert load_images(root / inner)[0].classes == ("bird", "cat")
        shutil.rmtree(root / "x")


def test_files_that_are_not_read_are_counted_by_ending(tmp_path: Path) -> None:
    write_folder(tmp_path / "split")
    write_folder(tmp_path, ("alone",), (8,) * 5)
    for folder in (tmp_path / "split" / "train", tmp_path / "split" / "test", tmp_path / "alone"):
        for name in ("a.xyz", "b.XYZ", "notes", ".DS_Store", "Thumbs.db"):
            (folder / "cat" / name).write_text("")
    for name, times in (("split", 2), ("alone", 1)):
        data = open_data(str(tmp_path / name), Augmentation(), batch_size=2)
        assert data.ignored == {".xyz": 2 * times, "no ending": times}
    assert describe_ignored(data.ignored) == "3 files were not read (.xyz: 2, no ending: 1)"
    assert describe_ignored({".txt": 1}) == "1 file was not read (.txt: 1)"
    assert open_data("digits", Augmentation(), batch_size=2).ignored == {}
    config = TrainConfig(
        data=str(tmp_path / "alone"),
        method="vanilla",
        out=str(tmp_path / "run"),
        model_options={"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]},
        settings=replace(find_recipe("quick"), epochs=1, batch_size=2),
    )
    console = Console(file=io.StringIO(), width=200)
    train_run(config, display=Lines(console))
    assert "3 files were not read (.xyz: 2, no ending: 1)" in console.file.getvalue()  # type: ignore[attr-defined]
    for path in (tmp_path / "alone" / "cat").glob("*.png"):
        path.unlink()
    with pytest.raises(
        AutomixError, match=r"cat: no image in it \(3 files were not read \(.xyz: 2, .*\)\); add images"
    ):
        load_images(tmp_path / "alone")


@pytest.mark.parametrize("installed", [False, True])
def test_heic_is_read_where_pillow_heif_is_installed(
    installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    package = types.SimpleNamespace(register_heif_opener=lambda: calls.append(1)) if installed else None
    monkeypatch.setitem(sys.modules, "pillow_heif", package)  # None: an import fails
    reads_heif.cache_clear()
    try:
        write_folder(tmp_path, ("train", "test"))
        for path in tmp_path.rglob("1.png"):
            path.rename(path.with_suffix(".HEIC"))  # Pillow goes by the content
        data = open_data(str(tmp_path), Augmentation(), batch_size=2)
        assert (data.train_count, data.test_count) == ((4, 4) if installed else (2, 2))
        assert data.ignored == ({} if installed else {".heic": 4})
        assert len(calls) == installed
        if not installed:
            expected = "4 files were not read (.heic: 4); pip install pillow-heif to read HEIC"
            assert describe_ignored(data.ignored) == expected
    finally:
        reads_heif.cache_clear()


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
