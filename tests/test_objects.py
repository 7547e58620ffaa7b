"""Labels by visible object: areas worked out by hand, objects that move with their pixels, masks from the teacher."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import torchvision.transforms.v2.functional as tv
from conftest import HandWritten, batch
from method_data import small_vit, traits
from test_cam import WITH_CAM, card, images, trained_a_little
from test_methods import TAKING_OBJECTS
from torch import Tensor, nn

import automix
from automix import Mixed, MixedTarget
from automix.core.draws import step_generator
from automix.core.objects import boxes_to_masks, label_by_objects, object_masks, visible_lam
from automix.evaluation.cam import cam
from automix.networks.cam import NoCamError
from automix.runs.classifier import WithNormalization
from automix.tasks.teacher_objects import TeacherObjects

# A box of the partner covers the lower right 2 x 3 pixels: the first image keeps 10 of 16.
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0], [1, 0, 0, 0]]).view(1, 1, 4, 4).float()
LAM = torch.tensor(10 / 16)
# 6 pixels, of which 4 stay; 9 pixels, of which 6 are pasted.
FIRST = torch.tensor([[0, 0, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0], [0, 0, 0, 0]]).view(1, 1, 4, 4)
SECOND = torch.tensor([[0, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 1], [0, 1, 1, 1]]).view(1, 1, 4, 4)
EMPTY = torch.zeros(1, 1, 4, 4)
COVERED = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]).view(1, 1, 4, 4)  # by the box
OUTSIDE = torch.tensor([[1, 1, 1, 1], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0]]).view(1, 1, 4, 4)  # of the box


# --- the rules -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "second", "rule", "expected"),
    [
        (FIRST, SECOND, "absolute", 4 / (4 + 6)),
        (FIRST, SECOND, "relative", (4 / 6) / (4 / 6 + 6 / 9)),
        (SECOND, FIRST, "absolute", 3 / (3 + 2)),
        (SECOND, FIRST, "relative", (3 / 9) / (3 / 9 + 2 / 6)),
        (FIRST, OUTSIDE, "absolute", 1.0),
        (FIRST, OUTSIDE, "relative", 1.0),
        (COVERED, SECOND, "absolute", 0.0),
        (COVERED, OUTSIDE, "absolute", 0.5),
        (COVERED, OUTSIDE, "relative", 0.5),
        (EMPTY, EMPTY, "absolute", 0.5),
        (EMPTY, SECOND, "absolute", 0.0),
        (EMPTY, EMPTY, "relative", 10 / 16),  # the plain area
        (EMPTY, SECOND, "relative", (10 / 16) / (10 / 16 + 6 / 9)),  # as if it filled its image
        (FIRST, EMPTY, "relative", (4 / 6) / (4 / 6 + 6 / 16)),
    ],
)
def test_visible_areas_by_hand(first: Tensor, second: Tensor, rule: Any, expected: float) -> None:
    lam = visible_lam(MASK, first, second, LAM, rule)
    torch.testing.assert_close(lam, torch.tensor([expected]))
    mixed = visible_lam(MASK, first, second, LAM, rule, weight=0.25)
    torch.testing.assert_close(mixed, torch.tensor([0.25 * expected + 0.75 * 10 / 16]))
    assert torch.equal(visible_lam(MASK, first, second, LAM, rule, weight=0.0), LAM.reshape(1))


def test_soft_masks_of_the_mixture_and_of_the_objects() -> None:
    soft = torch.full((1, 1, 2, 2), 0.25)
    first, second = torch.tensor([[1.0, 0.5], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.5, 0.5]])
    first, second = first.view(1, 1, 2, 2), second.view(1, 1, 2, 2)
    absolute = (0.25 * 1.5) / (0.25 * 1.5 + 0.75 * 1.0)
    torch.testing.assert_close(visible_lam(soft, first, second, torch.tensor(0.25)), torch.tensor([absolute]))
    # All of both objects can be seen through: by their shares the label is Mixup's.
    torch.testing.assert_close(visible_lam(soft, first, second, torch.tensor(0.25), "relative"), torch.tensor([0.25]))


def test_each_sample_has_its_own_label() -> None:
    objects = torch.cat([FIRST, SECOND])
    x, y = torch.zeros(2, 3, 4, 4), torch.tensor([0, 1])
    center = torch.tensor([3, 3])
    options: dict[str, Any] = {"lam": 1 - 9 / 16, "index": torch.tensor([1, 0]), "center": center}
    mixed = automix.cutmix(x, y, **options, objects=objects)
    pasted = torch.tensor([[0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]).view(1, 1, 4, 4)  # 3 x 3, clipped
    assert torch.equal(mixed.mask, (1 - pasted).float().expand(2, 1, 4, 4))
    assert mixed.index is not None
    assert mixed.index.tolist() == [1, 0]
    torch.testing.assert_close(mixed.target.lam, torch.tensor([5 / (5 + 4), 5 / (5 + 1)]))
    relative = automix.cutmix(x, y, **options, objects=objects, objects_rule="relative").target.lam
    torch.testing.assert_close(relative, torch.tensor([(5 / 6) / (5 / 6 + 4 / 9), (5 / 9) / (5 / 9 + 1 / 6)]))


def test_masks_of_any_type_and_shape_and_boxes_are_alike() -> None:
    x, y = batch(3, 4, 4)
    boxes = torch.tensor([[0, 1, 3, 3], [1, 1, 4, 4], [0, 0, 4, 1]])
    masks = torch.cat([FIRST, SECOND, OUTSIDE])

    def lam(objects: Tensor) -> Tensor:
        return automix.cutmix(x, y, lam=0.6, objects=objects, generator=step_generator(0, 0)).target.lam

    expected = lam(masks.float())
    alike = (masks.bool(), masks.byte(), masks.squeeze(1), masks.squeeze(1).bool(), masks.half(), boxes, boxes.float())
    for objects in alike:
        assert torch.equal(lam(objects), expected)


@pytest.mark.parametrize(
    ("box", "rows", "columns"),
    [
        ((1, 0, 3, 2), [1, 1, 0], [0, 1, 1, 0]),
        ((-5, -1, 2, 9), [1, 1, 1], [1, 1, 0, 0]),  # clipped
        ((0.25, 1.5, 2.5, 2.75), [0, 0.5, 0.75], [0.75, 1, 0.5, 0]),  # parts of pixels
        ((1.25, 0, 1.5, 3), [1, 1, 1], [0, 0.25, 0, 0]),  # within a pixel
        ((3, 0, 1, 3), [1, 1, 1], [0, 0, 0, 0]),  # the wrong way round
        ((7, 0, 9, 3), [1, 1, 1], [0, 0, 0, 0]),  # outside
        ((2, 2, 2, 2), [0, 0, 0], [0, 0, 0, 0]),
    ],
)
def test_boxes_cover_pixels_by_their_area(box: tuple[float, ...], rows: list[float], columns: list[float]) -> None:
    expected = torch.outer(torch.tensor(rows).float(), torch.tensor(columns).float())
    torch.testing.assert_close(boxes_to_masks(torch.tensor([box]), (3, 4)), expected.view(1, 1, 3, 4))


def test_a_batch_without_partners_is_refused() -> None:
    x, y = batch()
    mixed = Mixed(x, MixedTarget.clean(y), torch.ones(6, 1, 16, 16))
    assert label_by_objects(mixed, None) is mixed
    with pytest.raises(ValueError, match=r"^objects must be None where pixels were moved"):
        label_by_objects(mixed, torch.ones(6, 16, 16))
    supervisor = HandWritten().eval()
    with pytest.raises(ValueError, match=r"^objects must be None .*more than two images"):
        automix.supermix(x, y, model=supervisor, k=3, steps=1, objects=torch.ones(6, 16, 16))


def test_the_label_carries_no_gradient() -> None:
    x, y = batch()
    mask = torch.rand(6, 1, 16, 16, requires_grad=True)
    index = torch.arange(6).roll(1)
    mixed = Mixed(x, MixedTarget(y, y[index], torch.tensor(0.5)), mask, index)
    assert not label_by_objects(mixed, torch.rand(6, 16, 16, requires_grad=True)).target.lam.requires_grad


# --- objects that move with their pixels -----------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["absolute", "relative"])
def test_resizemix_shrinks_the_partners_object_as_torchvision_does(rule: Any) -> None:
    x, y = batch(4, 24, 32)
    masks = boxes_to_masks(torch.tensor([[3, 2, 20, 17], [8, 8, 30, 24], [0, 0, 5, 5], [12.5, 4, 19, 11]]), (24, 32))
    index, corner = torch.tensor([1, 2, 3, 0]), torch.tensor([5, 9])
    mixed = automix.resizemix(
        x, y, lam=0.75, index=index, corner=corner, objects=masks, objects_rule=rule
    )  # tau = 0.5: 12 x 16 pixels
    small = tv.resize(masks, [12, 16], antialias=True)[index]
    covered = masks[:, :, 5:17, 9:25].sum(dim=(1, 2, 3))
    visible_a, visible_b = masks.sum(dim=(1, 2, 3)) - covered, small.sum(dim=(1, 2, 3))
    if rule == "relative":
        visible_a, visible_b = visible_a / masks.sum(dim=(1, 2, 3)), torch.ones(4)  # all of the pasted object is there
    torch.testing.assert_close(mixed.target.lam, visible_a / (visible_a + visible_b), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("transport", [True, False])
def test_puzzlemix_moves_objects_with_their_blocks(transport: bool) -> None:
    """Images are their own object masks. Half of them are blank, so that a sample shows one of its two objects."""
    generator = torch.Generator().manual_seed(0)
    masks = (torch.rand(6, 1, 16, 16, generator=generator) < 0.3).float()
    even = torch.tensor([1.0, 0.0] * 3).view(6, 1, 1, 1)
    options: dict[str, Any] = {
        "y": torch.zeros(6, dtype=torch.int64),
        "saliency": torch.rand(6, 16, 16, generator=generator) ** 8,
        "grid": 4,
        "index": torch.arange(6).roll(1),
        "lam": 0.5,
        "beta": 0.1,
        "gamma": 0.0,  # the colors do not count
        "transport": transport,
    }
    mixed = automix.puzzlemix(masks, **options, objects=masks)
    blended = torch.lerp(masks.roll(1, 0), masks, mixed.mask)
    assert torch.equal(mixed.x, blended) == (not transport)  # blocks were moved
    of_even, of_odd = (automix.puzzlemix(masks * shown, **options).x.sum(dim=(1, 2, 3)) for shown in (even, 1 - even))
    visible_a, visible_b = (torch.where(even.flatten() == one, of_even, of_odd) for one in (1, 0))
    torch.testing.assert_close(mixed.target.lam, visible_a / (visible_a + visible_b))


# --- transforms ------------------------------------------------------------------------------------------------------


def test_a_transform_takes_objects_in_the_call() -> None:
    x, y = batch()
    objects = torch.rand(6, 16, 16)
    for name in ("CutMix", "ResizeMix", "MixupOrCutMix"):
        transform = getattr(automix, name)
        mixed, soft = transform(objects_weight=0.5, num_classes=5, generator=step_generator(0, 0))(x, y, objects)
        function = {"CutMix": automix.cutmix, "ResizeMix": automix.resizemix, "MixupOrCutMix": automix.mixup_or_cutmix}
        same = function[name](x, y, objects=objects, objects_weight=0.5, generator=step_generator(0, 0))
        assert torch.equal(mixed, same.x)
        assert torch.equal(soft, same.target.soft(5))
    helped = automix.AttentiveMix(helper=HandWritten(), layer="body", num_classes=5, generator=step_generator(0, 0))
    assert helped(x, y, objects)[1].shape == (6, 5)
    with pytest.raises(ValueError, match=r"^objects must be None for pixmix"):
        automix.PixMix(num_classes=5, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))(x, y, objects)
    with pytest.raises(ValueError, match="cutmix has no option 'objects'"):
        automix.CutMix(objects=objects)


# --- masks from the teacher ------------------------------------------------------------------------------------------


def masks_from(maps: Tensor, size: int) -> Tensor:
    """What masks should be made of class activation maps (N, 1, h, w)."""
    enlarged = F.interpolate(maps.clamp(min=0), size=(size, size), mode="bilinear")
    return enlarged / enlarged.amax(dim=(2, 3), keepdim=True)


@pytest.mark.parametrize("family", WITH_CAM)
def test_online_maps_are_those_of_the_evaluation(family: str) -> None:
    """At the first call, which finds the structure, and at later ones; for a network in a wrapper, too."""
    size = 64 if family == "resnet_v2" else 32
    model = trained_a_little(WITH_CAM[family]())
    normalized = WithNormalization(model, card())
    for network in (model, normalized):
        objects = TeacherObjects()
        for shift in (0.0, 0.1, -0.1):
            x = images(size=size) + shift
            maps = cam(network, x, torch.arange(5).expand(3, 5))
            y = maps.amax(dim=(2, 3)).argmax(dim=1)
            own = maps[torch.arange(3), y].unsqueeze(1)
            assert bool((own.amax(dim=(1, 2, 3)) > 0).all())
            torch.testing.assert_close(objects(network, x, y), masks_from(own, size), rtol=1e-4, atol=1e-5)


def test_a_map_costs_one_pass_with_one_hook() -> None:
    model = HandWritten().eval()
    x, y = batch()
    objects = TeacherObjects()
    objects(model, x, y)
    assert objects.reader is not None
    assert (objects.reader.layer, objects.reader.linear, objects.reader.by_features) == ("body", "head", False)
    passes: list[int] = []
    model.register_forward_hook(lambda module, inputs, output: passes.append(len(module.body._forward_hooks)))
    objects(model, x, y)
    assert passes == [1]
    assert not model.body._forward_hooks


def test_labels_that_choose_the_map() -> None:
    model, (x, y) = trained_a_little(HandWritten()), batch()
    objects = TeacherObjects()
    expected = objects(model, x, y)
    torch.testing.assert_close(objects(model, x, F.one_hot(y, 5).float()), expected)
    torch.testing.assert_close(objects(model, x, F.one_hot(y, 5)), expected)  # a multi-label row of one class
    predicted = objects(model, x, model(x).argmax(dim=1))
    torch.testing.assert_close(objects(model, x, torch.full((6,), 9)), predicted)  # no class of the network's
    with pytest.raises(ValueError, match="num_classes=5"):
        objects(model, x, torch.ones(6, 7, dtype=torch.int64))


def test_where_a_map_is_positive_nowhere_the_image_is_the_object() -> None:
    model, (x, y) = HandWritten().eval(), batch()
    nn.init.constant_(model.head.weight, -1.0)
    assert torch.equal(TeacherObjects()(model, x, y), torch.ones(6, 1, 16, 16))


def test_the_student_is_asked_in_eval_mode_and_left_as_it_was() -> None:
    task, (x, y) = automix.create_task("cutmix", HandWritten(), objects="teacher"), batch()
    before = {name: value.clone() for name, value in task.state_dict().items()}
    assert isinstance(task, automix.MixTask)
    assert task.teacher_objects is not None
    masks = task.teacher_objects(task.classifier, x, y)
    assert not masks.requires_grad
    assert task.student.training
    assert all(torch.equal(value, before[name]) for name, value in task.state_dict().items())


def test_a_task_labels_by_the_maps_of_its_teacher() -> None:
    x, y = batch()
    task = automix.create_task("cutmix", HandWritten(), ema=True, objects="teacher", objects_rule="relative")
    plain = automix.create_task("cutmix", HandWritten(), ema=True)
    assert task.teacher is not None
    with torch.no_grad():
        for parameter in task.teacher.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    index = torch.arange(6).roll(1)
    mixed, same = (one.mix(x, y, lam=0.5, index=index) for one in (task, plain))
    assert torch.equal(mixed.x, same.x)
    objects = TeacherObjects()(task.teacher, x, y)
    assert torch.equal(mixed.target.lam, label_by_objects(same, objects, "relative").target.lam)
    assert not torch.equal(mixed.target.lam, same.target.lam.expand(6))
    out = task(x, y)
    out.loss.backward()
    assert all(parameter.grad is None for parameter in task.teacher.parameters())


# --- AutoMix ---------------------------------------------------------------------------------------------------------


def automix_step(objects: str | None, **options: Any) -> tuple[automix.AutoMix, automix.StepOutput]:
    torch.manual_seed(0)
    overrides: dict[str, Any] = {} if objects is None else {"objects": objects}
    task = automix.AutoMix(HandWritten(), layer="body", aux_loss="none", block_share=1.0, **overrides, **options)
    out = task(*batch())
    out.loss.backward()
    return task, out


def test_automix_relabels_the_students_samples_and_no_others() -> None:
    (plain, before), (task, out) = automix_step(None), automix_step("teacher")
    assert torch.equal(before.logits, out.logits)  # the same samples
    assert before.metrics["loss_mixed"] != out.metrics["loss_mixed"]
    for name in ("loss_generation", "mask_spread", "lam_gap"):
        assert torch.equal(before.metrics[name], out.metrics[name]), name
    for mine, same in zip(task.mix_block.parameters(), plain.mix_block.parameters(), strict=True):
        assert torch.equal(mine.grad, same.grad)  # type: ignore[arg-type]
    assert task.teacher is not None
    assert all(parameter.grad is None for parameter in task.teacher.parameters())


def test_automix_uses_the_mask_that_the_block_made() -> None:
    x, y = batch()
    task, _ = automix_step("teacher", objects_weight=0.5)
    plain, _ = automix_step(None)
    mixed, same = (one.mix(x, y, lam=0.5) for one in (task, plain))
    assert task.teacher is not None
    objects = TeacherObjects()(task.teacher, x, y)
    assert torch.equal(mixed.mask, same.mask)
    assert torch.equal(mixed.target.lam, label_by_objects(same, objects, weight=0.5).target.lam)
    assert not mixed.target.lam.requires_grad


@pytest.mark.parametrize("aux_loss", ["mixup-ramp", "joined", "clean", "mixup", "none"])
def test_automix_with_every_second_loss(aux_loss: str) -> None:
    task = automix.AutoMix(HandWritten(), layer="body", aux_loss=aux_loss, block_share=0.5, objects="teacher")
    assert task(*batch()).loss.isfinite()


def test_settings_without_objects_are_what_they_were() -> None:
    assert not {"objects", "objects_rule", "objects_weight"} & automix.AutoMixSettings().to_dict().keys()
    settings = automix.AutoMixSettings.from_preset("fast", objects="teacher", objects_rule="relative")
    assert automix.AutoMixSettings.from_preset("tuned", **settings.to_dict()) == settings


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: automix.create_task("cutmix", HandWritten(), objects="student"), "^objects must be one of teacher"),
        (lambda: automix.create_task("cutmix", HandWritten(), objects_weight=0.5), "^objects_weight has no effect"),
        (
            lambda: automix.create_task("fmix", HandWritten(), objects="teacher", objects_weight=2),
            "^objects_weight .*2",
        ),
        (lambda: automix.AutoMix(HandWritten(), "body", objects="cam"), "^objects must be one of teacher or null; got"),
        (lambda: automix.AutoMix(HandWritten(), "body", objects_rule="relative"), "^objects_rule has no effect"),
        (lambda: automix.AutoMix(HandWritten(), "body", objects="teacher", momentum=None), "^objects .*momentum=None"),
        (
            lambda: automix.AutoMix(HandWritten(), "body", objects="teacher", objects_weight=2),
            "^objects_weight .*got 2",
        ),
        (lambda: boxes_to_masks(torch.zeros(4), (2, 2)), r"^boxes must have shape \(N, 4\), got \(4,\)"),
        (lambda: object_masks(torch.full((1, 2, 2), torch.nan), torch.zeros(1, 3, 2, 2)), r"^objects .*\[0, 1\], got"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "name", [name for name in automix.methods() if name not in (*TAKING_OBJECTS, "adautomix", "automix")]
)
def test_tasks_of_other_methods_refuse_objects(name: str) -> None:
    options = {**traits(name).options, "objects": "teacher"}
    with pytest.raises(automix.AutomixError, match=rf"^objects must be None for {name}: ") as error:
        automix.create_task(name, traits(name).model(), **options)
    assert "\n" not in str(error.value)


def test_a_network_without_maps_is_refused_in_one_line() -> None:
    task = automix.create_task("cutmix", small_vit(), objects="teacher")
    with pytest.raises(NoCamError, match=r"^objects must be None for VisionTransformer: .*global average pooling"):
        task(*batch())
