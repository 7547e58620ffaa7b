"""SuperMix: what a step does, worked out for a linear network, and what the network sees in the mixtures."""

import itertools
from typing import Any

import pytest
import torch
from conftest import HandWritten, batch
from torch import Tensor, nn

import automix
from automix.core.draws import draw_weights, step_generator
from automix.methods import supermix as supermix_module
from automix.methods.supermix import _blur, _sees_all, find_masks


class Detector(nn.Module):
    """Sees class c as strongly as channel c is bright in the left half (even c) or the right half; else "nothing"."""

    def __init__(self, scale: float = 20.0) -> None:
        super().__init__()
        self.scale = scale
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: Tensor) -> Tensor:
        left, right = (half.mean(dim=(2, 3)) for half in self.norm(x).chunk(2, dim=3))
        even = torch.arange(4, device=x.device) % 2 == 0
        seen = torch.where(even, left, right)
        return self.scale * torch.cat([seen, torch.full_like(seen[:, :1], 0.7)], dim=1)


def colored() -> tuple[Tensor, Tensor]:
    """Image c has channel c on; even classes can only be told from the left half, odd ones from the right."""
    x = torch.eye(4)[..., None, None].expand(4, 4, 16, 16).contiguous()
    return x, torch.arange(4)


INDEX = torch.tensor([1, 0, 3, 2])


@pytest.mark.parametrize("fast", [True, False])
def test_each_image_is_shown_where_the_network_looks_for_it(fast: bool) -> None:
    x, y = colored()
    mixed = automix.supermix(x, y, model=Detector(), lam=0.5, index=INDEX, fast=fast)
    left, right = mixed.mask[..., :6].mean(dim=(1, 2, 3)), mixed.mask[..., 10:].mean(dim=(1, 2, 3))
    assert bool((left[[0, 2]] > 0.8).all())
    assert bool((right[[0, 2]] < 0.2).all())
    assert bool((left[[1, 3]] < 0.2).all())
    assert bool((right[[1, 3]] > 0.8).all())
    torch.testing.assert_close(mixed.x, mixed.mask * x + (1 - mixed.mask) * x[INDEX])
    torch.testing.assert_close(mixed.target.lam, mixed.mask.mean(dim=(1, 2, 3)))
    assert torch.equal(mixed.target.y_b, y[INDEX])


def test_three_images_give_rows() -> None:
    x, y = colored()
    index = torch.tensor([1, 2, 3, 0])
    mixed = automix.supermix(x, y, model=Detector(), k=3, index=index, generator=step_generator(0, 0))
    rows = mixed.target.soft()[:, :4]
    torch.testing.assert_close(rows, mixed.x.mean(dim=(2, 3)))  # a channel for each class
    assert bool((rows[torch.arange(4), (torch.arange(4) + 3) % 4] == 0).all())  # three of the four
    assert int((rows > 0).sum()) == 12
    torch.testing.assert_close(mixed.target.lam, mixed.mask.mean(dim=(1, 2, 3)))
    given = automix.supermix(x, y, model=Detector(), k=3, index=index, lam=torch.tensor([1.0, 0.5, 0.5, 0.5]))
    assert torch.equal(given.x[0], x[0])
    several = automix.supermix(x, torch.eye(4).long(), model=Detector(), k=3, index=index)
    logits = torch.randn(4, 4)
    torch.testing.assert_close(several.target.loss(logits), several.target.bce(logits))


def test_one_step_is_the_newton_step_of_the_smoothed_gradient() -> None:
    """Worked out by hand where masks have one value for the whole image: no smoothing, no sparsity, two classes."""

    def model(x: Tensor) -> Tensor:
        return torch.stack([x[:, 0].mean(dim=(1, 2)), torch.zeros(len(x))], dim=1)

    images = torch.tensor([3.0, -1.0]).reshape(1, 2, 1, 1, 1)
    weights, classes = torch.tensor([[0.25, 0.75]]), torch.tensor([[0, 1]])
    masks = find_masks(model, images, weights, classes, 2, steps=1, sigma=0.0, sparsity=0.0, fast=True)
    # s = 1/2: the pixel is z = 1, p = sigmoid(1); dKL/dz = p - w; dz/ds = 4; ds/dm_1 = s (1 - s) = 1/4 = -ds/dm_2
    p = torch.tensor(1.0).sigmoid()
    loss = 0.25 * (0.25 / p).log() + 0.75 * (0.75 / (1 - p)).log()
    gradient = (p - 0.25) * 4 / 4
    step = loss / (2 * gradient**2) * gradient
    torch.testing.assert_close(masks[0, :, 0, 0], torch.stack([(-2 * step).sigmoid(), (2 * step).sigmoid()]))
    # with a_k = sigmoid(m_k) and s = a_1 / (a_1 + a_2): ds/dm_1 = s (1 - s) (1 - a_1) = 1/8 = -ds/dm_2
    masks = find_masks(model, images, weights, classes, 2, steps=1, sigma=0.0, sparsity=0.0)
    gradient = gradient / 2
    step = loss / (2 * gradient**2) * gradient
    share = (-step).sigmoid() / ((-step).sigmoid() + step.sigmoid())
    torch.testing.assert_close(masks[0, :, 0, 0], torch.stack([share, 1 - share]))


def test_more_steps_see_more_and_samples_that_are_seen_stay() -> None:
    x, y = colored()
    network = Detector(scale=3.0)
    calls: list[Tensor] = []

    def watched(images: Tensor) -> Tensor:
        calls.append(images.detach().clone())
        return network.eval()(images)

    mixed = automix.supermix(x, y, model=watched, lam=0.5, index=INDEX, steps=4, fast=True)
    classes = torch.stack([y, y[INDEX]], dim=1)
    assert len(calls) <= 5  # the images, and each step
    assert len(calls[1]) == len(calls[2]) == 4  # every sample makes a step
    assert not torch.equal(calls[1], calls[2])
    left = torch.arange(4)
    for now, after in itertools.pairwise([*calls[2:], None]):
        assert now is not None
        seen = _sees_all(network(now), classes[left])
        torch.testing.assert_close(mixed.x[left[seen]], now[seen])  # finished: as it stays
        left = left[~seen]
        assert after is None or len(after) == len(left)


def test_the_default_goes_on_until_all_classes_are_seen() -> None:
    x, y = colored()
    network, sizes = Detector(scale=3.0).eval(), []

    def watched(images: Tensor) -> Tensor:
        sizes.append(len(images))
        return network(images)

    mixed = automix.supermix(x, y, model=watched, lam=0.5, index=INDEX)
    assert len(sizes) - 1 <= 50
    assert sizes[1:] == sorted(sizes[1:], reverse=True)
    assert bool(_sees_all(network(mixed.x), torch.stack([y, y[INDEX]], dim=1)).all())
    quick = automix.supermix(x, y, model=network, lam=0.5, index=INDEX, fast=True)
    assert not torch.equal(quick.mask, mixed.mask)


def test_lam_is_drawn_for_each_sample() -> None:
    x = torch.zeros(5, 1, 1, 1)
    own = draw_weights(x, 3.0, 2, per_sample=True, generator=step_generator(0, 0))
    targets: list[Tensor] = []

    def model(images: Tensor) -> Tensor:
        return images.mean(dim=(1, 2, 3)).unsqueeze(1).expand(-1, 3)

    def record(*args: Any, **kwargs: Any) -> Tensor:
        targets.append(args[2])
        return find_masks(*args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(supermix_module, "find_masks", record)
        for fast in (False, True):
            options: dict[str, Any] = {"generator": step_generator(0, 0), "steps": 1, "fast": fast}
            automix.supermix(x, torch.zeros(5).long(), model=model, **options)
    torch.testing.assert_close(targets[0], own)
    assert len(targets[1].unique(dim=0)) == 1


def test_lam_pulls_and_sparsity_makes_masks_choose() -> None:
    x, y = colored()

    def mixed(lam: float, sparsity: float) -> Tensor:
        return automix.supermix(x, y, model=Detector(), index=INDEX, lam=lam, sparsity=sparsity, fast=True).mask

    low, middle, high = (float(mixed(lam, sparsity=1.0).mean()) for lam in (0.1, 0.5, 0.9))
    assert low + 0.01 < middle < high - 0.01
    assert middle == pytest.approx(0.5, abs=0.05)
    gray, sharp = ((mask * (1 - mask)).mean() for mask in (mixed(0.5, sparsity=0.0), mixed(0.5, sparsity=25.0)))
    assert sharp < 0.7 * gray


def test_who_is_seen() -> None:
    logits = torch.tensor([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0], [1.0, 3.0, 2.0]])
    assert _sees_all(logits, torch.tensor([[0, 1], [0, 1], [1, 1]])).tolist() == [True, False, True]


def test_the_blur_is_a_gaussian() -> None:
    blur = _blur(21, 2.0, torch.device("cpu"))
    assert torch.equal(blur, blur.T)
    assert float(blur[10].sum()) == pytest.approx(1, abs=1e-5)
    assert float(blur[10, 12] / blur[10, 10]) == pytest.approx(2.718281828**-0.5)
    assert torch.equal(_blur(4, 0.0, torch.device("cpu")), torch.eye(4).double())


@pytest.mark.parametrize("size", [(1, 1), (3, 7), (13, 22), (40, 33)])
@pytest.mark.parametrize("k", [2, 3])
def test_any_size(size: tuple[int, int], k: int) -> None:
    x, y = batch(4, *size)
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 5))
    mixed = automix.supermix(x, y, model=model, k=k, lam=torch.tensor([1.0, 0.5, 0.0, 0.3]))
    assert bool(mixed.x.isfinite().all())
    assert torch.equal(mixed.x[0], x[0])
    torch.testing.assert_close(mixed.target.soft(5).sum(dim=1), torch.ones(4))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"model": None}, "model is missing"),
        ({"k": 1}, "^k must be .*>= 2"),
        ({"steps": 0}, "steps.*>= 1"),
        ({"sigma": -1.0}, "sigma.*>= 0"),
        ({"sparsity": -1.0}, "sparsity.*>= 0"),
    ],
)
def test_wrong_input_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        automix.supermix(*batch(), **{"model": HandWritten(), **wrong})


def test_the_network_is_left_alone() -> None:
    x, y = batch()
    task = automix.create_task("supermix", HandWritten(), ema=True).train()
    kept = {name: value.clone() for name, value in task.state_dict().items()}
    mixed = task.mix(x, y)
    assert not mixed.x.requires_grad
    assert all(torch.equal(value, kept[name]) for name, value in task.state_dict().items())
    assert all(parameter.grad is None for parameter in task.parameters())
    assert task.student.training
    by_teacher = automix.supermix(x, y, model=task.classifier, generator=step_generator(0, 0))
    assert torch.equal(mixed.x, by_teacher.x)


def test_the_transform_takes_the_network() -> None:
    x, y = batch()
    model = HandWritten().eval()
    mixed, soft = automix.SuperMix(model=model, num_classes=5, generator=step_generator(0, 0))(x, y)
    same = automix.supermix(x, y, model=model, generator=step_generator(0, 0))
    assert torch.equal(mixed, same.x)
    assert torch.equal(soft, same.target.soft(5))


def test_three_images_of_more_images_than_classes() -> None:
    """Task.mix numbers images by position, beyond the classes."""
    x, y = batch(8, num_classes=3)
    task = automix.create_task("supermix", HandWritten(3), k=3)
    assert task.mix(x).target.soft().shape == (8, 8)
    assert task.mix(x, y).target.soft().shape == (8, 3)
    with torch.no_grad():
        assert task(x, y).loss.isfinite()
