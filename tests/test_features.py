"""The feature tap."""

from typing import Any

import pytest
import timm
import torch
from conftest import HandWritten
from torch import Tensor, nn

from automix.networks.feature_tap import count_classes, find_tap

FAMILIES = {  # name: options, and (channels, side) of layers 1..4 as read off the families' papers
    "resnet18": ({}, [(64, 16), (128, 8), (256, 4), (512, 2)]),
    "convnext_atto": ({}, [(40, 16), (80, 8), (160, 4), (320, 2)]),
    "mobilenetv2_100": ({}, [(24, 16), (32, 8), (96, 4), (320, 2)]),
    "swin_tiny_patch4_window7_224": ({"img_size": 64}, [(96, 16), (192, 8), (384, 4), (768, 2)]),
    "vit_tiny_patch16_224": ({"img_size": 64}, [(192, 4)] * 4),
    "densenet121": ({}, [(256, 16), (512, 8), (1024, 4), (1024, 2)]),  # no forward_intermediates: by the hook
}


@pytest.mark.parametrize("name", FAMILIES)
def test_layers_of_timm_families(name: str) -> None:
    options, expected = FAMILIES[name]
    model = timm.create_model(name, num_classes=3, **options).eval()
    x = torch.randn(2, 3, 64, 64)
    for layer, (channels, side) in enumerate(expected, start=1):
        tap = find_tap(model, layer)
        assert tap.channels == channels
        assert tap(model, x).shape == (2, channels, side, side)


def test_the_last_layer_is_what_the_head_sees() -> None:
    model = timm.create_model("resnet18", num_classes=3).eval()
    x = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(find_tap(model, 4)(model, x), model.forward_features(x))


def test_plain_transformers_are_cut_into_quarters() -> None:
    model = timm.create_model("deit_small_patch16_224", img_size=32)
    assert [find_tap(model, layer).index for layer in (1, 2, 3, 4)] == [2, 5, 8, 11]


def test_a_named_submodule_stops_the_pass_there() -> None:
    model = HandWritten().eval()
    ran: list[str] = []
    model.head.register_forward_hook(lambda *_: ran.append("head"))
    x = torch.randn(2, 3, 16, 16)
    tap = find_tap(model, "body.1")
    assert tap.channels == 12
    torch.testing.assert_close(tap(model, x), model.body[:2](model.stem(x)))
    assert not ran
    model(x)
    assert ran == ["head"]  # no hook of ours stays behind


def test_finding_channels_leaves_the_model_alone() -> None:
    model = HandWritten()
    model.stem.eval()  # frozen by its owner
    before = {name: value.clone() for name, value in model.state_dict().items()}
    find_tap(model, "body")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [model.training, model.stem.training, model.body.training] == [True, False, True]


class FixedSize(nn.Module):
    """Accepts 16 x 16 only: a trial run at 64 x 64 fails."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 7, 4, stride=4)
        self.place = nn.Parameter(torch.zeros(7, 4, 4))
        self.sum = nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.sum(self.body(x) + self.place).mean(dim=(2, 3))


def test_channels_can_be_named_where_they_cannot_be_found() -> None:
    model = FixedSize()
    with pytest.raises(ValueError, match=r"layer 'sum': cannot count its channels by a trial run .*; pass channels="):
        find_tap(model, "sum")
    assert find_tap(model, "sum", channels=7)(model, torch.zeros(1, 3, 16, 16)).shape == (1, 7, 4, 4)


@pytest.mark.parametrize(
    ("name", "layer", "message"),
    [
        ("resnet18", 0, r"layer .*\[1, 4\] for ResNet.*got 0"),
        ("resnet18", 5, r"layer .*\[1, 4\].*got 5"),
        ("resnet18", True, r"layer .*\[1, 4\].*got True"),
        ("resnet18", "layer9", "layer .*got 'layer9'. Available: 'conv1', "),
        ("resnet18", "", "layer .*submodule, got ''"),
        ("levit_128", 4, r"layer .*\[1, 3\].*got 4"),
    ],
)
def test_wrong_layers_are_refused(name: str, layer: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        find_tap(timm.create_model(name), layer)
    assert "\n" not in str(error.value)


def test_maps_with_channels_last_are_turned() -> None:
    """Those of Sequencer, whose layers are read by a hook."""
    model = timm.create_model("sequencer2d_s", img_size=64).eval()
    x = torch.randn(2, 3, 64, 64)
    caught: list[Tensor] = []
    model.stages[0].register_forward_hook(lambda module, inputs, output: caught.append(output))
    z = find_tap(model, 1)(model, x)
    assert z.shape == (2, 192, 9, 9)
    assert torch.equal(z, caught[0].permute(0, 3, 1, 2))


def test_a_map_with_other_channels_than_promised() -> None:
    model = HandWritten().eval()
    with pytest.raises(ValueError, match=r"\(N, 9, h, w\), got \(2, 12, 4, 4\)"):
        find_tap(model, "body", channels=9)(model, torch.randn(2, 3, 16, 16))


def test_a_layer_that_is_no_map_or_never_runs() -> None:
    model = HandWritten()
    with pytest.raises(ValueError, match=r"layer 'head' must return maps .*\(2, 5\)"):
        find_tap(model, "head", channels=5)(model, torch.zeros(2, 3, 8, 8))
    with pytest.raises(ValueError, match=r"layer .*'unused'"):
        find_tap(model, "unused", channels=5)(model, torch.zeros(2, 3, 8, 8))


@pytest.mark.parametrize(
    ("name", "head"), [("resnet18", "fc"), ("convnext_atto", "head.fc"), ("vit_tiny_patch16_224", "head")]
)
def test_classes_are_those_of_a_replaced_head(name: str, head: str) -> None:
    model = timm.create_model(name, num_classes=1000)
    assert count_classes(model) == 1000
    parent, _, child = head.rpartition(".")
    linear = model.get_submodule(head)
    assert isinstance(linear, nn.Linear)
    setattr(model.get_submodule(parent), child, nn.Linear(linear.in_features, 7))
    assert model.num_classes == 1000  # what timm remembers
    assert count_classes(model) == 7


def test_classes_of_a_head_that_is_not_the_last_linear_layer() -> None:
    class Gated(HandWritten):
        """A layer that is defined after the head."""

        num_classes = 5

        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(12, 12)

        def forward(self, x: Tensor) -> Tensor:
            z = self.body(self.stem(x)).mean(dim=(2, 3))
            return self.head(z * self.gate(z))

    assert count_classes(Gated()) == 5
