"""Predictions for image files: images prepared as in testing, the right classes, and errors for unreadable files."""

import io
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as T
from conftest import HandWritten
from PIL import Image
from timm.data import create_transform
from torch import nn

import automix
from automix.cli import main as cli
from automix.data import ImageSet, draw_shapes
from automix.data.image_files import ImageFiles
from automix.data.shapes import CLASSES
from automix.deploy.image_files import list_images, read_square
from automix.deploy.prediction import predict, predict_files
from automix.runs.classifier import Card, save_classifier


def card_for(classes: int, size: int = 32, crop: float = 1.0) -> Card:
    return Card(
        model="resnet18",
        model_options={},
        classes=tuple(f"class {i}" for i in range(classes)),
        image_size=size,
        train_size=size,
        crop=crop,
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.25, 0.3),
    )


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def write(path: Path, image: Image.Image) -> Path:
    image.save(path)
    return path


def classifier(classes: int = 5) -> nn.Module:
    return HandWritten(classes).eval()


def test_an_image_of_the_right_size_is_not_resampled(tmp_path: Path) -> None:
    image = noise(32, 32)
    read = read_square(write(tmp_path / "x.png", image), 32)
    assert torch.equal(read, torch.from_numpy(np.array(image)).permute(2, 0, 1))


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "1"])
@pytest.mark.parametrize("crop", [1.0, 0.875, 0.7])
@pytest.mark.parametrize("shape", [(100, 61), (61, 100), (40, 41), (20, 50), (33, 32)], ids=str)
def test_resizing_and_cropping_are_torchvisions(tmp_path: Path, shape: tuple[int, int], crop: float, mode: str) -> None:
    path = write(tmp_path / "x.png", noise(*shape, mode=mode))
    oracle = T.Compose(
        [T.Resize(int(32 / crop), T.InterpolationMode.BICUBIC), T.CenterCrop(32), T.PILToTensor()],
    )
    assert torch.equal(read_square(path, 32, crop), oracle(Image.open(path).convert("RGB")))


@pytest.mark.parametrize("crop", [1.0, 0.95, 0.875])  # 224 / 0.95 = 235.8
def test_images_are_prepared_as_by_the_test_transform_of_timm(tmp_path: Path, crop: float) -> None:
    path = write(tmp_path / "x.png", noise(500, 375))
    oracle = create_transform(224, crop_pct=crop, interpolation="bicubic", mean=(0, 0, 0), std=(1, 1, 1))
    assert torch.equal(read_square(path, 224, crop).float() / 255, oracle(Image.open(path)))


@pytest.mark.parametrize(("orientation", "upright"), [(3, Image.Transpose.ROTATE_180), (6, Image.Transpose.ROTATE_270)])
def test_photographs_are_turned_upright(tmp_path: Path, orientation: int, upright: Image.Transpose) -> None:
    image, exif = noise(40, 32), Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / "turned.png", exif=exif)
    write(tmp_path / "upright.png", image.transpose(upright))
    turned, expected = (read_square(tmp_path / name, 32) for name in ("turned.png", "upright.png"))
    assert torch.equal(turned, expected)
    assert not torch.equal(turned, read_square(write(tmp_path / "plain.png", image), 32))


def test_probabilities_are_those_of_the_model_in_descending_order(tmp_path: Path) -> None:
    model, card = classifier(), card_for(5)
    paths = [write(tmp_path / f"{i}.png", noise(32, 32).rotate(90 * i)) for i in range(3)]
    pixels = torch.stack([T.ToTensor()(Image.open(path)) for path in paths])
    with torch.no_grad():
        expected = model(T.Normalize(card.mean, card.std)(pixels)).softmax(dim=1)
    for row, found in zip(expected, predict_files(model, card, paths, top=3), strict=True):
        order = row.argsort(descending=True)[:3]
        assert found.classes == tuple(f"class {i}" for i in order.tolist())
        torch.testing.assert_close(torch.tensor(found.probabilities), row[order])
        assert found.error is None


def test_predictions_are_those_of_the_test_set_in_memory(tmp_path: Path) -> None:
    drawn = draw_shapes(24)
    data = ImageSet(drawn.images, drawn.labels, CLASSES)
    mean, std = data.statistics()
    model = automix.create_model("resnet18", num_classes=12, image_size=32, channels=(8, 16, 32, 64)).eval()
    card = Card(
        model="resnet18",
        model_options={},
        classes=data.classes,
        image_size=32,
        train_size=32,
        mean=tuple(mean.tolist()),
        std=tuple(std.tolist()),
    )
    paths = [
        write(tmp_path / f"{i:02}.png", Image.fromarray(x.permute(1, 2, 0).numpy())) for i, x in enumerate(data.images)
    ]
    with torch.no_grad():
        expected = model((data.images / 255 - mean.view(3, 1, 1)) / std.view(3, 1, 1)).softmax(dim=1)
    found = list(predict_files(model, card, [tmp_path], top=12, batch_size=7))
    assert [prediction.path for prediction in found] == paths
    for row, prediction in zip(expected, found, strict=True):
        shares = dict(zip(prediction.classes, prediction.probabilities, strict=True))
        torch.testing.assert_close(torch.tensor([shares[name] for name in data.classes]), row)


def test_unreadable_files_give_errors_and_the_others_predictions(tmp_path: Path) -> None:
    good = io.BytesIO()
    noise(64, 64).save(good, "jpeg")
    (tmp_path / "a.jpg").write_bytes(good.getvalue())
    (tmp_path / "b.jpg").write_bytes(good.getvalue()[: len(good.getvalue()) // 2])
    (tmp_path / "c.jpg").write_bytes(b"")
    (tmp_path / "d.jpg").write_text("no picture\nat all")
    (tmp_path / "f.jpg").write_bytes(good.getvalue())
    (tmp_path / "empty").mkdir()
    paths = [*sorted(tmp_path.glob("*.*")), tmp_path / "none.png", tmp_path / "empty"]
    expected = {
        "b.jpg": "truncated",
        "c.jpg": "cannot identify image file",
        "d.jpg": "cannot identify image file",
        "none.png": "No such file or directory",
        "empty": "no images in this folder",
    }
    for batch_size in (1, 2, 32):
        found = list(predict_files(classifier(), card_for(5), paths, batch_size=batch_size))
        assert [prediction.path for prediction in found] == paths
        errors = {prediction.path.name: prediction.error for prediction in found if prediction.error is not None}
        assert list(errors) == list(expected)
        for name, message in expected.items():
            assert message in errors[name]
            assert "\n" not in errors[name]
        answered = [prediction for prediction in found if prediction.error is None]
        assert [len(prediction.classes) for prediction in answered] == [5, 5]
        torch.testing.assert_close(*(torch.tensor(prediction.probabilities) for prediction in answered))


def test_a_folder_stands_for_the_images_below_it(tmp_path: Path) -> None:
    names = (
        "b.png",
        "a.JPEG",
        "c.gif",
        "cats/z.webp",
        "cats/y.png",
        ".hidden.png",
        ".cache/x.png",
        "notes.txt",
        "cats/.z.png",
    )
    for name in names:
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).touch()
    given = tmp_path / "given.xyz"  # a file that the caller names is listed whatever its extension
    listed = list_images([given, tmp_path / "in", tmp_path / "in" / "b.png"])
    expected = ["in/a.JPEG", "in/b.png", "in/c.gif", "in/cats/y.png", "in/cats/z.webp"]
    assert listed == [given, *(tmp_path / name for name in expected), tmp_path / "in" / "b.png"]


def test_a_hidden_folder_named_by_the_caller_is_read(tmp_path: Path) -> None:
    (tmp_path / ".pictures").mkdir()
    (tmp_path / ".pictures" / "x.png").touch()
    assert list_images([tmp_path / ".pictures"]) == [tmp_path / ".pictures" / "x.png"]


def test_the_model_is_not_changed_and_may_be_bfloat16(tmp_path: Path) -> None:
    path = write(tmp_path / "x.png", noise(32, 32))
    model = classifier()
    exact, half = (next(predict_files(m, card_for(5), [path])) for m in (model, classifier_like(model, torch.bfloat16)))
    for name, share in zip(half.classes, half.probabilities, strict=True):
        assert share == pytest.approx(exact.probabilities[exact.classes.index(name)], abs=0.02)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


def classifier_like(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    other = classifier()
    other.load_state_dict(model.state_dict())
    return other.to(dtype)


def test_no_images_no_predictions() -> None:
    assert list(predict_files(classifier(), card_for(5), [])) == []


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (classifier(), {"top": 0}, "top.* >= 1"),
        (classifier(), {"batch_size": 0}, "batch_size.* >= 1"),
        (classifier().train(), {}, r"model\.eval\(\)"),
        (classifier(4), {}, "model.*5 logits.*4"),
    ],
)
def test_wrong_arguments_are_errors(tmp_path: Path, model: nn.Module, options: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "x.png", noise(32, 32))
    with pytest.raises(ValueError, match=message):
        list(predict_files(model, card_for(5), [path], **options))


def test_arguments_are_checked_before_iteration() -> None:
    with pytest.raises(ValueError, match="top"):
        predict_files(classifier(), card_for(5), [], top=0)


def test_read_square_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"none.png: No such file or directory$"):
        read_square(tmp_path / "none.png", 32)


@pytest.mark.parametrize("shape", [(1, 101), (101, 1), (1, 20_001), (3, 4000)], ids=str)
def test_thin_images_are_read_as_in_testing(tmp_path: Path, shape: tuple[int, int]) -> None:
    """At 224 px, resizing an image of 1 x 20001 px by its short side would take 3 GB."""
    path = write(tmp_path / "thin.png", noise(*shape))
    (prediction,) = predict_files(classifier(), card_for(5, size=224), [path])
    assert prediction.error is None
    tested = ImageFiles((str(path),), torch.tensor([0]), ("a",)).in_memory(224, 0.875)
    assert torch.equal(read_square(path, 224, 0.875), tested.images[0])


def test_only_regular_files_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "in").mkdir()
    os.mkfifo(tmp_path / "in" / "pipe.png")
    monkeypatch.setattr(Image, "open", lambda path: pytest.fail(f"{path} was opened"))
    paths = [tmp_path / "pipe.png", Path("/dev/zero"), tmp_path / "loop.png", tmp_path / "in"]
    errors = [prediction.error for prediction in predict_files(classifier(), card_for(5), paths)]
    expected = ["not a regular file"] * 2 + ["Too many levels of symbolic links", "no images in this folder"]
    assert errors == expected


def test_linked_folders_are_searched_once(tmp_path: Path) -> None:
    (tmp_path / "in" / "cats").mkdir(parents=True)
    (tmp_path / "in" / "cats" / "x.png").touch()
    (tmp_path / "in" / "cats" / "again").symlink_to(tmp_path / "in")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "y.png").touch()
    (tmp_path / "in" / "dogs").symlink_to(tmp_path / "elsewhere")
    assert list_images([tmp_path / "in"]) == [tmp_path / "in" / "cats" / "x.png", tmp_path / "in" / "dogs" / "y.png"]


def test_predict_loads_the_classifier_of_a_file(tmp_path: Path) -> None:
    card = card_for(5)
    model = automix.create_model(card.model, num_classes=5, image_size=32).eval()
    save_classifier(tmp_path / "x.safetensors", model, card)
    path = write(tmp_path / "x.png", noise(32, 32))
    expected = list(predict_files(model, card, [path], top=2))
    assert list(predict(tmp_path / "x.safetensors", path, top=2)) == expected
    assert list(predict(str(tmp_path / "x.safetensors"), [str(path)], top=2)) == expected
    with pytest.raises(ValueError, match="no-such-run"):
        predict(tmp_path / "no-such-run", path)


def test_the_command_fails_if_an_image_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, card = automix.create_model("resnet18", num_classes=5, image_size=32), card_for(5)
    save_classifier(tmp_path / "x.safetensors", model, card)
    good, missing = write(tmp_path / "good.png", noise(32, 32)), tmp_path / "missing.png"
    line = ["predict", str(tmp_path / "x.safetensors"), str(good)]
    assert cli.run(line) == 0
    capsys.readouterr()
    assert cli.run([*line, str(missing)]) == 2
    out, error = capsys.readouterr()
    assert "class " in out  # the others are still classified
    assert "missing.png: No such file" in error
    assert "1 of 2 images could not be read" in error
