"""Attentive CutMix: the strongest cells, the "+" form's law, and a helper that nobody trains or saves."""

from pathlib import Path
from typing import Any

import pytest
import scipy.stats
import timm
import torch
import torch.nn.functional as F
import torchvision.transforms.functional as TF
from conftest import HandWritten, batch
from safetensors.torch import save_file
from torch import Tensor

import automix
from automix.core.draws import step_generator
from automix.methods.attentivemix import AttentiveMix, attentivemix, strongest_cells
from automix.tasks.mix_task import MixTask


def make(**options: Any) -> MixTask:
    task = automix.create_task("attentivemix", HandWritten(), **{"layer": "body", **options})
    assert isinstance(task, MixTask)
    return task


def test_pastes_the_strongest_cells_onto_the_partner() -> None:
    """A 14 px image has cells of 2 x 2 px; the ones attended to are named by hand."""
    x, y = torch.stack([torch.ones(3, 14, 14), torch.zeros(3, 14, 14)]), torch.tensor([0, 1])
    attention = torch.rand(2, 7, 7)
    places = [(0, 0), (0, 1), (3, 3), (6, 6), (2, 5), (5, 0)]
    for row, column in places:
        attention[0, row, column] = 2.0
    mixed = attentivemix(x, y, attention=attention, index=torch.tensor([1, 0]))
    expected = torch.zeros(7, 7)
    for row, column in places:
        expected[row, column] = 1
    assert torch.equal(mixed.x[0], expected.repeat_interleave(2, 0).repeat_interleave(2, 1).expand(3, 14, 14))
    torch.testing.assert_close(mixed.target.lam, torch.full((2,), 6 / 49))


@pytest.mark.parametrize("size", [(7, 7), (14, 21), (9, 20), (4, 4), (3, 9)])
def test_cells_are_the_largest_of_the_pooled_map(size: tuple[int, int]) -> None:
    attention = torch.rand(20, *size)
    cells = torch.arange(20) * 2
    if min(size) < 7:
        pooled = F.adaptive_avg_pool2d(F.interpolate(attention[None], size=(7, 7), mode="bilinear")[0], 7)
    else:
        pooled = F.adaptive_avg_pool2d(attention, 7)
    chosen = strongest_cells(attention, cells)
    for each, values, count in zip(chosen, pooled, cells.tolist(), strict=True):
        assert int(each.sum()) == count
        if count:
            assert torch.equal(values[each].sort().values, values.flatten().topk(count).values.sort().values)


def test_a_map_of_equal_values_still_gives_k_cells() -> None:
    assert torch.equal(strongest_cells(torch.zeros(3, 7, 7), torch.tensor(6.0)).sum(dim=(1, 2)), torch.full((3,), 6))


@pytest.mark.parametrize("alpha", [2.0, 0.7])
def test_plus_draws_the_number_of_cells(alpha: float) -> None:
    x, y = torch.zeros(4000, 1, 7, 7), torch.zeros(4000, dtype=torch.int64)
    options: dict[str, Any] = {"attention": torch.rand(4000, 7, 7), "plus": True, "generator": step_generator(0, 0)}
    lam = attentivemix(x, y, alpha, per_sample=True, **options).target.lam
    cells = (lam * 49).round().long()
    edges = torch.tensor([0, 1, 2, 3, 5, 8, 12, 20, 49])  # bins, for k = floor(49 * lam)
    counts = torch.histogram(cells.double() + 0.5, edges.double()).hist
    law = torch.tensor(scipy.stats.beta(alpha, 8).cdf(edges.numpy() / 49)).diff()
    assert scipy.stats.chisquare(counts.numpy(), (law / law.sum() * counts.sum()).numpy()).pvalue > 0.01


def test_plus_draws_one_number_for_the_batch_by_default() -> None:
    x, y = batch(6, 14, 14)
    lams = [
        attentivemix(x, y, attention=torch.rand(6, 7, 7), plus=True, generator=step_generator(0, step)).target.lam
        for step in range(10)
    ]
    assert all(bool((lam == lam[0]).all()) for lam in lams)
    assert len({float(lam[0]) for lam in lams}) > 3


@pytest.mark.parametrize("size", [(16, 16), (13, 22), (30, 9), (4, 5)])
def test_label_is_the_area_to_the_pixel(size: tuple[int, int]) -> None:
    x, y = torch.stack([torch.ones(1, *size), torch.zeros(1, *size)]), torch.tensor([0, 1])
    mixed = attentivemix(x, y, attention=torch.rand(2, 7, 7), k=11, index=torch.tensor([1, 0]))
    torch.testing.assert_close(mixed.target.lam[0], mixed.x[0].mean())


# --- the helper ------------------------------------------------------------------------------------------------------


def body_map(model: Any, x: Tensor) -> Tensor:
    model.eval()
    return model.body(model.stem(x)).mean(dim=1).detach()  # after a ReLU: the mean is the mean of magnitudes


def mixed_by(x: Tensor, attention: Tensor) -> Tensor:
    return attentivemix(x, torch.arange(len(x)), attention=attention, generator=step_generator(0, 0)).x


def test_the_classifier_looks_for_itself_and_with_ema_its_teacher() -> None:
    x, _ = batch(6, 28, 28)
    task = make()
    assert torch.equal(task.mix(x).x, mixed_by(x, body_map(task.student, x)))
    task = make(ema=True)
    with torch.no_grad():
        for parameter in task.student.parameters():
            parameter.normal_()
    assert torch.equal(task.mix(x).x, mixed_by(x, body_map(task.teacher, x)))
    assert not torch.equal(task.mix(x).x, mixed_by(x, body_map(task.student, x)))


def test_a_helper_looks_and_is_nobodys_business() -> None:
    x, y = batch(6, 28, 28)
    torch.manual_seed(11)
    helper = HandWritten(num_classes=2)
    task = make(helper=helper)
    alone = make()
    assert list(task.state_dict()) == list(alone.state_dict())
    assert len(task.param_groups(lr=0.1)[0]["params"]) == len(list(alone.parameters()))
    before = {name: value.clone() for name, value in helper.state_dict().items()}
    task(x, y).loss.backward()
    assert all(torch.equal(before[name], value) for name, value in helper.state_dict().items())
    assert all(parameter.grad is None and parameter.requires_grad for parameter in helper.parameters())
    assert helper.training
    assert torch.equal(task.mix(x).x, mixed_by(x, body_map(helper, x)))
    assert type(task.deploy()) is HandWritten


def test_a_helper_of_another_type_serves_double_images() -> None:
    x, y = batch()
    task = make(helper=HandWritten()).double()
    assert task(x.double(), y).loss.dtype == torch.float64


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("resnet10t", {}),
        ("vit_tiny_patch16_224", {"img_size": 32, "patch_size": 8, "depth": 4}),
        ("swin_tiny_patch4_window7_224", {"img_size": 32, "window_size": 2, "embed_dim": 24, "depths": (1, 1, 1, 1)}),
    ],
)
def test_any_timm_network_can_help(name: str, options: dict[str, Any]) -> None:
    x, y = batch(4, 32, 32)
    helper = timm.create_model(name, num_classes=3, **options)
    task = automix.create_task("attentivemix", HandWritten(), helper=helper)
    task(x, y).loss.backward()
    mixed = task.mix(x)
    (z,) = helper.eval().forward_intermediates(
        x, indices=[len(helper.feature_info) - 1], intermediates_only=True, output_fmt="NCHW"
    )
    assert torch.equal(mixed.x, mixed_by(x, z.detach().abs().mean(dim=1)))


def test_transform() -> None:
    x, y = batch(6, 28, 28)
    helper = HandWritten()
    transform = AttentiveMix(helper=helper, num_classes=5, layer="body", generator=step_generator(0, 0))
    mixed, soft = transform(x, y)
    assert torch.equal(mixed, mixed_by(x, body_map(helper, x)))
    torch.testing.assert_close(soft.sum(dim=1), torch.ones(6))
    assert list(transform.state_dict()) == []
    plus = AttentiveMix(helper=helper, num_classes=5, layer="body", plus=True, k=3, generator=step_generator(0, 1))
    assert not torch.equal(plus(x, y)[1], soft)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make(layer=None), "HandWritten does not describe its stages; pass layer="),
        (lambda: make(helper=HandWritten(), layer=3), "layer must .*HandWritten does not describe its stages; got 3"),
        (lambda: make(layer="head"), "layer 'head'"),
        (lambda: make(k=50), r"k must .*\[1, 49\]"),
        (lambda: AttentiveMix(helper=HandWritten(), layer="body", k=0), r"k must.*\[1, 49\]"),
        (
            lambda: attentivemix(*batch(), attention=torch.rand(5, 7, 7)),
            r"attention .*\(6, h, w\), got \(5, 7, 7\)",
        ),
        (lambda: attentivemix(*batch(), attention=torch.rand(6, 49)), r"attention .*\(6, h, w\), got \(6, 49\)"),
    ],
)
def test_wrong_input_is_refused(call: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}") as error:
        call()
    assert "\n" not in str(error.value)


def test_a_helper_by_its_name_sees_the_images_it_was_trained_on(tmp_path: Path) -> None:
    """Weights of a file; the images are enlarged, and normalized by the helper's mean and std instead of the run's."""
    torch.manual_seed(5)
    helper = timm.create_model("resnet10t", num_classes=7).eval()
    save_file(helper.state_dict(), tmp_path / "helper.safetensors")
    mean, std = (0.3, 0.4, 0.5), (0.1, 0.2, 0.3)
    options: dict[str, Any] = {"helper": "resnet10t", "helper_weights": str(tmp_path / "helper.safetensors")}
    task = make(layer=None, mean=mean, std=std, **options)
    x, y = batch(4, 32, 40)
    shown = task.mix(x, y, index=torch.tensor([1, 2, 3, 0]))
    card = timm.get_pretrained_cfg("resnet10t")
    pixels = x * torch.tensor(std).view(3, 1, 1) + torch.tensor(mean).view(3, 1, 1)
    seen = TF.normalize(pixels, card.mean, card.std)
    size = card.input_size[-1]
    seen = F.interpolate(seen, (size, 5 * size // 4), mode="bilinear", antialias=True)
    with torch.no_grad():
        (last,) = helper.forward_intermediates(seen, indices=[-1], intermediates_only=True)
    expected = attentivemix(x, y, attention=last.abs().mean(dim=1), index=torch.tensor([1, 2, 3, 0]))
    assert torch.equal(shown.mask, expected.mask)
    assert not any("resnet" in name or "look" in name for name in task.state_dict())
    task(x, y).loss.backward()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"helper": "resnt18"}, "model.*'resnt18'"),
        ({"helper": 3}, "helper must be a network or the name of one, got int"),
        ({"helper_weights": "x"}, "helper_weights has no effect without helper"),
        ({"helper": "resnet10t", "helper_weights": "none.safetensors"}, "^helper resnet10t: .*none.*helper_weights"),
    ],
)
def test_wrong_helpers_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message), torch.device("meta"):  # as `automix train` rehearses
        make(layer=None, **options)
