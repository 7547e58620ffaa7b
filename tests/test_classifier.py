"""A classifier's file: what is saved comes back, and what cannot be used is refused in one line."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

import automix
from automix.runs import classifier
from automix.runs.classifier import Card, WithNormalization, save_classifier
from automix.runs.folder import load_classifier

OPTIONS = {"channels": (8, 16, 32, 64)}


def narrow_card(**changes: Any) -> Card:
    card = Card(
        model="resnet18",
        model_options=OPTIONS,
        classes=("ant", "bee", "vespa škorpik", "虫"),
        image_size=32,
        train_size=32,
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.25, 0.3),
        facts={"accuracy": 81.25, "epoch": 3, "unheard of": {"a": [1, None]}},
    )
    return replace(card, **changes)


def narrow_resnet(classes: int = 4, image_size: int = 32) -> Any:
    """With batch statistics that are not the initial ones."""
    model = automix.create_model("resnet18", num_classes=classes, image_size=image_size, **OPTIONS)
    model(torch.randn(4, 3, 32, 32))
    return model.eval()


def save_with_card(path: Path, text: str | None) -> None:
    save_file(narrow_resnet().state_dict(), path, metadata=None if text is None else {"automix": text})


@pytest.mark.parametrize("train_size", [32, 96], ids=["small stem", "large stem"])
def test_weights_and_card_come_back(tmp_path: Path, train_size: int) -> None:
    model = narrow_resnet(image_size=train_size)
    card = narrow_card(train_size=train_size, image_size=40, crop=0.875)
    save_classifier(tmp_path / "x.safetensors", model, card)
    state = torch.get_rng_state()
    loaded, found = load_classifier(tmp_path / "x.safetensors")
    assert torch.equal(torch.get_rng_state(), state)  # building the model draws weights, and nobody may notice
    assert found == card
    assert not loaded.training
    x = torch.randn(2, 3, 40, 40)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    model = narrow_resnet().to(memory_format=torch.channels_last)
    save_classifier(path, model, narrow_card())
    weights = load_file(path)
    assert sorted(weights) == sorted(model.state_dict())
    plain = automix.create_model("resnet18", num_classes=4, image_size=32, **OPTIONS)
    plain.load_state_dict(weights)
    with safe_open(path, framework="pt") as file:
        assert json.loads(file.metadata()["automix"])["classes"] == list(narrow_card().classes)
    (tmp_path / "ordinary").touch()
    assert path.stat().st_mode == (tmp_path / "ordinary").stat().st_mode


def test_tied_weights_come_back(tmp_path: Path) -> None:
    model = narrow_resnet()
    model.layer1[1].conv1.weight = model.layer1[1].conv2.weight
    save_classifier(tmp_path / "x", model, narrow_card())
    loaded, _ = load_classifier(tmp_path / "x")
    x = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(loaded(x), model(x))


def test_saving_leaves_the_model_alone(tmp_path: Path) -> None:
    model = narrow_resnet().train().to(memory_format=torch.channels_last)
    save_classifier(tmp_path / "x", model, narrow_card())
    assert model.training
    assert not model.conv1.weight.is_contiguous()


@pytest.mark.skipif(os.name != "posix", reason="no limit on the size of files")
def test_a_disk_that_is_full_leaves_the_old_file(tmp_path: Path) -> None:
    import resource

    path = tmp_path / "x"
    save_classifier(path, narrow_resnet(), narrow_card())
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError):
            save_classifier(path, narrow_resnet(), narrow_card())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**OPTIONS, "pretrained": True, "checkpoint_path": "elsewhere.pth"}
    save_classifier(tmp_path / "x", narrow_resnet(), narrow_card(model_options=options))
    seen: dict[str, Any] = {}

    def record(*args: Any, **kwargs: Any) -> nn.Module:
        seen.update(kwargs)
        return automix.create_model(*args, **kwargs)

    monkeypatch.setattr(classifier, "create_model", record)
    _, card = load_classifier(tmp_path / "x")
    assert seen == {"num_classes": 4, "image_size": 32, **OPTIONS}
    assert card.model_options == options


def test_a_runs_folder(tmp_path: Path) -> None:
    save_classifier(tmp_path / "last.safetensors", narrow_resnet(), narrow_card(facts={"epoch": 9}))
    with pytest.raises(ValueError, match=r"no best\.safetensors in it"):
        load_classifier(tmp_path, which="best")
    save_classifier(tmp_path / "best.safetensors", narrow_resnet(), narrow_card(facts={"epoch": 7}))
    assert load_classifier(tmp_path)[1].facts == {"epoch": 9}
    assert load_classifier(tmp_path, which="best")[1].facts == {"epoch": 7}


def test_normalization() -> None:
    model = WithNormalization(nn.Conv2d(3, 3, 1), narrow_card(mean=(0.5, 0.0, 0.25), std=(0.5, 1.0, 0.25)))
    nn.init.dirac_(model.model.weight)  # type: ignore[arg-type]
    nn.init.zeros_(model.model.bias)  # type: ignore[arg-type]
    assert model(torch.full((1, 3, 1, 1), 0.75)).flatten().tolist() == [0.5, 0.75, 2.0]


def test_a_card_of_somebody_else_may_say_more_and_leave_out_what_has_a_default(tmp_path: Path) -> None:
    fields = json.loads(narrow_card().to_json())
    del fields["crop"], fields["facts"]
    save_with_card(tmp_path / "x", json.dumps({**fields, "color": "red"}))
    assert load_classifier(tmp_path / "x")[1] == narrow_card(facts={})


def changed(**changes: Any) -> str:
    return json.dumps({**json.loads(narrow_card().to_json()), **changes})


@pytest.mark.parametrize(
    ("card", "message"),
    [
        (None, "x: no card of automix in it"),
        ("{", "x: .*JSON with format '1'"),
        ("[]", "x: .*JSON with format"),
        ('{"model": "resnet18"}', "x: .*JSON with format"),
        ('{"format": "1", "model": "resnet18"}', "x: model_options is missing"),
        (changed(crop="all"), "x: crop must be a number"),
        (changed(format="2"), "x: .*format '1'.*'2'"),
        (changed(classes=[]), "x: classes must have one"),
        (changed(model="resnet81"), "x: model 'resnet81' cannot be built"),
        (changed(model_options={"color": 1}), "x: model 'resnet18' cannot be built .*color"),
        (changed(model_options=[1]), "x: model_options must be NAME: VALUE"),
        (changed(classes="ab"), "x: classes must be a list"),
        (changed(model=None), "x: model must be a string"),
        (changed(classes=["a", "b"]), r"do not fit the model: fc.weight has shape \(4, 64\), in the model \(2, 64\)"),
        (changed(model="resnet10t"), "do not fit the model: "),
        (changed(model="resnet34"), "do not fit the model: layer1.2.conv1.weight is missing"),
    ],
)
def test_wrong_cards_are_refused(tmp_path: Path, card: str | None, message: str) -> None:
    save_with_card(tmp_path / "x", card)
    with pytest.raises(ValueError, match=message) as error:
        load_classifier(tmp_path / "x")
    assert "\n" not in str(error.value)


def test_weights_that_the_model_does_not_know_are_refused(tmp_path: Path) -> None:
    weights = {**narrow_resnet().state_dict(), "layer9.weight": torch.zeros(1)}
    save_file(weights, tmp_path / "x", metadata={"automix": narrow_card().to_json()})
    with pytest.raises(ValueError, match=r"do not fit the model: layer9.weight is not in the model"):
        load_classifier(tmp_path / "x")


@pytest.mark.parametrize("content", [b"", b"not a safetensors file at all", "pickle", "cut"], ids=str)
def test_files_that_are_no_safetensors_are_refused(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "x"
    if content == "pickle":
        torch.save(narrow_resnet().state_dict(), path)
    elif content == "cut":
        save_classifier(path, narrow_resnet(), narrow_card())
        path.write_bytes(path.read_bytes()[:-100])
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(ValueError, match="x: not a safetensors file, or damaged") as error:
        load_classifier(path)
    assert "\n" not in str(error.value)


def test_missing_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="none: no such file or folder"):
        load_classifier(tmp_path / "none")
    with pytest.raises(ValueError, match="which must be one of last, best"):
        load_classifier(tmp_path, which="first")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"classes": ()}, "classes must have one"),
        ({"image_size": 0}, "image_size.*>= 1"),
        ({"train_size": 1.5}, "train_size.*integer"),
        ({"crop": 0.0}, r"crop.*\(0, 1\]"),
        ({"crop": 1.1}, r"crop.*\(0, 1\]"),
        ({"mean": (0.5, 0.5)}, "mean"),
        ({"std": (0.5, 0.0, 1.0)}, "std.*> 0"),
    ],
)
def test_wrong_fields_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        narrow_card(**changes)
    assert "\n" not in str(error.value)


def test_values_that_json_lacks_are_refused_by_name(tmp_path: Path) -> None:
    card = narrow_card(model_options={"act_layer": nn.GELU})
    with pytest.raises(ValueError, match=r"model_options .*JSON"):
        save_classifier(tmp_path / "x", narrow_resnet(), card)
    assert not list(tmp_path.iterdir())
