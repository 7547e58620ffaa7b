"""The detectors: losses and boxes, frozen parts of the classifier, and which networks are refused."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torchvision.ops import FrozenBatchNorm2d

import automix
from automix.studies.detection import create_detector, find_detect_recipe
from automix.studies.detection.network import trained_parameters
from automix.studies.detection.recipe import DetectRecipe, recipe_values

SMALL = replace(find_detect_recipe("quick"), short_sides=(48, 64), longest_side=96, proposals=20, regions=8)
TARGETS = [
    {"boxes": torch.tensor([[4.0, 6, 40, 50]]), "labels": torch.tensor([3])},
    {"boxes": torch.tensor([[10.0, 10, 30, 25], [1, 1, 20, 20]]), "labels": torch.tensor([1, 2])},
]
IMAGES = [torch.rand(3, 60, 70), torch.rand(3, 80, 50)]


def resnet(image_size: int = 32, **options: Any) -> Any:
    options = {"layers": (1, 1, 1, 1), "channels": (8, 8, 16, 24), "zero_init_last": False, **options}
    return automix.create_model("resnet18", num_classes=2, image_size=image_size, **options)


@pytest.mark.parametrize(("kind", "image_size"), [("c4", 32), ("c4", 224), ("fpn", 224)])
def test_losses_in_training_and_boxes_in_evaluation(kind: Any, image_size: int) -> None:
    detector = create_detector(resnet(image_size), 3, kind=kind, settings=SMALL)
    losses = detector(IMAGES, TARGETS)
    assert set(losses) == {"loss_classifier", "loss_box_reg", "loss_objectness", "loss_rpn_box_reg"}
    sum(losses.values()).backward()
    assert all(parameter.grad is not None for parameter in trained_parameters(detector))
    # four classes with the background, each equally likely at first
    assert losses["loss_classifier"].item() == pytest.approx(torch.tensor(4.0).log().item(), abs=0.5)
    assert losses["loss_objectness"].item() == pytest.approx(torch.tensor(2.0).log().item(), abs=0.2)
    with torch.no_grad():
        for image, found in zip(IMAGES, detector.eval()(IMAGES), strict=True):
            assert found["boxes"].shape == (len(found["scores"]), 4)
            assert len(found["boxes"]) <= 100
            assert found["boxes"].min() >= 0
            assert (found["boxes"][:, 2:] <= torch.tensor([image.shape[2], image.shape[1]])).all()
            assert set(found["labels"].tolist()) <= {1, 2, 3}


@pytest.mark.parametrize(("image_size", "stride"), [(32, 4), (224, 16)])
def test_c4_proposes_on_stage_3_and_ends_in_stage_4(image_size: int, stride: int) -> None:
    backbone = resnet(image_size)
    detector: Any = create_detector(backbone, 3, kind="c4", settings=SMALL)
    maps = detector.backbone(torch.zeros(1, 3, 64, 96))
    assert {name: tuple(m.shape) for name, m in maps.items()} == {"0": (1, 16, 64 // stride, 96 // stride)}
    assert detector.rpn.anchor_generator.num_anchors_per_location() == [15]
    assert detector.rpn.fg_bg_sampler.batch_size_per_image == 4  # half of the regions, as in Detectron2: 256 of 512
    assert detector.roi_heads.fg_bg_sampler.batch_size_per_image == 8
    assert detector.roi_heads.box_roi_pool.output_size == (14, 14)
    assert detector.roi_heads.box_head.layer4 is backbone.layer4
    assert detector.roi_heads.box_head(torch.zeros(5, 16, 14, 14)).shape == (5, 24, 1, 1)
    assert detector.roi_heads.box_predictor.cls_score.weight.shape == (4, 24)
    assert detector.roi_heads.box_predictor.bbox_pred.weight.shape == (16, 24)


@pytest.mark.parametrize(("image_size", "finest"), [(32, 1), (224, 4)])
def test_fpn_has_five_maps(image_size: int, finest: int) -> None:
    detector: Any = create_detector(resnet(image_size), 3, kind="fpn", settings=SMALL)
    maps = detector.backbone(torch.zeros(1, 3, 128, 64))
    strides = [finest * 2**i for i in range(5)]
    assert [tuple(m.shape) for m in maps.values()] == [(1, 256, 128 // s, 64 // s) for s in strides]
    assert detector.rpn.anchor_generator.num_anchors_per_location() == [3] * 5


def test_the_maps_are_those_of_the_classifier() -> None:
    backbone = resnet().eval()
    x = torch.rand(2, 3, 32, 32)
    expected = backbone.forward_intermediates(x, indices=[3], intermediates_only=True)[0]
    detector: Any = create_detector(backbone, 3, kind="c4", settings=SMALL)
    torch.testing.assert_close(detector.train().backbone(x)["0"], expected)


def test_batch_norms_do_not_change_in_training() -> None:
    backbone = resnet()
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
    detector = create_detector(backbone, 3, settings=SMALL)
    norms = [module for module in detector.modules() if isinstance(module, FrozenBatchNorm2d)]
    assert len(norms) == 1 + 4 * 2 + 3  # the stem's, two in each block, one in each of three shortcuts
    assert not any(isinstance(module, nn.BatchNorm2d) for module in detector.modules())
    before = [{name: t.clone() for name, t in norm.state_dict().items()} for norm in norms]
    optimizer = torch.optim.SGD(trained_parameters(detector), lr=0.1, weight_decay=0.1)
    sum(detector.train()(IMAGES, TARGETS).values()).backward()
    optimizer.step()
    for norm, values in zip(norms, before, strict=True):
        assert all(torch.equal(t, values[name]) for name, t in norm.state_dict().items())


MOCO = replace(SMALL, freeze_at=0, batch_norm="trained", head_norm=True)


def test_mocos_settings_train_everything_and_add_a_norm() -> None:
    backbone = resnet()
    expected = [parameter.shape for name, parameter in backbone.named_parameters() if not name.startswith("fc.")]
    detector: Any = create_detector(backbone, 3, settings=MOCO)
    assert all(parameter.requires_grad for parameter in detector.parameters())
    assert not any(isinstance(module, FrozenBatchNorm2d) for module in detector.modules())
    ours = [p.shape for part in (detector.backbone, detector.roi_heads.box_head.layer4) for p in part.parameters()]
    assert sorted(ours) == sorted(expected)
    assert [name for name, _ in detector.roi_heads.box_head.named_children()] == ["layer4", "norm", "pool"]
    norm = detector.roi_heads.box_head.norm
    assert norm.num_features == 24  # the channels of stage 4
    before = {name: value.clone() for name, value in detector.backbone.state_dict().items() if "running_mean" in name}
    sum(detector.train()(IMAGES, TARGETS).values()).backward()
    after = detector.backbone.state_dict()
    assert all(not torch.equal(after[name], value) for name, value in before.items())
    assert norm.weight.grad.abs().sum() > 0
    assert not torch.equal(norm.running_mean, torch.zeros(24))


def test_trained_batch_norms_of_frozen_stages_are_frozen() -> None:
    detector: Any = create_detector(resnet(), 3, settings=replace(MOCO, freeze_at=2))
    kinds = {name: type(module) for name, module in detector.backbone.named_modules() if name.endswith("bn1")}
    assert kinds["bn1"] is kinds["layer1.0.bn1"] is not kinds["layer2.0.bn1"]
    sum(detector.train()(IMAGES, TARGETS).values()).backward()
    assert all(parameter.grad is None for parameter in detector.backbone.layer1.parameters())


def test_mocos_recipes_differ_in_the_norms_alone() -> None:
    for name in ("voc", "coco"):
        moco, own = (recipe_values(find_detect_recipe(which)) for which in (f"{name}-moco", name))
        differing = {key: moco[key] for key in moco if moco[key] != own[key]}
        assert differing == {"freeze_at": 0, "batch_norm": "trained", "head_norm": True}


def test_fpn_has_no_norm_after_stage_4() -> None:
    with pytest.raises(ValueError, match=r"head_norm.*fpn"):
        create_detector(resnet(224), 3, kind="fpn", settings=MOCO)


@pytest.mark.parametrize(("freeze_at", "frozen"), [(0, ()), (1, ("conv1",)), (2, ("conv1", "layer1"))])
def test_freeze_at_freezes_stem_and_first_stages(freeze_at: int, frozen: tuple[str, ...]) -> None:
    backbone = resnet()
    settings = replace(SMALL, freeze_at=freeze_at)
    create_detector(backbone, 3, settings=settings)
    for name in ("conv1", "layer1", "layer2", "layer3", "layer4"):
        assert {p.requires_grad for p in backbone.get_submodule(name).parameters()} == {name not in frozen}


def test_image_sizes_and_normalization_are_the_recipes_and_the_classifiers() -> None:
    detector: Any = create_detector(resnet(), 3, settings=SMALL, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6)).eval()
    seen, _ = detector.transform([torch.full((3, 30, 40), 0.5)])
    assert seen.image_sizes == [(64, 85)]  # the last short side
    torch.testing.assert_close(seen.tensors[0, :, 0, 0], torch.tensor([1.0, 0.6, 1 / 3]))
    detector.train()
    heights = {detector.transform([torch.zeros(3, 30, 40)])[0].image_sizes[0][0] for _ in range(20)}
    assert heights == {48, 64}


def test_fpn_on_another_family_with_four_stages() -> None:
    backbone = automix.create_model("convnext_atto", num_classes=2, depths=(1, 1, 1, 1), dims=(8, 8, 16, 16))
    settings = replace(SMALL, freeze_at=0)
    detector: Any = create_detector(backbone, 3, kind="fpn", settings=settings)
    assert [m.shape[-1] for m in detector.backbone(torch.zeros(1, 3, 64, 64)).values()] == [16, 8, 4, 2, 1]
    sum(detector(IMAGES, TARGETS).values()).backward()


@pytest.mark.parametrize(
    ("name", "kind", "changed", "message"),
    [
        ("convnext_atto", "c4", {"freeze_at": 0}, "kind 'c4'.*ResNet, got ConvNeXt"),
        ("convnext_atto", "fpn", {"freeze_at": 2}, "freeze_at must be 0 for ConvNeXt"),
        ("deit_tiny_patch16_224", "fpn", {"freeze_at": 0}, "kind 'fpn'.*four stages.*VisionTransformer"),
        ("wrn_10_1", "fpn", {"freeze_at": 0}, "kind 'fpn'.*four stages.*WideResNet"),
        ("resnet18", "c5", {}, "kind.*c4, fpn"),
        ("resnet18", "fpn", {"anchor_sizes": (8, 16)}, "anchor_sizes.*five"),
    ],
)
def test_networks_that_do_not_fit_are_refused(name: str, kind: Any, changed: dict[str, Any], message: str) -> None:
    backbone = automix.create_model(name, num_classes=2)
    with pytest.raises(ValueError, match=message) as error:
        create_detector(backbone, 3, kind=kind, settings=replace(SMALL, **changed))
    assert "\n" not in str(error.value)


def test_recipes_equal_detectron2s() -> None:
    voc, coco = find_detect_recipe("voc"), find_detect_recipe("coco")
    assert (voc.steps, voc.batch_size, voc.lr, voc.warmup_steps) == (24_000, 16, 0.02, 100)
    assert (coco.steps, coco.batch_size, coco.lr, coco.warmup_steps) == (180_000, 16, 0.02, 1000)
    rates = {0: 0.02 / 1000, 50: 0.02 * (0.001 + 0.999 / 2), 100: 0.02, 17_999: 0.02, 18_000: 0.002, 22_000: 0.0002}
    assert {step: voc.lr_at(step) for step in rates} == pytest.approx(rates)
    rates = {119_999: 0.02, 120_000: 0.002, 159_999: 0.002, 160_000: 0.0002}
    assert {step: coco.lr_at(step) for step in rates} == pytest.approx(rates)
    assert voc.short_sides == tuple(range(480, 801, 32))
    assert coco.short_sides == tuple(range(640, 801, 32))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"steps": 0}, "steps.*1"),
        ({"lr": float("nan")}, "lr.*0"),
        ({"drops": (18_000.0,)}, r"drops.*\(0, 1\)"),
        ({"short_sides": ()}, "short_sides.*1"),
        ({"freeze_at": 6}, "freeze_at.*5"),
        ({"batch_norm": "sync"}, "batch_norm.*frozen.*trained"),
        ({"batch_size": "4"}, "batch_size.*integer"),
        ({"anchor_sizes": (8, 16.5)}, "anchor_sizes"),
    ],
)
def test_wrong_settings_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DetectRecipe(**changed)
