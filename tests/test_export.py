"""Exports: loaded by their own libraries they give the model's logits, and a bad one is never left behind."""

import json
import logging
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime  # type: ignore[import-untyped]
import pytest
import torch
from torch import Tensor, nn

import automix
from automix.deploy.exporting import SUFFIXES, export, export_path
from automix.deploy.prediction import predict_files
from automix.runs.classifier import Card
from automix.runs.folder import load_classifier

MODELS: dict[str, dict[str, Any]] = {
    "resnet18": {"channels": (8, 16, 32, 64)},
    "vit_tiny_patch16_224": {"depth": 2, "embed_dim": 48},
}
OTHER_FAMILIES: dict[str, dict[str, Any]] = {
    "mobilenetv2_100": {},
    "efficientnet_b0": {},
    "convnext_atto": {"depths": (1, 1, 1, 1)},
    "swin_tiny_patch4_window7_224": {"depths": (1, 1, 1, 1), "embed_dim": 24},
    "wrn_10_1": {},
}
OPTIONS = {**MODELS, **OTHER_FAMILIES}


def card_for(name: str) -> Card:
    return Card(
        model=name,
        model_options=OPTIONS.get(name, {}),
        classes=("ant", "bee", "škorpik", "虫"),
        image_size=32,
        train_size=32,
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.25, 0.3),
        facts={"accuracy": 81.25},
    )


def build(name: str) -> nn.Module:
    """With batch statistics of real pixels, as after training, and logits of a few units."""
    model = automix.create_model(name, num_classes=4, image_size=32, **OPTIONS[name])
    with torch.no_grad():
        for _ in range(20):
            model(2 * torch.rand(8, 3, 32, 32))
    return model.eval()


def load(path: Path, format: str) -> tuple[Callable[[Tensor], Tensor], dict[str, str]]:
    """What runs the file, and what it says of itself, with nothing of automix's."""
    extra = {"automix": "", "classes": ""}
    if format == "onnx":
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        (images,), (logits,) = session.get_inputs(), session.get_outputs()
        assert (images.name, images.type, images.shape[1:]) == ("images", "tensor(float)", [3, 32, 32])
        assert isinstance(images.shape[0], str)  # a name: any number
        assert (logits.name, logits.shape[1:]) == ("logits", [4])
        run = lambda x: torch.from_numpy(session.run(None, {"images": x.numpy()})[0])  # noqa: E731
        return run, session.get_modelmeta().custom_metadata_map
    if format == "torchscript":
        with pytest.warns(DeprecationWarning, match="torch.jit.load"):
            return torch.jit.load(str(path), _extra_files=extra), extra
    return torch.export.load(str(path), extra_files=extra).module(), extra


def check(name: str, format: str, folder: Path) -> None:
    model, card = build(name), card_for(name)
    difference = export(model, card, folder / "x", format)
    assert [file.name for file in folder.iterdir()] == [f"x{SUFFIXES[format]}"]
    assert 0 <= difference < 1e-3
    run, extra = load(folder / f"x{SUFFIXES[format]}", format)
    assert Card.from_json(extra["automix"]) == card
    assert json.loads(extra["classes"]) == list(card.classes)
    pixels = torch.rand(5, 3, 32, 32)
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (card.mean, card.std))
    with torch.no_grad():
        expected = model((pixels - mean) / std)
        for count in (1, 2, 5):
            scale = expected.abs().max().item()
            torch.testing.assert_close(run(pixels[:count]), expected[:count], atol=1e-4 * scale, rtol=0)


@pytest.mark.parametrize("format", ["onnx", "torchscript", "torch-export"])
@pytest.mark.parametrize("name", MODELS)
def test_an_export_gives_the_logits_of_the_model(
    name: str, format: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    check(name, format, tmp_path)
    assert capfd.readouterr() == ("", "")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["onnx", "torchscript", "torch-export"])
@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_exports_of_other_families(name: str, format: str, tmp_path: Path) -> None:
    check(name, format, tmp_path)


def test_a_safetensors_export_loads_as_a_classifier(tmp_path: Path) -> None:
    model, card = build("resnet18"), card_for("resnet18")
    assert export(model, card, tmp_path / "x", "safetensors") == 0
    loaded, found = load_classifier(tmp_path / "x.safetensors")
    assert found == card
    x = torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))


def test_an_export_gives_the_probabilities_of_predict(tmp_path: Path) -> None:
    from PIL import Image

    model, card = build("resnet18"), card_for("resnet18")
    image = (torch.rand(32, 32, 3) * 255).byte()
    Image.fromarray(image.numpy()).save(tmp_path / "x.png")
    prediction = next(predict_files(model, card, [tmp_path / "x.png"]))
    export(model, card, tmp_path / "x.pt", "torchscript")
    run, _ = load(tmp_path / "x.pt", "torchscript")
    shares = run(image.permute(2, 0, 1)[None].float() / 255).softmax(dim=1)[0]
    by_class = dict(zip(prediction.classes, prediction.probabilities, strict=True))
    torch.testing.assert_close(shares, torch.tensor([by_class[name] for name in card.classes]))


def test_the_model_is_not_changed(tmp_path: Path) -> None:
    model = build("resnet18").to(torch.bfloat16).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    export(model, card_for("resnet18"), tmp_path / "x", "torchscript")
    assert model.training
    assert all(parameter.requires_grad and parameter.dtype == torch.bfloat16 for parameter in model.parameters())


class DependsOnBatchSize(nn.Module):
    """What a trace takes for a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        logits = self.head(x.mean(dim=(2, 3)))
        return logits if len(x) == 2 else 2 * logits


class OnlyTwo(DependsOnBatchSize):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.reshape(2, 3, -1).mean(dim=2))


class NotANumber(DependsOnBatchSize):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.mean(dim=(2, 3))) * float("nan")


@pytest.mark.parametrize(
    ("model", "format", "message"),
    [
        (DependsOnBatchSize(), "torchscript", r"torchscript: .* differ .* nothing was written"),
        (NotANumber(), "torchscript", r"torchscript: .* differ .* nan"),
        (OnlyTwo(), "torch-export", r"resnet18 cannot be exported as torch-export \("),
        (
            OnlyTwo(),
            "torchscript",
            r"resnet18 cannot be exported as torchscript \(logits of the model .*\(1, 4\), got \(2, 4\)",
        ),
        (OnlyTwo(), "safetensors", r"cannot be exported as safetensors \(.*do not fit the model: conv1.weight is miss"),
    ],
)
@pytest.mark.parametrize("before", [None, b"an older export"])
def test_an_export_that_fails_its_check_leaves_nothing(
    model: nn.Module, format: str, message: str, before: bytes | None, tmp_path: Path
) -> None:
    path = tmp_path / "x.bin"
    if before is not None:
        path.write_bytes(before)
    with pytest.raises(ValueError, match=message) as error:
        export(model, card_for("resnet18"), path, format)
    assert "\n" not in str(error.value)
    assert [file.read_bytes() for file in tmp_path.iterdir()] == ([before] if before is not None else [])


@pytest.mark.parametrize("missing", ["onnx", "onnxscript", "onnxruntime"])
def test_onnx_without_its_packages(missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ValueError) as error:
        export(DependsOnBatchSize(), card_for("resnet18"), tmp_path / "x", "onnx")
    assert re.search(rf"needs {missing}.*automix\[export\]", str(error.value))


@pytest.mark.parametrize(
    ("given", "format", "expected"),
    [
        ("x", "onnx", "x.onnx"),
        ("x", "torchscript", "x.pt"),
        ("x", "torch-export", "x.pt2"),
        ("x", "safetensors", "x.safetensors"),
        ("x.model", "onnx", "x.model"),
    ],
)
def test_a_path_without_a_suffix_gets_that_of_the_format(given: str, format: str, expected: str) -> None:
    assert export_path(Path("folder") / given, format) == Path("folder") / expected


def test_unknown_formats_and_missing_folders_are_errors(tmp_path: Path) -> None:
    model, card = DependsOnBatchSize(), card_for("resnet18")
    with pytest.raises(ValueError, match=r"format.*onnx, torchscript, torch-export, safetensors"):
        export(model, card, tmp_path / "x", "tflite")
    with pytest.raises(ValueError, match="none: no such folder"):
        export(model, card, tmp_path / "none" / "x", "torchscript")
