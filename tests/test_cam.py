"""Class activation maps: exact for networks of pooling and linear layer, refused in one line elsewhere; Grad-CAM."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import HandWritten
from evaluation_data import ByColor, squares, unchanged
from PIL import Image
from torch import Tensor, nn

import automix
from automix.core.errors import AutomixError
from automix.evaluation import cam_panels as panels
from automix.evaluation.cam import NoCamError, cam, cam_and_logits
from automix.evaluation.cam_panels import cam_panels
from automix.evaluation.grad_cam import _as_map, grad_cam, grad_cam_and_logits
from automix.evaluation.heatmaps import METHODS, class_maps, overlay, resize_maps
from automix.networks.feature_tap import find_tap
from automix.pictures.grid import Tile, tile_grid
from automix.runs.classifier import Card, WithNormalization


class Sequence(nn.Sequential):
    """A sequence whose last map is the output of `layer4`, as torchvision's networks name it."""

    def __init__(self, *end: nn.Module) -> None:
        super().__init__()
        self.layer4 = nn.Sequential(nn.Conv2d(3, 6, 3, stride=2, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        for number, module in enumerate(end):
            self.add_module(f"end{number}", module)


def plain() -> nn.Module:
    return Sequence(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5))


def timm_model(name: str, **options: Any) -> Callable[[], nn.Module]:
    return lambda: automix.create_model(name, num_classes=5, image_size=32, **options)


DEIT = {"embed_dim": 12, "depth": 4, "num_heads": 2}
SWIN = {"embed_dim": 12, "depths": (1, 1, 1, 1), "num_heads": (1, 1, 2, 2)}
WITH_CAM = {
    "resnet": timm_model("resnet18", layers=(1, 1, 1, 1), channels=(8, 8, 12, 16)),
    "resnet_v2": timm_model("resnetv2_18", channels=(8, 8, 16, 16)),  # a 1x1 convolution for a linear layer
    "wide_resnet": timm_model("wrn_10_1"),  # ReLU is no module
    "efficientnet": timm_model("mobilenetv2_050"),
    "swin": timm_model("swin_tiny_patch4_window7_224", **SWIN),  # channels last
    "convnext": timm_model("convnext_atto", dims=(8, 8, 12, 16), depths=(1, 1, 1, 1)),  # a norm behind the pooling
    "sequence": plain,
    "hand-written": HandWritten,
}


def trained_a_little(model: nn.Module) -> Any:
    """Weights, biases and statistics that are not those of the beginning: nothing is 0 or 1."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for tensor in (*model.parameters(), *(b for b in model.buffers() if b.is_floating_point())):
            if tensor.ndim <= 1:
                tensor.add_(0.3 * torch.rand(tensor.shape, generator=generator))
    return model.eval()


def images(count: int = 3, size: int = 32) -> Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(2))


CLASSES = torch.tensor([[0, 4], [2, 1], [3, 3]])


def last_bias(model: nn.Module) -> Tensor:
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    bias = layers[-1].bias
    assert bias is not None
    return bias.detach()


# --- CAM


@pytest.mark.parametrize("family", WITH_CAM)
def test_the_mean_of_the_map_and_the_bias_are_the_logit(family: str) -> None:
    x = images(size=64 if family == "resnet_v2" else 32)  # which reduces 32 times
    model = trained_a_little(WITH_CAM[family]())
    maps, logits = cam_and_logits(model, x, CLASSES)
    with torch.no_grad():
        expected = model(x)
    assert torch.equal(logits, expected)
    assert maps.shape[:2] == (3, 2)
    assert min(maps.shape[2:]) > 1
    assert maps.std(dim=(2, 3)).min() > 0
    torch.testing.assert_close(
        maps.mean(dim=(2, 3)) + last_bias(model)[CLASSES], logits.gather(1, CLASSES), rtol=1e-4, atol=1e-5
    )


def test_a_map_worked_out_by_hand() -> None:
    head = nn.Linear(3, 2)
    model = nn.Sequential(nn.Identity(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)
    with torch.no_grad():
        head.weight.copy_(torch.tensor([[1.0, 2.0, 0.0], [0.0, -1.0, 3.0]]))
    x = torch.tensor([[[[1.0, 0.0], [2.0, 4.0]], [[0.0, 1.0], [5.0, 0.0]], [[1.0, 1.0], [0.0, 2.0]]]])
    expected = torch.tensor([[[[3.0, 2.0], [-5.0, 6.0]], [[1.0, 2.0], [12.0, 4.0]]]])
    torch.testing.assert_close(cam(model, x, torch.tensor([[1, 0]])), expected)
    weights = expected.relu() / 4  # the gradient of a mean over 4 positions
    torch.testing.assert_close(grad_cam(model, x, torch.tensor([[1, 0]]), "0"), weights)


def test_as_many_channels_as_pixels_do_not_confuse_it() -> None:
    """(N, 6, 6, 6): channels first or last must be found by value."""
    first = trained_a_little(plain())
    maps, logits = cam_and_logits(first, images(size=12), CLASSES)
    torch.testing.assert_close(maps.mean(dim=(2, 3)) + last_bias(first)[CLASSES], logits.gather(1, CLASSES))
    with torch.no_grad():
        z = first.get_submodule("layer4")(images(size=12))
    expected = (first.get_submodule("end2").weight.detach()[CLASSES[0, 0]].view(6, 1, 1) * z[0]).sum(dim=0)
    torch.testing.assert_close(maps[0, 0], expected)


class Max(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.amax(dim=(2, 3))


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


NO_CAM = {
    "class token": timm_model("deit_tiny_patch16_224", **DEIT),
    "two heads": timm_model("deit_tiny_distilled_patch16_224", **DEIT),
    "hidden layer": lambda: Sequence(
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 5)
    ),
    "max pooling": lambda: Sequence(Max(), nn.Linear(6, 5)),
    "no pooling": lambda: Sequence(nn.Flatten(), nn.Linear(6 * 16 * 16, 5)),
    "one position": lambda: nn.Sequential(nn.Conv2d(3, 6, 32), nn.Flatten(), nn.Linear(6, 5)),
    "no linear layer": lambda: nn.Sequential(nn.Conv2d(3, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()),
    "more after it": lambda: Sequence(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 5), Doubled()),
}


@pytest.mark.parametrize("kind", NO_CAM)
def test_networks_without_pooling_and_linear_layer_are_refused_in_one_line(kind: str) -> None:
    with pytest.raises(NoCamError, match=r"global average pooling and one linear layer.*grad_cam"):
        cam(trained_a_little(NO_CAM[kind]()), images(), CLASSES)


# --- Grad-CAM


@pytest.mark.parametrize("family", ["resnet", "sequence", "hand-written"])
def test_at_the_last_map_grad_cam_is_cam_up_to_the_number_of_positions(family: str) -> None:
    model = trained_a_little(WITH_CAM[family]())
    layer: int | str = {"sequence": "layer4", "hand-written": "body"}.get(family, 4)
    maps, logits = cam_and_logits(model, images(), CLASSES)
    torch.testing.assert_close(
        grad_cam(model, images(), CLASSES, layer), maps.relu() / maps[0, 0].numel(), rtol=1e-4, atol=1e-7
    )
    torch.testing.assert_close(grad_cam_and_logits(model, images(), CLASSES, layer)[1], logits)


def test_grad_cam_inside_a_network_against_a_graph_built_by_hand() -> None:
    model = trained_a_little(HandWritten())
    z = model.stem(images()).detach().requires_grad_()
    scores = model.head(model.body(z).mean(dim=(2, 3))).gather(1, CLASSES)
    expected = []
    for rank in range(2):
        (gradient,) = torch.autograd.grad(scores[:, rank].sum(), z, retain_graph=True)
        expected.append(F.relu(torch.einsum("nc,nchw->nhw", gradient.mean(dim=(2, 3)), z.detach())))
    torch.testing.assert_close(grad_cam(model, images(), CLASSES, "stem"), torch.stack(expected, dim=1))
    assert torch.stack(expected).max() > 0


@pytest.mark.parametrize("family", ["resnet", "wide_resnet", "efficientnet", "swin", "convnext", "deit"])
def test_every_stage_gives_maps_in_timms_order(family: str) -> None:
    """timm's own forward_intermediates is the oracle for where a token or a channels-last position lies."""
    model = trained_a_little(timm_model("deit_tiny_patch16_224", **DEIT)() if family == "deit" else WITH_CAM[family]())
    for layer in (1, 2, 3):
        with torch.no_grad():
            oracle = find_tap(model, layer)(model, images())
        assert grad_cam(model, images(), CLASSES, layer).shape == (3, 2, *oracle.shape[2:])
    outputs: list[Tensor] = []
    name = {"deit": "blocks.1", "swin": "layers.1"}.get(family)
    if name is not None:
        model.get_submodule(name).register_forward_hook(lambda module, inputs, output: outputs.append(output))
        with torch.no_grad():
            model(images())
            oracle = find_tap(model, 2)(model, images())
        assert torch.equal(_as_map(outputs[0], model, name, None), oracle)


@pytest.mark.parametrize(
    ("make", "layer", "message"),
    [
        (NO_CAM["class token"], 4, "layer.*4.*earlier"),
        (HandWritten, "unused", "layer.*once.*'unused'.*0 times"),
        (HandWritten, "head", r"layer.*\(N, C, h, w\).*'head'.*\(3, 5\)"),
        (HandWritten, "tail", "layer.*'?tail'?"),
        (HandWritten, 4, "layer.*4"),
        (WITH_CAM["wide_resnet"], 4, "layer.*4"),
        (WITH_CAM["resnet"], 0, "layer.*0"),
    ],
)
def test_layers_without_a_map_are_refused(make: Callable[[], nn.Module], layer: int | str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        grad_cam(make().eval(), images(), CLASSES, layer)


# --- both


def by_method(method: str, model: nn.Module, x: Tensor) -> Tensor:
    return class_maps(model, x, CLASSES, method, "body")[0]


@pytest.mark.parametrize("method", METHODS)
def test_gradients_may_be_off_and_the_model_stays_as_it_is(method: str) -> None:
    model = trained_a_little(HandWritten()).train()
    model.stem.eval()
    with unchanged(model):
        expected = by_method(method, model, images())
    model.requires_grad_(False)
    with torch.no_grad():
        torch.testing.assert_close(by_method(method, model, images()), expected)
    with torch.inference_mode():
        torch.testing.assert_close(by_method(method, model, images()), expected)
    model.requires_grad_(True)
    assert not by_method(method, model, images().requires_grad_()).requires_grad


def card() -> Card:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    names = tuple("abcde")
    return Card(model="resnet18", model_options={}, classes=names, image_size=32, train_size=32, mean=mean, std=std)


@pytest.mark.parametrize("family", ["resnet", "wide_resnet"])
@pytest.mark.parametrize("method", METHODS)
def test_the_normalization_may_be_inside(method: str, family: str) -> None:
    model = trained_a_little(WITH_CAM[family]())
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in (card().mean, card().std))
    expected = class_maps(model, (images() - mean) / std, CLASSES, method, 3)
    wrapped = class_maps(WithNormalization(model, card()), images(), CLASSES, method, 3)
    torch.testing.assert_close(wrapped, expected)


@pytest.mark.parametrize("method", METHODS)
def test_half_precision(method: str) -> None:
    model = trained_a_little(HandWritten())
    exact = by_method(method, model, images())
    half = by_method(method, model.bfloat16(), images().bfloat16())
    assert half.dtype == torch.float32
    assert (half - exact).abs().max() < 0.05 * exact.abs().max()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (torch.tensor([0, 1, 2]), r"classes.*\(3, K\)"),
        (torch.zeros(2, 1).long(), r"classes.*\(3, K\)"),
        (torch.zeros(3, 1), "classes.*int64.*float32"),
        (torch.tensor([[0], [5], [1]]), r"classes.*\[0, 4\].*5"),
        (torch.tensor([[0], [-1], [1]]), r"classes.*\[0, 4\].*-1"),
    ],
)
def test_wrong_classes_are_refused(method: str, classes: Tensor, message: str) -> None:
    with pytest.raises(AutomixError, match=message):
        class_maps(HandWritten().eval(), images(), classes, method, "body")


# --- maps to look at


def test_maps_span_zero_to_one_and_constants_are_zero() -> None:
    maps = torch.tensor([[[1.0, 2.0], [2.0, 5.0]], [[0.1, 0.1], [0.1, 0.1]], [[-3.0, -4.0], [-3.0, -3.0]]])
    large = resize_maps(maps, (9, 7))
    assert large.shape == (3, 9, 7)
    for number in (0, 2):
        assert (float(large[number].min()), float(large[number].max())) == (0, 1)
    assert large[0, -1, -1] == 1
    assert large[2, 0, -1] == 0
    assert torch.equal(large[1], torch.zeros(9, 7))


def test_maps_of_the_right_size_keep_their_order() -> None:
    maps = torch.rand(2, 8, 8, generator=torch.Generator().manual_seed(0))
    low, high = maps.amin(dim=(1, 2), keepdim=True), maps.amax(dim=(1, 2), keepdim=True)
    torch.testing.assert_close(resize_maps(maps, (8, 8)), (maps - low) / (high - low))


def test_maps_that_are_not_finite_are_refused() -> None:
    with pytest.raises(AutomixError, match="finite"):
        resize_maps(torch.tensor([[[0.0, float("nan")]]]), (4, 4))


def test_low_is_blue_and_high_is_red() -> None:
    shown = overlay(torch.full((1, 3, 1, 2), 0.5), torch.tensor([[[0.1, 0.85]]]))[0, :, 0]
    assert shown[2, 0] > shown[0, 0]
    assert shown[0, 1] > shown[2, 1]


# --- the panel of mixed samples


def halves(x: Tensor, y: Tensor, lam: float, index: Tensor) -> Tensor:
    return lam * x + (1 - lam) * x[index]


def test_the_panel_shows_pairs_and_names_the_top_2(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[list[Tile]] = []
    calls: list[tuple[Tensor, Tensor, float, Tensor]] = []

    def spied_grid(given: list[list[Tile]], *names: Any, **options: Any) -> Image.Image:
        rows.extend(given)
        return tile_grid(given, *names, **options)

    monkeypatch.setattr(panels, "tile_grid", spied_grid)

    def spying(x: Tensor, y: Tensor, lam: float, index: Tensor) -> Tensor:
        calls.append((x, y, lam, index))
        return halves(x, y, lam, index)

    picture = cam_panels(ByColor(), squares(4), {"halves": spying}, lam=0.75, count=2)
    ((x, y, lam, index),) = calls
    assert (float(x.min()), float(x.max()), lam) == (0, 1, 0.75)
    assert index.tolist() == [2, 3, 0, 1]
    assert y.tolist() == [0, 1, 2, 0]
    assert [[tile.caption for tile in row] for row in rows[0::3]] == [
        ["image: red", "partner: blue", "halves"],
        ["image: green", "partner: red", "halves"],
    ]
    top = [[tile.caption.split(" % ")[1] for tile in row] for row in rows[1::3]]
    assert top == [["red", "blue", "red"], ["green", "red", "green"]]
    assert [row[2].caption.split(" % ")[1] for row in rows[2::3]] == ["blue", "red"]
    assert [row[2].color for row in rows[2::3]] == [panels.CORRECT] * 2  # in the mixed sample, not in the image alone
    assert [row[0].color for row in rows[2::3]] == [panels.WRONG] * 2
    assert picture.width > 3 * 144
    assert picture.height > 6 * 144


def test_wrong_panels_are_refused() -> None:
    with pytest.raises(AutomixError, match=r"mixer 'odd'.*\(6, 3, 16, 16\).*\(1, 3, 16, 16\)"):
        cam_panels(ByColor(), squares(), {"odd": lambda x, y, lam, index: x[:1]})
    with pytest.raises(AutomixError, match=r"samples.*at least 2 images and 2 classes.*1"):
        cam_panels(ByColor(), squares(1), {})
    with pytest.raises(ValueError, match=r"^lam.*0.*1"):
        cam_panels(ByColor(), squares(), {}, lam=1.5)
