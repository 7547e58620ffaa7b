"""Backbones by name: the forms for small images, and one AutoMix step through each of the paper's."""

from typing import Any

import pytest
import timm
import torch

import automix
from automix.networks.wide_resnet import WideResNet

PAPER = {  # side of the map at layer 3 for images of 32 px
    "resnet18": 8,
    "resnet34": 8,
    "resnet50": 8,
    "resnet101": 8,
    "resnext50_32x4d": 8,
    "resnext101_32x4d": 8,
    "wrn_28_8": 8,
    "mobilenetv2_100": 8,
    "efficientnet_b0": 8,
    "convnext_tiny": 8,
    "deit_small_patch16_224": 8,
    "swin_tiny_patch4_window7_224": 8,
}


@pytest.mark.parametrize("name", PAPER)
def test_every_backbone_of_the_paper_trains_a_step_and_deploys(name: str) -> None:
    model = automix.create_model(name, num_classes=4, image_size=32)
    task = automix.AutoMix(model)
    x, y = torch.randn(2, 3, 32, 32), torch.tensor([1, 3])
    assert task.tap(task.classifier, x).shape[-2:] == (PAPER[name], PAPER[name])
    optimizer = torch.optim.SGD(task.param_groups(lr=0.01))
    out = task(x, y)
    out.loss.backward()
    missing = [n for n, p in task.named_parameters() if p.requires_grad and p.grad is None]
    assert not missing
    optimizer.step()
    task.update(0.5)
    assert out.loss.isfinite()
    classifier = task.deploy()
    plain = automix.create_model(name, num_classes=4, image_size=32)
    plain.load_state_dict(classifier.state_dict())
    with torch.no_grad():
        assert torch.equal(plain.eval()(x), classifier(x))
    assert classifier(x).shape == (2, 4)


@pytest.mark.parametrize("name", ["mobilenetv2_100", "convnext_tiny", "swin_tiny_patch4_window7_224", "resnet18"])
@pytest.mark.parametrize("size", [64, (32, 48)], ids=str)
def test_other_small_sizes(name: str, size: Any) -> None:
    model = automix.create_model(name, num_classes=4, image_size=size).eval()
    height, width = (size, size) if isinstance(size, int) else size
    x = torch.randn(1, 3, height, width)
    tap = automix.AutoMix(model).tap
    with torch.no_grad():
        assert tap(model, x).shape[-2:] == (height // 4, width // 4)
        assert model(x).shape == (1, 4)


@pytest.mark.parametrize("name", ["resnet18", "deit_small_patch16_224"])
def test_at_full_size_a_deployed_teacher_loads_into_a_plain_timm_model(name: str) -> None:
    classifier = automix.AutoMix(automix.create_model(name, num_classes=4)).deploy()
    timm.create_model(name, num_classes=4).load_state_dict(classifier.state_dict())


def test_the_reductions_that_feature_info_tells_are_true() -> None:
    for name in ("resnet50", "efficientnet_b0", "convnext_atto", "vit_tiny_patch16_224"):
        model: Any = automix.create_model(name, num_classes=2, image_size=32)
        maps = model.forward_intermediates(torch.zeros(1, 3, 32, 32), intermediates_only=True)
        assert [32 // z.shape[-1] for z in maps] == [info["reduction"] for info in model.feature_info]


def test_any_timm_name_and_its_options() -> None:
    model: Any = automix.create_model("regnetx_002", num_classes=2, image_size=64)
    assert model(torch.zeros(1, 3, 64, 64)).shape == (1, 2)
    narrow: Any = automix.create_model("resnet18", num_classes=2, image_size=32, channels=(16, 32, 64, 128), in_chans=1)
    assert (narrow.conv1.in_channels, narrow.conv1.out_channels, narrow.fc.in_features) == (1, 16, 128)
    deep: Any = automix.create_model("resnet18d", num_classes=2, image_size=32)
    assert deep(torch.zeros(1, 3, 32, 32)).shape == (1, 2)


@pytest.mark.parametrize(("depth", "width", "millions"), [(28, 10, 36.5), (16, 8, 11.0), (40, 4, 8.9)])
def test_wide_resnets_have_the_published_sizes(depth: int, width: int, millions: float) -> None:
    """Zagoruyko and Komodakis, Tables 4 and 5 (CIFAR-10)."""
    parameters = sum(parameter.numel() for parameter in WideResNet(depth, width, num_classes=10).parameters())
    assert round(parameters / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "resnet81"},
            "model 'resnet81'; close names: resnet.*timm's",
        ),
        ({"name": "wrn_27_8"}, r"depth must be 6n \+ 4.*27"),
        ({"num_classes": 0}, "num_classes.*>= 1"),
        ({"image_size": 0}, "image_size.*>= 1.*0"),
        ({"image_size": (32, 32, 3)}, "image_size.*>= 1"),
    ],
)
def test_wrong_input_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        automix.create_model(**{"name": "resnet18", "num_classes": 2, **arguments})
    assert "\n" not in str(error.value)
