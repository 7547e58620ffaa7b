"""Networks that people have: torchvision's, those of transformers, compiled ones, and outputs that are no tensors."""

from collections import OrderedDict, namedtuple
from typing import Any

import pytest
import timm
import torch
import torchvision
from conftest import HandWritten, batch
from torch import Tensor, nn

import automix
from automix.networks import find_tap, logits_of, stage_modules

TOKENS = {
    "hidden_size": 24,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "intermediate_size": 32,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 5,
}
STAGES = {"hidden_sizes": [8, 12, 16, 20], "depths": [1, 1, 1, 1], "num_labels": 5}
SWIN = {"image_size": 32, "patch_size": 4, "embed_dim": 12, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}
TRANSFORMERS: dict[
    str, tuple[dict[str, Any], int, tuple[int, ...]]
] = {  # name: options, a layer, and the shape of its map for images of 32 x 32
    "ViT": (TOKENS, 3, (24, 4, 4)),
    "DeiT": (TOKENS, 3, (24, 4, 4)),  # two tokens before the patches
    "Dinov2": (TOKENS, 2, (24, 4, 4)),
    "Swin": ({**SWIN, "num_labels": 5}, 2, (24, 4, 4)),
    "ResNet": ({**STAGES, "embedding_size": 8, "layer_type": "basic"}, 3, (16, 2, 2)),
    "ConvNext": (STAGES, 3, (16, 2, 2)),
}


def of_transformers(name: str) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{name}Config")(**TRANSFORMERS[name][0])
    return getattr(transformers, f"{name}ForImageClassification")(config)


def train_step(task: automix.Task, side: int = 16) -> Tensor:
    out = task(*batch(6, side, side))
    out.loss.backward()
    assert out.logits.shape == (6, 5)
    task.update(0.5)
    return out.loss


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_networks_of_transformers(name: str) -> None:
    """The layers are those that the model itself returns as hidden states."""
    _, layer, shape = TRANSFORMERS[name]
    model = of_transformers(name).eval()
    x = torch.randn(2, 3, 32, 32)
    z = find_tap(model, layer)(model, x)
    assert z.shape == (2, *shape)
    with torch.no_grad():
        output = model(x, output_hidden_states=True)
    module = model.get_submodule(stage_modules(model)[layer - 1])
    expected = output.hidden_states[int(stage_modules(model)[layer - 1].rpartition(".")[2]) + 1]
    assert module is not None
    if expected.ndim == 3:  # the last tokens are the patches, row by row
        expected = expected[:, -z[0, 0].numel() :].transpose(1, 2).reshape(z.shape)
    torch.testing.assert_close(z, expected)
    if name != "ResNet":  # its last map has one pixel, which BatchNorm refuses for a single image alone
        assert find_tap(model, len(stage_modules(model))).channels > 0


@pytest.mark.parametrize("name", ["ViT", "Swin", "ResNet"])
@pytest.mark.parametrize("method", ["automix", "puzzlemix", "manifoldmix"])
def test_methods_on_networks_of_transformers(name: str, method: str) -> None:
    options: dict[str, Any] = {"layer": TRANSFORMERS[name][1]} if method == "automix" else {}
    if (name, method) == ("Swin", "manifoldmix"):
        with pytest.raises(automix.AutomixError, match=r"layer 'swin\.encoder\.layers\.0\S*' must return one tensor"):
            automix.create_task(method, of_transformers(name))
        options = {"layers": (0,)}
    task = automix.create_task(method, of_transformers(name), **options)
    assert train_step(task, 32).isfinite()
    assert task.deploy()(torch.randn(2, 3, 32, 32)).logits.shape == (2, 5)


def test_plain_transformers_are_cut_into_quarters() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(**{**TOKENS, "num_hidden_layers": 12})
    stages = stage_modules(transformers.ViTForImageClassification(config))
    assert [int(name.rpartition(".")[2]) for name in stages] == [2, 5, 8, 11]  # as of timm's


@pytest.mark.parametrize(
    ("name", "layer", "shape"),
    [
        ("resnet18", 3, (256, 4, 4)),
        ("resnext50_32x4d", 2, (512, 8, 8)),
        ("convnext_tiny", "features.5", (384, 4, 4)),
        ("swin_t", "features.5", (384, 4, 4)),  # returns (N, h, w, C)
        ("mobilenet_v3_small", "features.8", (48, 4, 4)),
    ],
)
def test_networks_of_torchvision(name: str, layer: int | str, shape: tuple[int, ...]) -> None:
    model = getattr(torchvision.models, name)(num_classes=5)
    tap = find_tap(model, layer)
    assert tap.channels == shape[0]
    assert tap(model.eval(), torch.randn(2, 3, 64, 64)).shape == (2, *shape)


def test_torchvisions_vision_transformer() -> None:
    model = torchvision.models.VisionTransformer(32, 8, 2, 3, 24, 32, num_classes=5)
    assert train_step(automix.AutoMix(model, layer="encoder.layers.encoder_layer_0"), 32).isfinite()


def test_a_network_without_stages_names_its_maps() -> None:
    with pytest.raises(automix.AutomixError, match=r"Available: 'features\.0', 'features\.1'") as error:
        automix.AutoMix(torchvision.models.convnext_tiny(num_classes=5), layer=3)
    assert "classifier" not in str(error.value)


def test_tokens_of_images_that_are_not_square() -> None:
    class Patches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patch = nn.Conv2d(3, 6, 4, 4)
            self.block = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            patches = self.patch(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([torch.zeros(len(x), 5, 6), patches], dim=1)  # a class token and four registers
            return self.block(tokens)[:, 0]

    model, x = Patches(), torch.randn(2, 3, 24, 40)
    z = find_tap(model, "block", channels=6)(model, x)
    torch.testing.assert_close(z, model.patch(x))


# --- outputs


Named = namedtuple("Named", ["features", "logits"])


class Answers(nn.Module):
    """Returns its logits in a container."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.network, self.kind = HandWritten(), kind

    def forward(self, x: Tensor) -> Any:
        logits = self.network(x)
        kinds: dict[str, Any] = {
            "dict": {"features": x, "logits": logits},
            "ordered": OrderedDict(logits=logits),
            "tuple": (logits, x),
            "list": [logits],
            "named": Named(x, logits),
        }
        return kinds[self.kind]


@pytest.mark.parametrize("kind", ["dict", "ordered", "tuple", "list", "named"])
@pytest.mark.parametrize("method", ["automix", "comixup", "supermix", "manifoldmix", "attentivemix"])
def test_logits_are_found_in_the_output(kind: str, method: str) -> None:
    options: dict[str, Any] = {
        "automix": {"layer": "network.body"},
        "attentivemix": {"layer": "network.body"},
        "manifoldmix": {"layers": ("network.body",)},
        "supermix": {"steps": 2},
    }
    torch.manual_seed(2)
    task = automix.create_task(method, Answers(kind), **options.get(method, {}))
    torch.manual_seed(2)
    plain_options = {
        name: value.removeprefix("network.") if isinstance(value, str) else value
        for name, value in options.get(method, {}).items()
    }
    if method == "manifoldmix":
        plain_options["layers"] = ("body",)
    plain = automix.create_task(method, HandWritten(), **plain_options)
    assert torch.equal(train_step(task), train_step(plain))


@pytest.mark.parametrize("output", [{"features": torch.zeros(1)}, (), None, "logits"])
def test_an_output_without_logits_is_refused(output: Any) -> None:
    with pytest.raises(automix.AutomixError, match="model must return logits"):
        logits_of(output)


def test_auxiliary_heads_of_torchvision() -> None:
    model = torchvision.models.googlenet(num_classes=5, aux_logits=True, init_weights=False)
    assert train_step(automix.create_task("mixup", model), 64).isfinite()


# --- wrappers


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch.compile's own
@pytest.mark.parametrize("layer", [3, "layer3"])
def test_a_compiled_model_trains_and_is_deployed_as_it_was(layer: int | str) -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet10t", num_classes=5)
    task = automix.AutoMix(torch.compile(model, backend="eager"), layer=layer)  # type: ignore[arg-type]
    train_step(task, 32)
    deployed = task.deploy()
    assert type(deployed) is type(model)
    assert list(deployed.state_dict()) == list(model.state_dict())


@pytest.mark.parametrize("in_place", [False, True])
def test_layers_of_a_compiled_model_are_mixed(in_place: bool) -> None:
    """Hooks that come after the compilation are not in compiled code: these methods run the layers without it."""
    losses = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model: Any = HandWritten()
        if compiled and in_place:
            model.compile(backend="eager")
            model(batch()[0])  # compiled by now
        elif compiled:
            model = torch.compile(model, backend="eager")
            model(batch()[0])
        else:
            model(batch()[0])
        losses.append(train_step(automix.create_task("manifoldmix", model, layers=("body",))))
    torch.testing.assert_close(*losses)


def test_a_model_in_data_parallel_is_refused() -> None:
    for make in (lambda model: automix.AutoMix(model, layer=3), lambda model: automix.create_task("mixup", model)):
        with pytest.raises(automix.AutomixError, match=r"wrapped in DataParallel: wrap the task"):
            make(nn.DataParallel(HandWritten()))
