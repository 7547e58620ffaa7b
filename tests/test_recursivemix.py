"""RecursiveMix: pixels against torchvision, labels and the second term by hand, a run that is stopped and resumed."""

from typing import Any

import pytest
import scipy.stats
import timm
import torch
import torch.nn.functional as F
import torchvision.transforms.v2.functional as tv
from conftest import HandWritten, batch
from method_data import small_vit

import automix
from automix import Mixed
from automix.core.draws import step_generator
from automix.methods.recursivemix import RecursiveMixTask


def step(x: torch.Tensor, y: torch.Tensor, previous: Mixed | None, **options: Any) -> Mixed:
    index, corner = torch.arange(len(x)), torch.tensor([1, 2])
    given = {"index": index, "corner": corner, "num_classes": 5, **options}
    return automix.recursivemix(x, y, previous=previous, **given)


def test_the_previous_batch_is_pasted_as_torchvision_resizes_it() -> None:
    x, y = batch(4, 24, 32)
    first = step(x, y, None, lam=0.75)
    second = step(x.flip(0), y.flip(0), first, lam=0.75)
    small = tv.resize(first.x, [12, 16], antialias=True)
    torch.testing.assert_close(second.x[:, :, 1:13, 2:18], small, rtol=1e-4, atol=1e-4)
    outside = torch.ones(24, 32, dtype=torch.bool)
    outside[1:13, 2:18] = False
    assert torch.equal(second.x[:, :, outside], x.flip(0)[:, :, outside])
    assert second.index is None


def test_labels_are_recursive() -> None:
    """Three steps with a quarter pasted: 3/4 of this image, 3/16 of the last one, 1/16 of the first mixture."""
    x = torch.randn(2, 3, 8, 8)
    first = step(x, torch.tensor([0, 1]), None, lam=0.75, index=torch.tensor([1, 0]))
    second = step(x, torch.tensor([2, 3]), first, lam=0.75)
    third = step(x, torch.tensor([4, 4]), second, lam=0.75)
    soft = third.target.soft()
    torch.testing.assert_close(soft[0], torch.tensor([3 / 64, 1 / 64, 3 / 16, 0, 3 / 4]))
    torch.testing.assert_close(soft[1], torch.tensor([1 / 64, 3 / 64, 0, 3 / 16, 3 / 4]))
    assert third.target.lam.item() == 0.75


def test_rows_and_multi_label_rows() -> None:
    x = torch.randn(3, 3, 8, 8)
    multi = torch.tensor([[1, 0, 1], [0, 1, 0], [0, 0, 1]])
    first = step(x, multi, None, lam=0.75, num_classes=None)
    second = step(x, multi.roll(1, 0), first, lam=0.75, num_classes=None)
    assert second.target.multi_label
    torch.testing.assert_close(second.target.soft(), 0.75 * multi.roll(1, 0) + 0.25 * multi)
    assert second.target.loss(torch.randn(3, 3)).isfinite()


def test_the_area_is_uniform_up_to_a_half() -> None:
    x, y = batch(2, 64, 64)
    areas = [1 - automix.recursivemix(x, y, generator=step_generator(0, n)).target.lam.item() for n in range(300)]
    assert max(areas) <= 0.52
    assert scipy.stats.kstest(areas, scipy.stats.uniform(0, 0.5).cdf).pvalue > 0.01


def test_the_second_term_by_hand() -> None:
    x, y = batch()
    task = automix.create_task("recursivemix", HandWritten(), omega=0.7, corner=torch.tensor([4, 8]))
    assert isinstance(task, RecursiveMixTask)
    first = task(x, y)
    assert "loss_consistency" not in first.metrics
    before = first.logits.detach()
    maps: list[torch.Tensor] = []
    handle = task.student.body.register_forward_hook(lambda module, inputs, output: maps.append(output))  # type: ignore[union-attr]
    task.update(0.1)
    kept = task.history.step
    assert kept is not None
    second = task(x, y)
    handle.remove()
    # the same draws again: area, index
    generator = step_generator(0, 1)
    previous = Mixed(kept.x, automix.MixedTarget.clean(kept.rows), kept.x[:, :1])
    again = automix.recursivemix(
        x, y, previous=previous, num_classes=5, corner=torch.tensor([4, 8]), generator=generator
    )
    generator = step_generator(0, 1)
    torch._sample_dirichlet(torch.ones(2), generator)
    index = torch.randperm(6, generator=generator)
    inside = again.mask[0, 0] == 0
    cover = F.avg_pool2d(inside.float()[None, None], 4)  # 16 px to 4 cells: shares of the cells that the box covers
    pooled = (maps[-1] * cover).sum(dim=(2, 3)) / cover.sum()
    answers = task.student.head(pooled)  # type: ignore[operator]
    lam = again.target.lam
    expected = 0.7 * (1 - lam) * F.cross_entropy(answers, before[index].softmax(dim=1))
    torch.testing.assert_close(second.metrics["loss_consistency"], expected.detach())
    torch.testing.assert_close(second.metrics["lam"], lam)
    second.loss.backward()
    assert all(parameter.grad is not None for parameter in task.student.parameters())


def test_a_batch_of_another_shape_starts_anew() -> None:
    task = automix.create_task("recursivemix", HandWritten())
    names = []
    for count, side in ((6, 16), (6, 16), (4, 16), (4, 20), (4, 20)):
        names.append("loss_consistency" in task(*batch(count, side, side)).metrics)
        task.update(0.0)
    assert names == [False, True, False, False, True]


@pytest.mark.parametrize("name", ["resnet18", "convnext_atto", "mobilenetv3_small_050", "densenet121"])
def test_networks_of_timm(name: str) -> None:
    """With a norm behind the pooling, a convolution before the head, and a map that is no module's output."""
    model = timm.create_model(name, num_classes=5)
    x, y = batch(2, 96, 96)
    if name == "mobilenetv3_small_050":  # a hidden layer between pooling and head
        task = automix.create_task("recursivemix", model)
        task(x, y)
        with pytest.raises(ValueError, match="global average pooling and one linear layer"):
            task(x, y)
        return
    task = automix.create_task("recursivemix", model)
    task(x, y)
    out = task(x, y)
    out.loss.backward()
    assert out.metrics["loss_consistency"] > 0
    assert "forward_features" not in vars(model)


def test_without_the_second_term_any_network() -> None:
    task = automix.create_task("recursivemix", small_vit(), omega=0.0)
    x, y = batch()
    task(x, y)
    assert set(task(x, y).metrics) == {"loss_mixed", "lam", "mixed_accuracy"}
    refused = automix.create_task("recursivemix", small_vit())
    refused(x, y)
    with pytest.raises(ValueError, match="global average pooling and one linear layer"):
        refused(x, y)


def test_the_transform_remembers() -> None:
    x, y = batch()
    transform = automix.RecursiveMix(num_classes=5, generator=step_generator(0, 0))
    generator = step_generator(0, 0)
    previous = None
    for _ in range(3):
        mixed, soft = transform(x, y)
        previous = automix.recursivemix(x, y, previous=previous, num_classes=5, generator=generator)
        assert torch.equal(mixed, previous.x)
        assert torch.equal(soft, previous.target.soft(5))
    assert transform(x[:3], y[:3])[0].shape == (3, 3, 16, 16)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_area": 0.0}, r"^max_area must be in \(0, 1\]"),
        ({"num_classes": None}, "^num_classes is missing"),
        ({"previous": "small"}, r"^previous must have images \(6, 3, 16, 16\) as x, got \(6, 3, 8, 8\)"),
    ],
)
def test_wrong_input_is_refused(change: dict[str, Any], message: str) -> None:
    x, y = batch()
    options: dict[str, Any] = {"previous": step(x, y, None), **change}
    if change.get("previous"):
        options["previous"] = step(*batch(6, 8, 8), None)
    with pytest.raises(ValueError, match=message):
        step(x, y, **options)


def test_wrong_options_of_the_task_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^omega must be >= 0, got -1"):
        automix.create_task("recursivemix", HandWritten(), omega=-1)
    with pytest.raises(ValueError, match=r"^num_classes must not be given"):
        automix.create_task("recursivemix", HandWritten(), num_classes=5)
