"""Exports for timm and the hub: opened by timm, transformers and automix they give the same logits to the bit."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import yaml
from torch import nn

import automix
from automix.cli import main as cli
from automix.core.errors import AutomixError
from automix.deploy import export_timm, push
from automix.runs.classifier import Card, save_classifier

NETWORKS: dict[str, tuple[int, dict[str, Any]]] = {
    "resnet18": (96, {"channels": (8, 8, 16, 16)}),
    "vit_tiny_patch16_224": (32, {"depth": 2, "embed_dim": 48}),
    "convnext_atto": (32, {"depths": (1, 1, 1, 1), "dims": (8, 8, 16, 16)}),
}


def make(folder: Path, name: str = "resnet18") -> tuple[nn.Module, Card, Path]:
    size, options = NETWORKS[name]
    torch.manual_seed(0)
    model = automix.create_model(name, num_classes=3, image_size=size, **options).eval()
    card = Card(
        model=name,
        model_options=options,
        classes=("ant", "bee", "škorpik"),
        image_size=size,
        train_size=size,
        crop=0.9,
        mean=(0.5, 0.4, 0.3),
        std=(0.2, 0.25, 0.3),
        facts={"data": "photos/insects", "method": "cutmix", "student_top1": 81.25, "automix": "0.1.0"},
    )
    save_classifier(folder / "model-to-export.safetensors", model, card)
    return model, card, folder / "model-to-export.safetensors"


@pytest.mark.parametrize("name", NETWORKS)
def test_timm_and_automix_give_the_same_logits(name: str, tmp_path: Path) -> None:
    model, card, file = make(tmp_path, name)
    folder = export_timm(file, tmp_path / "out")
    images = torch.randn(2, 3, card.image_size, card.image_size)
    opened = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    loaded, read = automix.load_classifier(folder)
    with torch.inference_mode():
        expected = model(images)
        assert torch.equal(opened(images), expected)
        assert torch.equal(loaded(images), expected)
    assert read == card
    settings = timm.data.resolve_model_data_config(opened)
    assert tuple(settings["mean"]) == card.mean
    assert tuple(settings["std"]) == card.std
    assert settings["crop_pct"] == card.crop
    assert tuple(settings["input_size"]) == (3, card.image_size, card.image_size)


def test_transformers_gives_the_same_logits(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model, card, file = make(tmp_path)
    folder = export_timm(file, tmp_path / "out")
    opened = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
    images = torch.randn(2, 3, card.image_size, card.image_size)
    with torch.inference_mode():
        assert torch.equal(opened(images).logits, model(images))
    assert opened.config.id2label == {0: "ant", 1: "bee", 2: "škorpik"}


def test_the_folder_of_a_run_has_its_facts_and_a_picture(photos: Path, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"recipe": "quick", "epochs": 1, "batch_size": 12, "train_size": 96, "test_size": 96}
    options = {"layers": [1, 1, 1, 1], "channels": [4, 4, 4, 4]}
    run, out = tmp_path / "run", tmp_path / "out"
    summary = automix.train(photos, method="mixup", model_options=options, workers=0, out=str(run), **settings)
    assert cli.run(["export", str(run), "--format", "timm", "--out", str(out)]) == 0
    assert {path.name for path in out.iterdir()} == {"README.md", "config.json", "model.safetensors", "samples.png"}
    _, header, body = (out / "README.md").read_text().split("---\n", 2)
    assert yaml.safe_load(header)["library_name"] == "timm"
    assert f"| test accuracy, top-1 (student) | {summary['student_top1']:.2f} % |" in body
    assert "| method | mixup |" in body
    assert "![mixed training samples](samples.png)" in body
    assert json.loads((out / "config.json").read_text())["label_names"] == ["a", "b", "c"]
    with pytest.raises(AutomixError, match="holds a run"):
        export_timm(run, run)


def test_a_network_that_timm_cannot_build_is_refused(tmp_path: Path) -> None:
    """automix gives a ResNet for small images another stem, wide ResNets are not timm's."""
    for name in ("resnet18", "wrn_10_1"):
        model = automix.create_model(name, num_classes=3, image_size=32).eval()
        options: dict[str, Any] = {"classes": ("a", "b", "c"), "mean": (0.5,) * 3, "std": (0.2,) * 3}
        card = Card(model=name, model_options={}, image_size=32, train_size=32, **options)
        save_classifier(tmp_path / "small.safetensors", model, card)
        with pytest.raises(AutomixError, match="use --format safetensors"):
            export_timm(tmp_path / "small.safetensors", tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- the hub ---------------------------------------------------------------------------------------------------------


class Hub(BaseHTTPRequestHandler):
    """The parts of the hub's HTTP API that an upload uses; what it received is in `files`."""

    files: dict[str, bytes]
    stored: dict[str, bytes]

    def log_message(self, *_: Any) -> None:
        pass

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        chunks = []
        while length := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(length))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def answer(self, value: Any, code: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    @property
    def is_known(self) -> bool:
        return self.headers.get("Authorization") == "Bearer hf_right"

    def do_GET(self) -> None:
        if self.is_known:
            self.answer({"id": "ada/insects", "sha": "0" * 40, "siblings": []})
        else:
            self.answer({"error": "Invalid credentials"}, 401)

    def do_PUT(self) -> None:
        content = self.body()
        self.stored[hashlib.sha256(content).hexdigest()] = content
        self.answer({})

    def do_POST(self) -> None:
        body = self.body()
        address = f"http://{self.headers['Host']}"
        if not self.is_known:
            self.answer({"error": "Invalid credentials"}, 401)
        elif self.path == "/api/repos/create":
            self.answer({"url": f"{address}/ada/insects"})
        elif self.path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
            self.answer({"files": [{"path": p, "uploadMode": m, "shouldIgnore": False} for p, m in modes.items()]})
        elif self.path.endswith("/info/lfs/objects/batch"):
            asked = json.loads(body)["objects"]
            objects = [
                {**one, "actions": {"upload": {"href": f"{address}/upload/{one['oid']}", "header": {}}}}
                for one in asked
            ]
            self.answer({"transfer": "basic", "objects": objects})
        elif "/commit/" in self.path:
            for line in body.decode().splitlines():
                entry = json.loads(line)
                if entry["key"] == "file":
                    self.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
                elif entry["key"] == "lfsFile":
                    self.files[entry["value"]["path"]] = self.stored[entry["value"]["oid"]]
            commit = {"commitUrl": f"{address}/ada/insects/commit/1", "commitOid": "1" * 40}
            self.answer({"success": True, **commit})
        else:
            self.answer({"error": self.path}, 404)


@pytest.fixture
def hub() -> Iterator[ThreadingHTTPServer]:
    handler = type("Handler", (Hub,), {"files": {}, "stored": {}})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # raised inside huggingface_hub
def test_push_uploads_the_folder_in_one_commit(
    hub: ThreadingHTTPServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_XET", True)  # plain HTTP, which the stand-in has
    model, card, file = make(tmp_path)
    endpoint = f"http://127.0.0.1:{hub.server_port}"
    url = push(file, "ada/insects", token="hf_right", endpoint=endpoint)
    assert url == f"{endpoint}/ada/insects/commit/1"
    received = hub.RequestHandlerClass.files  # type: ignore[attr-defined]
    assert set(received) == {"README.md", "config.json", "model.safetensors"}
    (tmp_path / "back").mkdir()
    for name, content in received.items():
        (tmp_path / "back" / name).write_bytes(content)
    loaded, read = automix.load_classifier(tmp_path / "back")
    assert read == card
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))


def test_push_says_what_the_hub_refuses(hub: ThreadingHTTPServer, tmp_path: Path) -> None:
    _, _, file = make(tmp_path)
    with pytest.raises(AutomixError, match=r"ada/insects: the hub refused .*401"):
        push(file, "ada/insects", token="hf_wrong", endpoint=f"http://127.0.0.1:{hub.server_port}")
    with pytest.raises(AutomixError, match="repository must be user/name, got 'insects'"):
        push(file, "insects")
