"""AugMix: the divergence against scipy and the original's formula, the mixture against a loop, the task's loss."""

from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch
from torch import Tensor, nn

import automix
from automix.core.draws import step_generator
from automix.data import draw_shapes
from automix.methods._shared.pixels import AUTOCONTRAST, NOTHING, TRANSLATE_X, Operations, augment
from automix.methods.augmix import AugMixTask, _draw_chains, _draw_weights, augmix, js_divergence

PLAIN: dict[str, Any] = {"mean": (0.0,) * 3, "std": (1.0,) * 3}  # x is pixels already


def pixel_batch(count: int = 6, size: int = 32) -> tuple[Tensor, Tensor]:
    drawn = draw_shapes(count, size)
    return drawn.images / 255, drawn.labels


# --- the divergence --------------------------------------------------------------------------------------------------


def test_divergence_is_the_entropy_of_the_mean_less_the_mean_entropy() -> None:
    logits = 3 * torch.randn(3, 8, 5, dtype=torch.float64)
    p = logits.softmax(dim=2).numpy()
    wanted = scipy.stats.entropy(p.mean(axis=0), axis=1) - scipy.stats.entropy(p, axis=2).mean(axis=0)
    np.testing.assert_allclose(js_divergence(list(logits)), wanted.mean(), rtol=1e-12)
    # several labels: each class is a yes-or-no answer
    p = logits.sigmoid().numpy()
    p = np.stack([p, 1 - p])
    wanted = scipy.stats.entropy(p.mean(axis=1), axis=0) - scipy.stats.entropy(p, axis=0).mean(axis=0)
    np.testing.assert_allclose(js_divergence(list(logits), multi_label=True), wanted.mean(), rtol=1e-12)


def test_divergence_is_the_originals() -> None:
    """The formula of the authors' code, with its clamp."""
    clean, first, second = 2 * torch.randn(3, 8, 5)
    p = [logits.softmax(dim=1) for logits in (clean, first, second)]
    mixture = (sum(p) / 3).clamp(1e-7, 1).log()
    wanted = sum(F.kl_div(mixture, each, reduction="batchmean") for each in p) / 3
    torch.testing.assert_close(js_divergence([clean, first, second]), wanted)


def test_divergence_at_its_ends() -> None:
    logits = torch.randn(4, 5)
    assert js_divergence([logits] * 3).abs() < 1e-6
    certain = [(1000 * torch.eye(3))[n : n + 1].requires_grad_() for n in range(3)]  # three answers, each quite sure
    divergence = js_divergence(certain)
    torch.testing.assert_close(divergence, torch.tensor(3.0).log())
    divergence.backward()
    assert all(bool(each.grad.isfinite().all()) for each in certain if each.grad is not None)


# --- the view --------------------------------------------------------------------------------------------------------


def test_a_mixture_by_hand() -> None:
    """Two chains on a picture of two values: one stretches the contrast, one moves it out by a third."""
    x = torch.tensor([0.2, 0.2, 0.2, 0.6, 0.6, 0.6]).expand(1, 3, 6, 6)
    chains = Operations(torch.tensor([[[AUTOCONTRAST, NOTHING], [NOTHING, TRANSLATE_X]]]), torch.full((1, 2, 2), 9.99))
    weights = torch.tensor([[0.25, 0.75]])
    mixed = augmix(x, torch.tensor([1]), width=2, lam=0.5, weights=weights, chains=chains, **PLAIN)
    stretched, moved = torch.tensor([0.0, 0, 0, 1, 1, 1]), torch.tensor([0.2, 0.2, 0.6, 0.6, 0.6, 0.0])
    wanted = 0.5 * x[0, 0, 0] + 0.5 * (0.25 * stretched + 0.75 * moved)
    torch.testing.assert_close(mixed.x, wanted.expand_as(x))
    assert mixed.target.y_a.tolist() == [1]
    assert torch.equal(mixed.target.soft(2), torch.tensor([[0.0, 1.0]]))
    assert torch.equal(mixed.mask, torch.ones(1, 1, 6, 6))


def one_by_one(x: Tensor, lam: Tensor, weights: Tensor, chains: Operations) -> Tensor:
    """The original's loop, an image, a chain and an operation at a time."""
    out = []
    for n in range(len(x)):
        image = x[n : n + 1]
        mixture = torch.zeros_like(image)
        for chain in range(weights.shape[1]):
            copy = image
            for number in range(chains.kind.shape[2]):
                copy = augment(copy, chains[n : n + 1, chain, number])
            mixture += weights[n, chain] * copy
        out.append(lam[n] * image + (1 - lam[n]) * mixture)
    return torch.cat(out)


@pytest.mark.parametrize("width", [1, 3])
def test_the_batch_is_what_a_loop_over_images_gives(width: int) -> None:
    x, y = pixel_batch(12)
    generator = step_generator(0, 1)
    lam, weights = torch.rand(12), _draw_weights(12, width, 1.0, generator)
    chains = _draw_chains(12, width, None, 3.0, generator)
    ours = augmix(x, y, width=width, lam=lam, weights=weights, chains=chains, **PLAIN)
    wanted = one_by_one(x, lam, weights, chains)
    assert (ours.x - wanted).abs().mean() < 1e-4  # rounding may move a pixel over a threshold
    assert (ours.x - x).abs().mean() > 0.01


def test_lam_is_the_share_of_the_image() -> None:
    x, y = batch()
    lam = torch.tensor([1.0, 0.75, 0.5, 0.25, 0.0, 1.0])
    some, none = (augmix(x, y, lam=share, generator=step_generator(0, 0)).x for share in (lam, 0.0))
    assert torch.equal(some[lam == 1], x[lam == 1])
    torch.testing.assert_close(some, lam.view(-1, 1, 1, 1) * x + (1 - lam.view(-1, 1, 1, 1)) * none)


def test_normalized_images_are_mixed_as_their_pixels() -> None:
    values, y = pixel_batch()
    mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.3])
    x = (values - mean.view(3, 1, 1)) / std.view(3, 1, 1)
    wanted = augmix(values, y, generator=step_generator(0, 1), **PLAIN).x
    exact: dict[str, Any] = {"mean": mean.tolist(), "std": std.tolist()}
    for how, bound in ((exact, 1e-3), ({}, 0.02)):
        mixed = augmix(x, y, generator=step_generator(0, 1), **how).x
        assert (mixed * std.view(3, 1, 1) + mean.view(3, 1, 1) - wanted).abs().mean() < bound


def test_draws_follow_their_laws() -> None:
    weights = _draw_weights(4000, 3, 2.0, step_generator(0, 0))
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(4000))
    for column in weights.T:  # one of three of Dirichlet(a, a, a) is Beta(a, 2 a)
        assert scipy.stats.kstest(column.numpy(), scipy.stats.beta(2, 4).cdf).pvalue > 1e-3
    chains = _draw_chains(2000, 3, None, 3.0, step_generator(0, 0))
    length = (chains.kind != NOTHING).sum(dim=2)
    assert ((chains.kind != NOTHING).cumprod(dim=2).sum(dim=2) == length).all()  # nothing comes after NOTHING
    counts = length.flatten().bincount()
    assert counts[0] == 0
    assert (counts[1:] - 2000).abs().max() < 150
    fixed = _draw_chains(50, 2, 5, 3.0, step_generator(0, 0))
    assert fixed.kind.shape == (50, 2, 5)
    assert (fixed.kind != NOTHING).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "width.*>= 1"),
        ({"depth": 0}, "depth.*>= 1"),
        ({"severity": 20.0}, r"severity.*in \["),
        ({"std": [0.5] * 3}, "mean and std must"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        augmix(*batch(), **options)
    with pytest.raises(ValueError, match=message):
        automix.AugMix(num_classes=5, **options)(*batch())


def test_the_transform_is_the_function() -> None:
    x, y = pixel_batch()
    how: dict[str, Any] = {"width": 2, "depth": 1, "severity": 1.0, **PLAIN}
    mixed, soft = automix.AugMix(alpha=0.5, num_classes=12, label_smoothing=0.1, generator=step_generator(0, 0), **how)(
        x, y
    )
    same = augmix(x, y, 0.5, generator=step_generator(0, 0), **how)
    assert torch.equal(mixed, same.x)
    assert torch.equal(soft, same.target.soft(12, label_smoothing=0.1))


# --- the task --------------------------------------------------------------------------------------------------------


class Recording(nn.Module):
    """Remembers what it was shown; answers each image alone."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 5)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen.append(x)
        return self.head(x.mean(dim=(2, 3)))


def test_the_loss_is_cross_entropy_of_the_clean_and_twelve_divergences() -> None:
    x, y = batch()
    model = Recording()
    task = automix.create_task("augmix", model)
    out = task(x, y)
    (shown,) = model.seen  # one forward pass
    clean, first, second = shown.chunk(3)
    assert torch.equal(clean, x)
    generator = step_generator(0, 0)
    for view in (first, second):
        assert torch.equal(view, augmix(x, y, generator=generator).x)
    assert not torch.equal(first, second)
    answers = [model(view) for view in (clean, first, second)]
    ce, js = F.cross_entropy(answers[0], y), js_divergence(answers)
    assert js > 0
    torch.testing.assert_close(out.loss, ce + 12 * js)
    torch.testing.assert_close(out.metrics["loss_clean"], ce.detach())
    torch.testing.assert_close(out.metrics["loss_consistency"], 12 * js.detach())
    torch.testing.assert_close(out.logits, answers[1].detach())


def test_options_reach_the_view_and_the_loss() -> None:
    x, y = batch()
    plain = AugMixTask(Recording(), js_weight=0.0)
    torch.testing.assert_close(plain(x, y).loss, F.cross_entropy(plain.student(x), y))
    task = automix.create_task("augmix", Recording(), width=1, depth=2, seed=4)
    wanted = augmix(x, y, width=1, depth=2, generator=step_generator(4, 0))
    assert torch.equal(task.mix(x, y).x, wanted.x)
    with pytest.raises(ValueError, match=r"js_weight.*>= 0"):
        automix.create_task("augmix", HandWritten(), js_weight=-1)
    with pytest.raises(ValueError, match="augmix has no option 'widht'"):
        automix.create_task("augmix", HandWritten(), widht=2)


def test_several_labels_at_once() -> None:
    x, _ = batch()
    rows = torch.randint(2, (6, 5))
    model = Recording()
    out = AugMixTask(model)(x, rows)
    answers = model(model.seen[0]).chunk(3)
    wanted = F.binary_cross_entropy_with_logits(answers[0], rows.float()) + 12 * js_divergence(
        answers, multi_label=True
    )
    torch.testing.assert_close(out.loss, wanted)


def test_it_learns_to_answer_alike() -> None:
    """Over three seeds the divergence ends at less than half of that without it (a single run varies: 0.1 to 0.6)."""
    x, y = pixel_batch(24, 16)
    y = y % 3

    def divergence(js_weight: float, seed: int) -> float:
        torch.manual_seed(seed)
        task = AugMixTask(HandWritten(3), js_weight=js_weight, seed=seed, **PLAIN)
        optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9)
        for step in range(40):
            optimizer.zero_grad()
            task(x, y).loss.backward()
            optimizer.step()
            task.update(step / 40)
        with torch.no_grad():
            views = [augmix(x, y, generator=step_generator(9, n), **PLAIN).x for n in range(2)]
            return float(js_divergence(task.student(torch.cat([x, *views])).chunk(3)))

    with_it, without = (sum(divergence(weight, seed) for seed in range(3)) for weight in (12.0, 0.0))
    assert with_it < 0.5 * without
