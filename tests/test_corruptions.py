"""Accuracy on corrupted images: made ones, the official layouts, and what is wrong with folders."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import HandWritten
from PIL import Image
from torch import Tensor, nn

from automix.core.errors import AutomixError
from automix.data import ImageSet, draw_shapes
from automix.data.datasets import open_dataset
from automix.evaluation.corruptions import BENCHMARK, EXTRA, NAMES, corrupt, write_cifar_c
from automix.evaluation.corruptions.accuracy import CorruptionTable, draw_table, evaluate_corruptions
from automix.evaluation.corruptions.generate import PART, corrupt_part
from automix.evaluation.samples import Samples

THREE = ("gaussian_noise", "fog", "contrast")


class Thresholds(nn.Module):
    """Knows the classes by the mean brightness of an image: class k from k / classes on."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.centers = nn.Parameter((torch.arange(classes) + 0.5) / classes)

    def forward(self, x: Tensor) -> Tensor:
        assert x.dtype == torch.float32
        return -(x.mean(dim=(1, 2, 3)).unsqueeze(1) - self.centers).abs()


class Linear(nn.Module):
    """Predictions by random weights of all pixels, so that small changes change them."""

    def __init__(self, classes: int, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(3 * size * size, classes, generator=torch.Generator().manual_seed(0)))

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(dim=(2, 3), keepdim=True)).flatten(1) @ self.weight


def grays(count: int = 20, classes: int = 4, size: int = 16) -> Samples:
    """Flat images in the middle of their class's brightness, on which `Thresholds` is always right."""
    labels = torch.arange(count) % classes
    level = ((labels + 0.5) / classes * 255).byte()
    images = level.view(-1, 1, 1, 1).expand(-1, 3, size, size).contiguous()
    return Samples(ImageSet(images, labels, tuple(f"class {i}" for i in range(classes))), size)


def drawn(count: int = 30, size: int = 16) -> Samples:
    shapes = draw_shapes(count, size)
    return Samples(ImageSet(shapes.images, shapes.labels % 5, tuple("abcde")), size)


# --- what is measured ------------------------------------------------------------------------------------------------


def test_accuracies_worked_out_by_hand() -> None:
    """Levels 31, 95, 159, 223 of 255; borders at 63.75, 127.5, 191.25. Brightness adds 0.05 .. 0.3, contrast nothing.

    0.1 * 255 = 25.5 leaves all in place (31 -> 56), 0.15 * 255 = 38.25 moves 31 to 69, 95 to 133, 159 to 197, and the
    brightest stays in the last class: 1 of 4 is right from severity 3 on.
    """
    model, samples = Thresholds(4), grays()
    found = evaluate_corruptions(model, samples, names=["brightness", "contrast"])
    assert found.table.clean == 100
    assert found.table.top1.tolist() == [[100, 100, 25, 25, 25], [100] * 5]
    assert list(found.values) == ["corruption_top1", "corruption_error", "brightness_top1", "contrast_top1"]
    assert found.values["brightness_top1"] == pytest.approx(55)
    assert found.values["corruption_top1"] == pytest.approx(77.5)
    assert found.values["corruption_error"] == pytest.approx(22.5)
    some = evaluate_corruptions(model, samples, names=["brightness"], severities=(2, 3))
    assert some.values["corruption_top1"] == pytest.approx(62.5)


def test_all_nineteen_in_one_call() -> None:
    found = evaluate_corruptions(HandWritten(5), drawn(), severities=[1])
    assert [*found.values][2:] == [f"{name}_top1" for name in NAMES]
    rows = torch.tensor([*found.values.values()][2:])
    assert found.values["corruption_top1"] == pytest.approx(float(rows.mean()), abs=1e-4)
    assert "strengths of CIFAR-C" in found.notes[0]
    assert "not the official files" in found.notes[0]
    assert "not mCE" in found.notes[1]


def test_accuracy_is_that_of_the_corrupted_images_whatever_the_batch_size() -> None:
    model, samples = Linear(5, 16), drawn(PART + 30)
    assert isinstance(samples.source, ImageSet)
    right = 0
    for number, part in enumerate((samples.source.images[:PART], samples.source.images[PART:])):
        images = corrupt_part(part, number, "snow", 4)
        with torch.no_grad():
            answer = model(images / 255).argmax(dim=1)
        right += int((answer == samples.source.labels[number * PART :][: len(part)]).sum())
    for batch_size in (7, 64, 1000):
        found = evaluate_corruptions(model, samples, names=("snow",), severities=(4,), batch_size=batch_size)
        assert found.values["snow_top1"] == pytest.approx(100 * right / (PART + 30), abs=1e-4)


def test_parts_corruptions_and_severities_draw_different_numbers() -> None:
    images = torch.full((3, 3, 32, 32), 128, dtype=torch.uint8)
    noises = [corrupt_part(images, 0, "gaussian_noise", 1), corrupt_part(images, 1, "gaussian_noise", 1)]
    assert not torch.equal(*noises)
    assert torch.equal(noises[1], corrupt_part(images, 1, "gaussian_noise", 1))


def test_the_picture_has_the_table_in_it() -> None:
    table = CorruptionTable(NAMES, (1, 2, 3, 4, 5), torch.linspace(90, 9, 95).view(19, 5), 93.4)
    picture = draw_table(table)
    assert picture.height > picture.width > 500
    darker = draw_table(CorruptionTable(NAMES, (1, 2, 3, 4, 5), torch.zeros(19, 5), 93.4))
    assert np.asarray(darker).mean() < np.asarray(picture).mean()
    assert draw_table(CorruptionTable(("fog",), (3,), torch.zeros(1, 1), 0.0)).width > 100
    found = evaluate_corruptions(HandWritten(5), drawn(), names=("contrast",), severities=(1,))
    assert found.pictures["corruptions"]().mode == "RGB"


# --- the layout of CIFAR-C -------------------------------------------------------------------------------------------


def test_what_is_written_is_the_official_layout_and_is_read_back_with_the_same_accuracy(tmp_path: Path) -> None:
    model, samples = Linear(5, 16), drawn(PART + 7)
    folder = write_cifar_c(samples, tmp_path / "shapes-c", THREE)
    assert sorted(path.name for path in folder.iterdir()) == sorted([*(f"{name}.npy" for name in THREE), "labels.npy"])
    labels, images = np.load(folder / "labels.npy"), np.load(folder / "fog.npy")
    assert (images.shape, images.dtype) == ((5 * (PART + 7), 16, 16, 3), np.uint8)
    assert isinstance(samples.source, ImageSet)
    assert labels.dtype == np.uint8
    assert labels.tolist() == samples.source.labels.tolist() * 5
    third = torch.from_numpy(images[2 * (PART + 7) :][:PART]).permute(0, 3, 1, 2)
    assert torch.equal(third, corrupt_part(samples.source.images[:PART], 0, "fog", 3))

    made = evaluate_corruptions(model, samples, names=THREE)
    read = evaluate_corruptions(model, samples, names=THREE, folder=folder, batch_size=13)
    assert torch.equal(made.table.top1, read.table.top1)
    assert made.table.clean == read.table.clean
    assert len(read.table.top1.unique()) > 5
    assert str(folder) in read.notes[0]
    assert "generated from" in made.notes[0]
    with pytest.raises(AutomixError, match="not an empty folder"):
        write_cifar_c(samples, folder, THREE)


def official(folder: Path, names: Iterable[str], count: int = 4, size: int = 32) -> Path:
    """A folder as the authors made theirs, of flat images: level 40 s at severity s."""
    folder.mkdir()
    for name in names:
        images = np.zeros((5 * count, size, size, 3), np.uint8)
        for severity in range(5):
            images[severity * count : (severity + 1) * count] = 40 * (severity + 1)
        np.save(folder / f"{name}.npy", images)
    np.save(folder / "labels.npy", np.tile(np.arange(count), 5).astype(np.uint8))
    return folder


def test_severities_are_stacked_and_labels_are_the_files(tmp_path: Path) -> None:
    """All images of severity s have level 40 s; of classes 0 to 3 the model names one, and one of four is that."""
    folder = official(tmp_path / "c", NAMES)
    asked: list[float] = []

    class Listening(Thresholds):
        def forward(self, x: Tensor) -> Tensor:
            asked.append(round(float(x.mean()) * 255))
            assert x.shape[-2:] == (16, 16)  # brought to the size of the samples
            return super().forward(x)

    table = evaluate_corruptions(Listening(4), grays(), folder=folder, names=["fog"], severities=(5, 2)).table
    assert asked[-2:] == [200, 80]
    assert table.top1.tolist() == [[25, 25]]
    assert evaluate_corruptions(Thresholds(4), grays(), folder=folder).table.names == NAMES


def test_without_the_extra_four_the_fifteen_are_read(tmp_path: Path) -> None:
    folder = official(tmp_path / "c", BENCHMARK)
    assert evaluate_corruptions(Thresholds(4), grays(), folder=folder).table.names == BENCHMARK
    np.save(folder / f"{EXTRA[0]}.npy", np.load(folder / "fog.npy"))
    with pytest.raises(AutomixError, match=r"gaussian_blur.npy, spatter.npy, saturate.npy missing; .*names="):
        evaluate_corruptions(Thresholds(4), grays(), folder=folder)


def test_what_is_missing_in_a_folder_is_named(tmp_path: Path) -> None:
    folder = official(tmp_path / "c", ("fog", "snow"))
    with pytest.raises(AutomixError, match=r"frost.npy missing; .*names=.*\(snow, fog\)"):
        evaluate_corruptions(Thresholds(4), grays(), folder=folder, names=("fog", "frost"))
    (folder / "labels.npy").unlink()
    with pytest.raises(AutomixError, match=r"labels.npy missing"):
        evaluate_corruptions(Thresholds(4), grays(), folder=folder, names=("fog",))


def broken(folder: Path, name: str, array: Any) -> None:
    np.save(folder / name, array, allow_pickle=True)


@pytest.mark.parametrize(
    ("name", "array", "message"),
    [
        ("fog.npy", np.zeros((20, 32, 32, 3), np.float32), r"uint8.*\(5 N, H, W, 3\).*float32"),
        ("fog.npy", np.zeros((20, 3, 32, 32), np.uint8), r"uint8.*\(5 N, H, W, 3\)"),
        ("fog.npy", np.zeros((20, 32, 3), np.uint8), r"uint8.*\(5 N, H, W, 3\)"),
        ("fog.npy", np.zeros((25, 32, 32, 3), np.uint8), "20 images.*25"),
        ("fog.npy", np.array([{"a": 1}], dtype=object), "damaged"),
        ("labels.npy", np.arange(20), r"\[0, 3\].*19"),
        ("labels.npy", np.full(20, -1), r"\[0, 3\].*-1"),
        ("labels.npy", np.zeros(19, np.uint8), r"\(5 N,\)"),
        ("labels.npy", np.zeros(0, np.uint8), r"\(5 N,\)"),
        ("labels.npy", np.zeros(20), r"\(5 N,\).*float64"),
    ],
)
def test_broken_arrays_are_named(tmp_path: Path, name: str, array: Any, message: str) -> None:
    folder = official(tmp_path / "c", ("fog",))
    broken(folder, name, array)
    with pytest.raises(AutomixError, match=f"{re.escape(str(folder / name))}: .*{message}"):
        evaluate_corruptions(Thresholds(4), grays(), folder=folder, names=("fog",))


@pytest.mark.parametrize("content", [b"", b"no array", b"half"])
def test_damaged_arrays_are_named(tmp_path: Path, content: bytes) -> None:
    folder = official(tmp_path / "c", ("fog",))
    whole = (folder / "fog.npy").read_bytes()
    (folder / "fog.npy").write_bytes(whole[: len(whole) // 2] if content == b"half" else content)
    with pytest.raises(AutomixError, match=r"fog.npy: .*damaged \(.*\)$"):
        evaluate_corruptions(Thresholds(4), grays(), folder=folder, names=("fog",))


# --- the layout of ImageNet-C ----------------------------------------------------------------------------------------


def image_files(root: Path, names: Iterable[str], folders: Iterable[str], size: int = 24) -> Path:
    """<name>/<severity>/<class>/: two images of the class's brightness in each, to which severity adds 20."""
    for name in names:
        for severity in range(1, 6):
            for number, folder in enumerate(folders):
                below = root / name / str(severity) / folder
                below.mkdir(parents=True)
                level = int((number + 0.5) / 4 * 255) + 20 * severity
                for file in ("ILSVRC_1.JPEG", "ILSVRC_2.JPEG"):
                    Image.new("RGB", (size, size), (min(level, 255),) * 3).save(below / file, quality=95)
    return root


def test_imagenet_c_is_read_by_class_folders(tmp_path: Path) -> None:
    samples = grays()
    folder = image_files(tmp_path / "c", ("fog", "snow"), samples.classes)
    result = evaluate_corruptions(Thresholds(4), samples, folder=folder, names=("fog", "snow"))
    # 31 + 20 s stays below 63.75 at severity 1 only; the brightest class cannot leave the range.
    assert result.table.top1.tolist() == [[100, 25, 25, 25, 25]] * 2
    assert str(folder) in result.notes[0]
    (folder / "fog" / "1" / "class 0" / "notes.txt").write_text("no image")
    assert torch.equal(
        evaluate_corruptions(Thresholds(4), samples, folder=folder, names=("fog",)).table.top1, result.table.top1[:1]
    )


def test_wordnet_ids_stand_for_classes_that_have_words(tmp_path: Path) -> None:
    """Tiny-ImageNet's classes are shown by their words and numbered by their ids."""
    folder = image_files(tmp_path / "c", ("fog",), [f"n0000000{i}" for i in range(4)])
    table = evaluate_corruptions(Thresholds(4), grays(), folder=folder, names=("fog",), severities=(1,)).table
    assert table.top1.tolist() == [[100]]


def test_other_classes_on_disk_are_refused(tmp_path: Path) -> None:
    samples = grays()
    folder = image_files(tmp_path / "c", ("fog",), samples.classes)
    (folder / "fog" / "3" / "dog").mkdir()
    with pytest.raises(AutomixError, match=r"fog/3: .*4 classes; dog"):
        evaluate_corruptions(Thresholds(4), samples, folder=folder, names=("fog",))
    (folder / "fog" / "3" / "dog").rmdir()
    (folder / "fog" / "4" / "class 1").rename(folder / "fog" / "elsewhere")
    with pytest.raises(AutomixError, match=r"fog/4: .*4 classes; class 1 is missing"):
        evaluate_corruptions(Thresholds(4), samples, folder=folder, names=("fog",))
    with pytest.raises(AutomixError, match=r"snow missing; .*names="):
        evaluate_corruptions(Thresholds(4), samples, folder=folder, names=("snow",))
    (folder / "fog" / "5").rename(folder / "five")
    with pytest.raises(AutomixError, match="fog/5: not found"):
        evaluate_corruptions(Thresholds(4), samples, folder=folder, names=("fog",), severities=(5,))
    wrong_ids = image_files(tmp_path / "ids", ("fog",), [f"n0000000{i}" for i in range(3)])
    with pytest.raises(AutomixError, match="4 classes"):
        evaluate_corruptions(Thresholds(4), samples, folder=wrong_ids, names=("fog",))


def test_empty_class_folders_are_refused(tmp_path: Path) -> None:
    samples = grays()
    for name in samples.classes:
        (tmp_path / "fog" / "1" / name).mkdir(parents=True)
    with pytest.raises(AutomixError, match=r"fog/1: no images.*<class>/<image>"):
        evaluate_corruptions(Thresholds(4), samples, folder=tmp_path, names=("fog",), severities=(1,))


# --- wrong input -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"names": ("mist",)}, "corruption.*mist.*gaussian_noise"),
        ({"names": ("zoom_blurr",)}, "zoom_blurr.*zoom_blur"),
        ({"names": ()}, "^names.*list"),
        ({"severities": (0,)}, r"^severity.*\[1, 5\].*0"),
        ({"severities": ()}, r"^severities.*\[1, 5\]"),
        ({"folder": "nowhere"}, "^nowhere: no such folder"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        evaluate_corruptions(Thresholds(4), grays(), **options)


def test_wrong_samples_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AutomixError, match=r"^samples.*8 px.*4 px"):
        evaluate_corruptions(Thresholds(4), grays(size=4))
    with pytest.raises(AutomixError, match="no corruptions in it"):
        evaluate_corruptions(Thresholds(4), grays(), folder=tmp_path)
    with pytest.raises(AutomixError, match=r"^names.*list.*'fog'"):
        evaluate_corruptions(Thresholds(4), grays(), names="fog")


# --- real photos -----------------------------------------------------------------------------------------------------


@pytest.mark.skipif("AUTOMIX_DATA" not in os.environ, reason="AUTOMIX_DATA is not set")
def test_real_photos_are_closer_to_severity_1_than_to_5_and_survive_the_layout(tmp_path: Path) -> None:
    test = open_dataset("cifar100")[1].subset(classes=20, per_class=3)  # type: ignore[union-attr]
    images = test.in_memory().images  # type: ignore[union-attr]
    for name in NAMES:
        weak, strong = (
            float(
                (corrupt(images, name, severity, generator=torch.Generator().manual_seed(0)).float() - images)
                .abs()
                .mean()
            )
            for severity in (1, 5)
        )
        if name == "elastic_transform":  # its affine part is the largest at severity 1, by the published numbers
            assert weak > 5 < strong
        else:
            assert 0 < weak < strong, name
    samples = Samples(test, 32)
    model = Linear(20, 32)
    folder = write_cifar_c(samples, tmp_path / "cifar-c", THREE)
    made, read = (evaluate_corruptions(model, samples, names=THREE, folder=place).values for place in (None, folder))
    assert made == read
    assert len(set(made.values())) > 3
