"""The explorer: it shows what tasks mix and networks predict, on a page that loads and exposes nothing else."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import automix
from automix.cli import main as cli
from automix.deploy.image_files import read_square
from automix.evaluation.cam import cam
from automix.evaluation.heatmaps import resize_maps
from automix.runs.classifier import save_classifier
from automix.runs.config import TrainConfig
from automix.runs.folder import load_classifier
from automix.runs.recipes import find_recipe
from automix.training import train
from automix.training.load import load_task
from automix.views.explorer import render
from automix.views.explorer import server as server_module
from automix.views.explorer.explorer import NEEDS_NETWORK, NEEDS_TRAINING, ONE_IMAGE, Explorer
from automix.views.explorer.gate import MAX_FORM, MAX_UPLOAD, Gate
from automix.views.explorer.open import open_explorer
from automix.views.explorer.pair import MixedImage, Pair, Picture
from automix.views.explorer.uploads import take_upload

HAND_CRAFTED = ("cutmix", "fmix", "gridmix", "mixup", "mixup_or_cutmix", "resizemix", "saliencymix", "smoothmix")
PARTNER = torch.tensor([1, 0])


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """AutoMix, 2 epochs of 3 steps: student and teacher differ."""
    folder = tmp_path_factory.mktemp("runs") / "automix"
    settings = replace(find_recipe("quick"), epochs=2, batch_size=12)
    options: dict[str, Any] = {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]}
    train(TrainConfig(data=str(photos), method="automix", out=str(folder), model_options=options, settings=settings))
    return folder


@pytest.fixture(scope="module")
def explorer(run: Path) -> Explorer:
    return open_explorer(str(run))


@pytest.fixture(scope="module")
def pair(explorer: Explorer) -> Pair:
    return explorer.pair(explorer.examples[0], explorer.examples[1])


def mixed(explorer: Explorer, pair: Pair, method: str, lam: float) -> MixedImage:
    blend = explorer.mix(pair, method, lam)
    assert isinstance(blend, MixedImage), blend
    return blend


# --- mixing ----------------------------------------------------------------------------------------------------------


def test_examples_are_test_images_of_the_run(explorer: Explorer, photos: Path) -> None:
    files = {tuple(read_square(path, 16).flatten().tolist()): path.parent.name for path in photos.glob("test/*/*.png")}
    assert len(explorer.examples) == 12
    assert {one.caption for one in explorer.examples} == {"a", "b", "c"}
    for one in explorer.examples:
        assert files[tuple(one.pixels.flatten().tolist())] == one.caption
        assert one.label is not None
        assert explorer.classes[one.label] == one.caption


def test_the_page_opens_on_two_classes_that_the_mixture_shows(explorer: Explorer) -> None:
    captions = [picture.caption for picture in explorer.examples]
    a, b, c = (captions.index(name) for name in "abc")
    probability = {}
    for one, other in ((a, b), (b, c)):
        pair = explorer.pair(explorer.examples[one], explorer.examples[other])
        answers = explorer.networks["teacher"](mixed(explorer, pair, "automix", 0.5).x).softmax(dim=1)[0]
        probability[one, other] = min(answers[label].item() for label in pair.y)
    assert explorer.first_pair() == max(probability, key=lambda pair: probability[pair])
    assert replace(explorer, examples=[explorer.examples[0]] * 3).first_pair() == (0, 1)  # one class alone
    assert open_explorer().first_pair() == (0, 1)  # no network: the first two classes


@pytest.mark.parametrize("lam", [0.0, 0.3, 1.0])
def test_the_mask_of_mixup_is_lam(explorer: Explorer, pair: Pair, lam: float) -> None:
    blend = mixed(explorer, pair, "mixup", lam)
    assert blend.mask.shape == (1, 16, 16)
    assert torch.allclose(blend.mask, torch.tensor(lam))
    assert blend.share == pytest.approx(lam)
    first, second = (picture.pixels / 255 for picture in pair.pictures)
    assert torch.allclose(blend.pixels, lam * first + (1 - lam) * second, atol=1e-6)


@pytest.mark.parametrize("method", ["automix", "mixup", "cutmix", "fmix", "gridmix", "mixup_or_cutmix"])
def test_at_lam_1_the_mixed_image_is_the_first(explorer: Explorer, pair: Pair, method: str) -> None:
    blend = mixed(explorer, pair, method, 1.0)
    assert torch.allclose(blend.pixels, pair.pictures[0].pixels / 255, atol=1e-6)
    assert blend.share == 1


@pytest.mark.parametrize("lam", [0.05, 0.3, 0.5, 0.9])
def test_automix_mixes_as_its_task_does(run: Path, explorer: Explorer, pair: Pair, lam: float) -> None:
    task, card, _ = load_task(run)
    expected = task.mix(pair.x, pair.y, lam=lam, index=PARTNER)
    blend = mixed(explorer, pair, "automix", lam)
    assert torch.equal(blend.mask, expected.mask[0])
    assert torch.equal(blend.x, expected.x[:1])
    shown = expected.x[0] * torch.tensor(card.std).view(3, 1, 1) + torch.tensor(card.mean).view(3, 1, 1)
    assert torch.allclose(blend.pixels, shown.clamp(0, 1))


def test_classifications_are_those_of_a_direct_pass(run: Path, explorer: Explorer, pair: Pair) -> None:
    task, _, _ = load_task(run)
    assert task.teacher is not None
    blend = mixed(explorer, pair, "automix", 0.4)
    answers = explorer.classify(blend)
    assert [answer.network for answer in answers] == ["student", "teacher"]
    for answer, network in zip(answers, (task.student, task.teacher), strict=True):
        with torch.no_grad():
            likely = network.eval()(blend.x).softmax(dim=1).topk(2)
        assert answer.classes == tuple(likely.indices[0].tolist())
        assert answer.probabilities == pytest.approx(likely.values[0].tolist(), abs=1e-6)
    assert answers[0].probabilities != answers[1].probabilities
    brief = explorer.classify_batch([mixed(explorer, pair, "mixup", 0.7), blend])[1]
    assert (brief.network, brief.classes) == ("teacher", answers[1].classes)
    assert brief.probabilities == pytest.approx(answers[1].probabilities, abs=1e-5)


def test_maps_belong_to_the_top_classes(pair: Pair) -> None:
    small = open_explorer("test_resnet", untrained=True)
    blend = mixed(small, small.pair(small.examples[0], small.examples[1]), "cutmix", 0.4)
    (answer,) = small.classify(blend)
    assert answer.maps is not None
    expected = cam(small.networks["classifier"], blend.x, torch.tensor([answer.classes]))[0]
    assert torch.allclose(answer.maps, resize_maps(expected, (160, 160)), atol=1e-5)


def test_a_network_without_maps_is_classified_with_a_note(explorer: Explorer, pair: Pair) -> None:
    answer = explorer.classify(mixed(explorer, pair, "mixup", 0.4))[0]  # at 16 px the last map has one position
    assert len(answer.classes) == 2
    transformer = open_explorer("test_vit", untrained=True)
    blend = mixed(transformer, transformer.pair(*transformer.examples[:2]), "mixup", 0.5)
    assert transformer.classify(blend)[0].maps is not None  # Grad-CAM
    transformer._cam_methods["classifier"] = [("cam", 4)]
    answer = transformer.classify(blend)[0]
    assert answer.maps is None
    assert answer.note.startswith("no class activation maps: ")
    assert transformer.classify(blend)[0] == answer


def test_a_new_lam_costs_one_pass_of_each_network(run: Path) -> None:
    fresh = open_explorer(str(run))
    passes: Counter[str] = Counter()
    for name, network in fresh.networks.items():
        network.get_submodule("conv1").register_forward_hook(lambda *_, name=name: passes.update([name]))
    pair = fresh.pair(fresh.examples[0], fresh.examples[1])
    for method in ("automix", "puzzlemix", "attentivemix"):
        mixed(fresh, pair, method, 0.5)
    passes.clear()
    for lam in (0.2, 0.3):
        fresh.classify(mixed(fresh, pair, "automix", lam))
    assert passes == {"student": 2, "teacher": 2}
    passes.clear()
    for method in ("automix", "puzzlemix", "attentivemix"):
        mixed(fresh, pair, method, 0.7)
    assert passes == {}
    mixed(fresh, fresh.pair(fresh.examples[2], fresh.examples[1]), "automix", 0.7)
    assert passes == {"teacher": 1}
    assert fresh.pair(fresh.examples[0], fresh.examples[1]) is pair


def test_every_method_mixes_or_gives_a_one_line_reason(explorer: Explorer, pair: Pair) -> None:
    found = explorer.mix_all(pair, 0.4)
    assert next(iter(found)) == "automix"
    assert set(found) == set(automix.methods())
    lines = {name: blend for name, blend in found.items() if isinstance(blend, str)}
    assert set(lines) == {"adautomix", "augmix", "pixmix", "stylemix", "transmix", "vanilla"}
    assert {name for name, line in lines.items() if line == ONE_IMAGE} == {"augmix", "pixmix", "vanilla"}
    assert all("\n" not in line for line in lines.values())
    for blend in found.values():
        if isinstance(blend, MixedImage):
            assert blend.pixels.shape == (3, 16, 16)
            assert 0 <= float(blend.mask.min()) <= float(blend.mask.max()) <= 1
            assert 0 <= blend.share <= 1


def test_the_same_pair_lam_and_method_give_the_same_picture(run: Path, explorer: Explorer, pair: Pair) -> None:
    again = open_explorer(str(run))
    other = again.pair(again.examples[0], again.examples[1])
    torch.rand(7)
    for name, blend in explorer.mix_all(pair, 0.35).items():
        repeated = again.mix(other, name, 0.35)
        if isinstance(blend, MixedImage):
            assert isinstance(repeated, MixedImage)
            assert torch.equal(blend.pixels, repeated.pixels), name
            assert torch.equal(blend.mask, repeated.mask), name
        else:
            assert blend == repeated


@pytest.mark.parametrize("lam", [-0.1, 1.1, float("nan")])
def test_lam_must_be_in_0_to_1(explorer: Explorer, pair: Pair, lam: float) -> None:
    with pytest.raises(ValueError, match="lam"):
        explorer.mix(pair, "mixup", lam)


# --- opening ---------------------------------------------------------------------------------------------------------


def test_without_a_network_hand_crafted_methods_mix() -> None:
    nothing = open_explorer()
    found = nothing.mix_all(nothing.pair(*nothing.examples[:2]), 0.5)
    assert {name for name, blend in found.items() if isinstance(blend, MixedImage)} >= set(HAND_CRAFTED)
    assert found["automix"] == NEEDS_NETWORK
    assert found["puzzlemix"] == NEEDS_NETWORK
    assert nothing.classify(mixed(nothing, nothing.pair(*nothing.examples[:2]), "mixup", 0.5)) == []
    assert "No network is open" in render.one_method(nothing, nothing.pair(*nothing.examples[:2]), "mixup", 0.5)


def test_an_untrained_timm_network(photos: Path) -> None:
    named = open_explorer("test_resnet", untrained=True, data=str(photos))
    assert {one.caption for one in named.examples} == {"a", "b", "c"}
    assert {one.label for one in named.examples} == {None}  # its classes are others
    assert named.examples[0].pixels.shape == (3, 160, 160)
    assert (len(named.classes), named.classes[:2]) == (1000, ("tench", "goldfish"))
    pair = named.pair(*named.examples[:2])
    found = named.mix_all(pair, 0.5)
    assert {name for name, blend in found.items() if isinstance(blend, MixedImage)} >= {*HAND_CRAFTED, "puzzlemix"}
    with torch.no_grad():
        assert torch.equal(named.networks["classifier"](pair.x).argmax(dim=1), pair.y)
    assert "The weights are random" in render.heading(named)
    torch.rand(7)  # global randomness has no say
    again = open_explorer("test_resnet", untrained=True)
    for name, tensor in named.networks["classifier"].state_dict().items():
        assert torch.equal(tensor, again.networks["classifier"].state_dict()[name])


def test_a_classifiers_file_and_a_run_without_its_checkpoint(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("checkpoint*"))
    model, _ = load_classifier(run)
    for source, notes in ((run / "last.safetensors", 0), (folder, 1)):
        opened = open_explorer(str(source))
        assert list(opened.networks) == ["classifier"]
        assert len(opened.notes) == notes
        pair = opened.pair(*opened.examples[:2])
        assert opened.mix(pair, "automix", 0.5) == NEEDS_TRAINING
        blend = mixed(opened, pair, "mixup", 0.5)
        with torch.no_grad():
            assert opened.classify(blend)[0].classes[0] == int(model(blend.x).argmax())


def test_a_file_whose_data_is_elsewhere_has_drawn_examples(run: Path, tmp_path: Path) -> None:
    model, card = load_classifier(run)
    file = tmp_path / "sent.safetensors"
    save_classifier(file, model, replace(card, facts={**card.facts, "data": str(tmp_path / "gone")}))
    opened = open_explorer(str(file))
    assert opened.examples[0].caption == "disc"
    assert opened.examples[0].label is None
    assert opened.notes[0].startswith("The data of the run is not available (")
    assert isinstance(opened.mix(opened.pair(*opened.examples[:2]), "puzzlemix", 0.5), MixedImage)
    with pytest.raises(ValueError, match="gone"):
        open_explorer(str(file), data=str(tmp_path / "gone"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"source": "no_such_net"}, "no_such_net"),
        (
            {"source": "test_resnet", "untrained": True, "weights": "x"},
            "weights must not be given together with untrained",
        ),
        ({"untrained": True}, "weights and untrained need a network"),
        ({"source": "test_resnet", "untrained": True, "data": "no-such-data"}, "no-such-data"),
        ({"source": "test_resnet", "weights": "no-such-file"}, "no-such-file"),
        ({"source": "."}, "no last.safetensors in it"),
    ],
)
def test_sources_that_cannot_be_opened_are_one_line_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, OSError), match=re.escape(message)) as caught:
        open_explorer(options.pop("source", None), **options)
    assert "\n" not in str(caught.value)


# --- uploads ---------------------------------------------------------------------------------------------------------


def bomb(side: int) -> bytes:
    """A PNG of a few bytes that claims `side` x `side` pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


BAD = {
    "rubbish.png": b"\x89PNG\r\n\x1a\n" + bytes(range(256)),
    "text.png": b"all work and no play\n" * 50,
    "huge.png": bomb(20_000),
    "large.png": bomb(11_000),
    "empty.jpg": b"",
    "cut.png": bomb(64)[:-30],
    "drawing.png": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\nshowpage\n",
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_upload_is_a_one_line_error_and_is_removed(explorer: Explorer, tmp_path: Path, name: str) -> None:
    path = tmp_path / "hash" / name
    path.parent.mkdir()
    path.write_bytes(BAD[name])
    with pytest.raises(ValueError, match="cannot be read as an image") as caught:
        take_upload(explorer, {"path": str(path), "orig_name": name}, tmp_path)
    line = str(caught.value)
    assert line.startswith(f"{name}: ")
    assert "\n" not in line
    assert str(tmp_path) not in line
    assert (name in ("text.png", "drawing.png", "empty.jpg")) <= ("upload JPEG" in line)
    assert list(tmp_path.iterdir()) == []


def test_a_good_upload_is_read_as_test_images_are(explorer: Explorer, tmp_path: Path) -> None:
    original = tmp_path / "photo.png"
    Image.effect_mandelbrot((50, 40), (-2, -1, 1, 1), 50).save(original)
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    shutil.copy(original, uploads / "photo.png")
    picture = take_upload(explorer, {"path": str(uploads / "photo.png")}, uploads)
    assert torch.equal(picture.pixels, read_square(original, 16))
    assert (picture.caption, picture.label) == ("photo.png", None)
    pair = explorer.pair(picture, explorer.examples[1])
    with torch.no_grad():
        assert int(pair.y[0]) == int(explorer.networks["teacher"](pair.x).argmax(dim=1)[0])
    assert list(uploads.iterdir()) == []


@pytest.mark.parametrize("upload", [None, {}, {"path": 3}, {"path": "../secret.png"}, "text", {"path": ""}])
def test_nothing_outside_the_folder_is_read_or_removed(
    explorer: Explorer, tmp_path: Path, upload: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads, secret = tmp_path / "uploads", tmp_path / "secret.png"
    uploads.mkdir()
    monkeypatch.chdir(uploads)
    Image.new("RGB", (8, 8)).save(secret)
    (uploads / "link.png").symlink_to(secret)
    for one in (upload, {"path": str(secret)}, {"path": str(uploads / "link.png")}, {"path": str(uploads)}):
        with pytest.raises(ValueError, match="nothing was uploaded"):
            take_upload(explorer, one, uploads)
    assert secret.is_file()


# --- the page's words ------------------------------------------------------------------------------------------------

EVIL = "<script>alert(1)</script><img src=x onerror=alert(2)>"


def test_class_names_and_file_names_are_escaped(explorer: Explorer) -> None:
    card = replace(explorer.card, classes=(EVIL, EVIL + "2", EVIL + "3"))
    evil = replace(explorer, card=card, name=EVIL, notes=[EVIL], examples=explorer.examples)
    picture = Picture(explorer.examples[0].pixels, EVIL)
    pair = evil.pair(picture, evil.examples[1])
    pages = [
        render.heading(evil),
        render.picker(evil, 0, picture, EVIL),
        render.one_method(evil, pair, "automix", 0.4),
        render.all_methods(evil, pair, 0.4),
    ]
    for page in pages:
        assert "<script" not in page
        assert "onerror=alert(2)&gt;" in page
        assert set(re.findall(r"<img ([a-z]+)=", page)) <= {"src"}
        assert not re.findall(r"https?:", page)


def test_pictures_on_the_page_are_those_that_were_mixed(explorer: Explorer, pair: Pair) -> None:
    import base64
    import io

    page = render.one_method(explorer, pair, "automix", 0.4)
    shown = [base64.b64decode(found) for found in re.findall(r"data:image/webp;base64,([^\"]+)", page)]
    blend = mixed(explorer, pair, "automix", 0.4)
    with Image.open(io.BytesIO(shown[1])) as opened:
        pixels = torch.tensor(list(opened.convert("RGB").tobytes())).view(16, 16, 3).permute(2, 0, 1)
    assert torch.equal(pixels, (blend.pixels * 255).round().long())
    assert f"label: 0.40 {pair.pictures[0].caption} + 0.60 {pair.pictures[1].caption}" in page
    assert [page.count(f"<h3>{name}</h3>") for name in ("Student", "Teacher")] == [1, 1]
    assert render.one_method(explorer, pair, "automix", 0.4) == page
    assert render.one_method(explorer, pair, "automix", 0.5) != page


# --- the gate and the server -----------------------------------------------------------------------------------------


async def answer(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers every request with what was sent to it."""
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": body})


def ask(
    gate: Gate, path: str, body: bytes = b"", host: str = "127.0.0.1:7860", **more: str
) -> tuple[int, dict[str, str], bytes]:
    parts = [body[start : start + 1000] for start in range(0, len(body), 1000)] or [b""]
    incoming = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    incoming[-1]["more_body"] = False
    sent: list[Any] = []

    async def receive() -> Any:
        return incoming.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    given = [("host", host), *more.items()]
    scope = {"type": "http", "path": path, "headers": [(name.encode(), value.encode()) for name, value in given]}
    asyncio.run(gate(scope, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, sent[1]["body"]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/assets/index.js", 200),
        ("/theme.css", 200),
        ("/gradio_api/queue/data", 200),
        ("/gradio_api/upload", 200),
        ("/gradio_api/file=/etc/passwd", 404),
        ("/gradio_api/file=http://example.com/x", 404),
        ("/gradio_api/proxy=http://example.com/x", 404),
        ("/gradio_api/run/predict", 404),
        ("/gradio_api/call/show", 404),
        ("/gradio_api/component_server", 404),
        ("/gradio_api/process_recording", 404),
        ("/gradio_api/vibe-edit/", 404),
        ("/docs", 404),
        ("//gradio_api/file=/etc/passwd", 404),
        ("/assets/../../../etc/passwd", 404),
        ("/static//etc/passwd", 404),
        ("/static/..\\..\\secret", 404),
        ("/assets/index.js\0.png", 404),
        ("/gradio_api/upload/../file=/etc/passwd", 404),
    ],
)
def test_routes_that_the_page_does_not_need_are_not_found(tmp_path: Path, path: str, status: int) -> None:
    found, headers, _ = ask(Gate(answer, tmp_path, local_only=True), path)
    assert found == status
    assert "connect-src 'self'" in headers["content-security-policy"]
    assert not re.findall(r"https?:|\*", headers["content-security-policy"])


def test_payloads_may_name_only_uploads(tmp_path: Path) -> None:
    gate = Gate(answer, tmp_path, local_only=True)

    def status(payload: Any) -> int:
        return ask(gate, "/gradio_api/queue/join", json.dumps(payload).encode())[0]

    good = {"data": [None, {"path": str(tmp_path / "hash" / "a.png"), "meta": {"_type": "gradio.FileData"}}]}
    assert ask(gate, "/gradio_api/queue/join", json.dumps(good).encode())[2] == json.dumps(good).encode()
    for path in ("/etc/passwd", "http://example.com/x.png", "a.png", f"{tmp_path}/../x", str(tmp_path), 3, None, [1]):
        assert status({"data": [0.5, {"deep": [{"path": path, "meta": {"_type": "gradio.FileData"}}]}]}) == 403
    (tmp_path / "link").symlink_to("/etc")
    assert status({"data": [{"path": str(tmp_path / "link" / "passwd")}]}) == 403
    assert status({"data": ["x" * 50_000]}) == 200
    assert status({"data": ["x" * 200_000]}) == 403
    for body in (b"no json", b"[" * 90_000, b"\xff"):
        assert ask(gate, "/gradio_api/queue/join/", body)[0] == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:7860", 200),
        ("127.0.0.1", 200),
        ("[::1]:7860", 200),
        ("evil.example:7860", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost@evil.example", 403),
        ("localhost, evil.example", 403),
        ("", 403),
    ],
)
def test_a_local_server_refuses_other_host_names(tmp_path: Path, host: str, status: int) -> None:
    assert ask(Gate(answer, tmp_path, local_only=True), "/", host=host)[0] == status
    assert ask(Gate(answer, tmp_path, local_only=False), "/", host=host)[0] == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://127.0.0.1:7860", 200),
        ("http://evil.example", 403),
        ("http://127.0.0.1:8000", 403),
        ("https://127.0.0.1:7860", 403),
        ("null", 403),
    ],
)
def test_a_local_server_refuses_what_other_pages_send(tmp_path: Path, origin: str, status: int) -> None:
    for path in ("/gradio_api/upload", "/gradio_api/queue/data"):
        assert ask(Gate(answer, tmp_path, local_only=True), path, origin=origin)[0] == status


def test_a_request_with_two_hosts_is_refused(tmp_path: Path) -> None:
    scope = {"type": "http", "path": "/", "headers": [(b"host", b"localhost"), (b"host", b"evil.example")]}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(Gate(answer, tmp_path, local_only=True)(scope, asyncio.Queue().get, send))
    assert sent[0]["status"] == 403


def test_an_oversized_upload_is_refused_whatever_its_headers_say(tmp_path: Path) -> None:
    gate = Gate(answer, tmp_path, local_only=True)
    for path in ("/gradio_api/upload", "/gradio_api/upload/"):
        assert ask(gate, path, bytes(MAX_FORM))[2] == bytes(MAX_FORM)
        assert ask(gate, path, bytes(MAX_FORM + 1), **{"content-length": "5"})[0] == 413


def test_a_port_in_use_and_wrong_addresses_are_one_line_errors(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server_module, "check_gradio", lambda: None)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert cli.run(["explore", "--port", str(port)]) == 2
        error = capsys.readouterr().err
        assert re.match(rf"automix: port .*{port} \(Address already in use\)", error)
        assert error.count("\n") == 1
    for line, message in {
        "--port -1": ".*port.*-1",
        "--port 70000": ".*port.*70000",
        "--port x": ".*port.*integer",
        "--host no.such.host.invalid": r"host .*address of this machine.*no\.such\.host\.invalid",
        "--host 203.0.113.7": r"host .*address of this machine.*203\.0\.113\.7",
        "--host ..": r"host .*address of this machine.*\.\.",
    }.items():
        assert cli.run(["explore", *line.split()]) == 2
        error = capsys.readouterr().err
        assert re.match(f"automix: {message}", error)
        assert error.count("\n") == 1


def test_missing_gradio_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "gradio", None)
    assert cli.run(["explore"]) == 2
    assert re.fullmatch(r"automix: .*gradio.*automix\[explore\].*\n", capsys.readouterr().err)


def test_a_public_host_gives_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[tuple[str, str]] = []
    monkeypatch.setattr(server_module, "check_gradio", lambda: None)
    monkeypatch.setattr(server_module, "serve", lambda explorer, listener, host: served.append((explorer.name, host)))
    with pytest.warns(UserWarning, match="whoever reaches this machine can use the page"):
        cli.execute(["explore", "--host", "0.0.0.0", "--port", "0"])
    cli.execute(["explore", "--port", "0"])
    assert served == [("no network", "0.0.0.0"), ("no network", "127.0.0.1")]
    hosts = ("127.0.0.1", "::1", "localhost", "0.0.0.0", "::", "example.org")
    assert [server_module.is_loopback(host) for host in hosts] == [True] * 3 + [False] * 3


# --- in a real browser -----------------------------------------------------------------------------------------------


WATCHED = """
import sys
def watch(event, given):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        sys.stderr.write(f"{event} {given}\\n")
sys.addaudithook(watch)
from automix.cli.main import main
main(sys.argv[1:])
"""


class Server:
    """`automix explore RUN` as a process of its own, which tells on stderr of every connection that it makes."""

    def __init__(self, run: Path, folder: Path) -> None:
        command = [sys.executable, "-c", WATCHED, "explore", str(run), "--port", "0"]
        self.folder = folder
        environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert self.process.stdout is not None
        self.said = self.process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", self.said)
        assert found is not None, self.process.communicate(timeout=10)
        self.address = found[0]

    def uploads(self) -> list[Path]:
        return [path for path in self.folder.rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def server(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    pytest.importorskip("gradio")
    started = Server(run, tmp_path_factory.mktemp("server"))
    yield started
    started.process.kill()
    started.process.communicate(timeout=10)


class Visit:
    """The page on a screen, and everything that the browser says and asks for."""

    def __init__(self, browser: Any, server: Server, width: int = 1280, scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.messages: list[str] = []
        self.requests: list[str] = []
        self.page = self.context.new_page()
        self.page.set_default_timeout(90_000)  # on a busy machine
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(server.address)
        self.page.wait_for_selector("#am-one img")

    def mixed(self) -> str:
        return self.page.get_by_alt_text("mixed image").get_attribute("src")

    def wait_for_another(self, before: str) -> None:
        self.page.wait_for_function(
            "before => { const one = document.querySelector('#am-one img[alt=\"mixed image\"]');"
            " return one && one.src !== before; }",
            arg=before,
        )

    def close(self, server: Server) -> None:
        """Check that the browser reported nothing and loaded nothing from elsewhere."""
        assert self.messages == []
        own = (server.address + "/", "data:", "blob:" + server.address)
        assert [url for url in self.requests if not url.startswith(own)] == []
        self.context.close()


def upload(visit: Visit, side: int, name: str, content: bytes) -> None:
    file = {"name": name, "mimeType": "image/png", "buffer": content}
    visit.page.locator(f"#am-side-{side} input[type=file]").set_input_files(file)


def test_the_slider_and_the_examples_change_the_picture(browser: Any, server: Server) -> None:
    visit = Visit(browser, server)
    page = visit.page
    start, slider = visit.mixed(), page.locator("#am-lam input[type=range]")
    slider.fill("0.2")
    visit.wait_for_another(start)
    moved = visit.mixed()
    assert "label: 0.20" in page.locator("#am-one").inner_text()
    slider.fill("0.5")
    visit.wait_for_another(moved)
    assert visit.mixed() == start
    page.locator("#am-side-1 [data-number='5']").click()
    visit.wait_for_another(start)
    assert page.locator("#am-side-1 [data-number='5']").get_attribute("aria-pressed") == "true"
    assert page.locator("#am-side-0 [data-number='0']").get_attribute("aria-pressed") == "true"
    page.get_by_role("tab", name="All methods side by side").click()
    page.wait_for_selector("#am-all .am-card")
    cards, lines = page.locator("#am-all .am-card").count(), page.locator("#am-all .am-left-out li").count()
    assert cards + lines == len(automix.methods())
    assert lines == 6
    loaded = "[...document.images].map(image => image.complete && image.naturalWidth > 0)"
    assert set(page.evaluate(loaded)) == {True}
    visit.close(server)


def test_a_bad_upload_shows_a_message_and_a_good_one_is_used(browser: Any, server: Server, tmp_path: Path) -> None:
    visit = Visit(browser, server)
    start = visit.mixed()
    before = set(server.uploads())
    upload(visit, 0, "rubbish.png", BAD["rubbish.png"])
    message = visit.page.locator("#am-side-0 [role=alert]")
    message.wait_for()
    assert message.inner_text().startswith("rubbish.png: cannot be read as an image")
    assert visit.mixed() == start
    upload(visit, 0, "huge.png", BAD["huge.png"])
    visit.page.get_by_text("huge.png: cannot be read as an image").wait_for()
    Image.effect_mandelbrot((50, 40), (-2, -1, 1, 1), 50).save(tmp_path / "mine.png")
    upload(visit, 0, "mine.png", (tmp_path / "mine.png").read_bytes())
    visit.wait_for_another(start)
    assert visit.page.locator("#am-side-0 .am-name").inner_text() == "mine.png"
    assert message.count() == 0
    assert set(server.uploads()) == before
    visit.close(server)


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_the_page_fits_the_screen_in_light_and_dark(browser: Any, server: Server, width: int, scheme: str) -> None:
    visit = Visit(browser, server, width, scheme)
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    background = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    shades = [int(shade) for shade in re.findall(r"\d+", background)][:3]
    assert max(shades) < 60 if scheme == "dark" else min(shades) > 200
    visit.close(server)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(
    browser: Any, server: Server, find_violations: Callable[[Any], list[str]], scheme: str
) -> None:
    visit = Visit(browser, server, scheme=scheme)
    found = find_violations(visit.page)
    assert [one for one in found if one.startswith(("serious", "critical"))] == []
    visit.close(server)


def test_the_keyboard_moves_lam_and_chooses_images(browser: Any, server: Server) -> None:
    visit = Visit(browser, server)
    start = visit.mixed()
    visit.page.locator("#am-lam input[type=range]").focus()
    visit.page.keyboard.press("ArrowRight")
    visit.wait_for_another(start)
    moved = visit.mixed()
    visit.page.locator("#am-side-1 [data-number='5']").focus()
    visit.page.keyboard.press("Enter")
    visit.wait_for_another(moved)
    assert visit.page.locator("#am-side-1 [data-number='5']").get_attribute("aria-pressed") == "true"
    visit.close(server)


def test_the_server_serves_no_other_files(server: Server, tmp_path: Path) -> None:
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    (tmp_path / "secret.txt").write_text("secret")
    payload = {
        "data": [None, {"path": str(tmp_path / "secret.txt"), "meta": {"_type": "gradio.FileData"}}],
        "fn_index": 0,
        "session_hash": "x",
    }
    asked = [
        Request(f"{server.address}/gradio_api/file={tmp_path / 'secret.txt'}"),
        Request(
            f"{server.address}/gradio_api/queue/join",
            json.dumps(payload).encode(),
            {"content-type": "application/json"},
        ),
        Request(f"{server.address}/", headers={"host": "evil.example"}),
    ]
    for request in asked:
        with pytest.raises(HTTPError) as caught:
            urlopen(request, timeout=10)
        assert caught.value.code in (403, 404)
        caught.value.close()
    assert list(server.folder.rglob("*secret*")) == []


def form(name: str, content: bytes) -> bytes:
    """An upload as a browser sends it."""
    head = f'--x\r\nContent-Disposition: form-data; name="files"; filename="{name}"\r\nContent-Type: image/png\r\n\r\n'
    return head.encode() + content + b"\r\n--x--\r\n"


def test_uploads_stay_in_their_folder_and_below_their_limit(server: Server) -> None:
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    def send(name: str, content: bytes) -> list[str]:
        kind = {"content-type": "multipart/form-data; boundary=x"}
        with urlopen(Request(f"{server.address}/gradio_api/upload", form(name, content), kind), timeout=60) as answer:
            return list(json.load(answer))

    (folder,) = server.folder.glob("automix-explore-*")
    before = set(server.uploads())
    for name in ("../../outside.png", "/tmp/outside.png", "..\\..\\outside.png", "a/../../outside.png"):
        (path,) = send(name, BAD["rubbish.png"])
        assert folder.resolve() in Path(path).resolve().parents
        Path(path).unlink()
    for size in (MAX_UPLOAD + 1, 3 * MAX_UPLOAD):
        with pytest.raises((HTTPError, ConnectionError, URLError)) as caught:  # it may stop listening first
            send("large.png", bytes(size))
        if isinstance(caught.value, HTTPError):
            assert caught.value.code == 413
            caught.value.close()
    assert set(server.uploads()) == before


def test_ctrl_c_stops_the_server(server: Server) -> None:
    server.process.send_signal(signal.SIGINT)
    out, error = server.process.communicate(timeout=20)
    assert server.process.returncode == 130
    assert error == "automix: the page is closed\n"  # and no connection was made
    assert out == ""
    assert server.uploads() == []
    assert list(server.folder.glob("automix-explore-*")) == []
