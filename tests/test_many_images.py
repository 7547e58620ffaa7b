"""Mixtures of more than two images: draws, blend, targets and losses, by hand and against torch and scipy."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import scipy.stats
import torch
import torch.nn.functional as F
from conftest import batch
from torch import Tensor

import automix
from automix import Mixed, MixedTarget
from automix.core.blend import blend_many, chain_members
from automix.core.draws import draw_weights, step_generator
from automix.core.target import join_mixed

HALF_QUARTERS = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]]))  # logits with these probabilities
LABELS = [torch.tensor([0, 1]), torch.tensor([1, 1]), torch.tensor([2, 0])]
WEIGHTS = torch.tensor([[0.5, 0.3, 0.2], [0.6, 0.1, 0.3]])


def three(labels: list[Tensor] = LABELS, weights: Tensor = WEIGHTS) -> MixedTarget:
    return MixedTarget.of(labels, weights)


# --- the target ------------------------------------------------------------------------------------------------------


def test_the_loss_of_three_images_by_hand() -> None:
    first = 0.5 * math.log(2) + 0.3 * math.log(4) + 0.2 * math.log(4)
    second = 0.6 * math.log(2) + 0.1 * math.log(2) + 0.3 * math.log(4)
    assert three().loss(HALF_QUARTERS).item() == pytest.approx((first + second) / 2, abs=1e-6)
    same = three(weights=torch.tensor([0.5, 0.3, 0.2])).loss(HALF_QUARTERS)  # one set of weights for the batch
    assert same.item() == pytest.approx((first + 0.8 * math.log(2) + 0.2 * math.log(4)) / 2, abs=1e-6)


def test_class_weights_of_three_images_by_hand() -> None:
    loss = three().cross_entropy(HALF_QUARTERS, class_weights=torch.tensor([3.0, 1.0, 2.0]))
    losses = 0.5 * 3 * math.log(2) + 0.3 * math.log(4) + 0.2 * 2 * math.log(4)
    losses += 0.6 * math.log(2) + 0.1 * math.log(2) + 0.3 * 3 * math.log(4)
    total = 0.5 * 3 + 0.3 + 0.2 * 2 + 0.6 + 0.1 + 0.3 * 3
    assert loss.item() == pytest.approx(losses / total, abs=1e-6)


def test_rows_and_accuracy_of_three_images_by_hand() -> None:
    torch.testing.assert_close(three().soft(3), torch.tensor([[0.5, 0.3, 0.2], [0.3, 0.7, 0.0]]))
    assert three().accuracy(HALF_QUARTERS).item() == pytest.approx((0.5 + 0.7) / 2)
    torch.testing.assert_close(three().weights, WEIGHTS)
    assert all(torch.equal(ours, given) for ours, given in zip(three().labels, LABELS, strict=True))


def test_the_decoupled_loss_of_three_images_by_hand() -> None:
    logits = torch.log(torch.tensor([[4.0, 2.0, 1.0, 3.0]]))
    target = MixedTarget.of([torch.tensor([label]) for label in (0, 1, 2)], torch.tensor([0.2, 0.3, 0.5]))
    by_hand = math.log(7 / 4) + math.log(5 / 2) + math.log(4 / 1)  # class 3 alone is not in the mixture
    assert automix.core.decoupled_loss(logits, target).item() == pytest.approx(by_hand, abs=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_indices_and_rows_agree_with_torch(count: int, smoothing: float) -> None:
    logits = torch.randn(6, 5)
    labels = [torch.randint(5, (6,)) for _ in range(count)]
    weights = torch.softmax(torch.randn(6, count), dim=1)
    mixed = sum(weights[:, k, None] * F.one_hot(y, 5) for k, y in enumerate(labels))
    expected = F.cross_entropy(logits, torch.as_tensor(mixed), label_smoothing=smoothing)
    rows = [F.one_hot(y, 5).float() for y in labels]
    for target in (MixedTarget.of(labels, weights), MixedTarget.of(rows, weights)):
        torch.testing.assert_close(target.cross_entropy(logits, smoothing), expected)
        torch.testing.assert_close(target.soft(5), torch.as_tensor(mixed))
        credit = torch.as_tensor(mixed).gather(1, logits.argmax(dim=1, keepdim=True)).mean()
        torch.testing.assert_close(target.accuracy(logits), credit)


def test_multi_label_rows_have_the_binary_loss() -> None:
    logits = torch.randn(2, 3)
    labels = [torch.randint(2, (2, 3)) for _ in range(3)]
    mixed = torch.stack([WEIGHTS[:, k, None] * y for k, y in enumerate(labels)]).sum(dim=0)
    torch.testing.assert_close(three(labels).loss(logits), F.binary_cross_entropy_with_logits(logits, mixed))


def test_the_pair_is_the_pair_to_the_bit() -> None:
    logits, lam = torch.randn(6, 5), torch.rand(6)
    y_a, y_b = torch.randint(5, (6,)), torch.randint(5, (6,))
    pair, built = MixedTarget(y_a, y_b, lam), MixedTarget.of([y_a, y_b], torch.stack([lam, 1 - lam], dim=1))
    assert built.more == ()
    losses = [F.cross_entropy(logits, y, reduction="none") for y in (y_a, y_b)]
    by_formula = (lam * losses[0] + (1 - lam) * losses[1]).mean()
    rows = lam[:, None] * F.one_hot(y_a, 5).float() + (1 - lam[:, None]) * F.one_hot(y_b, 5).float()
    guess = logits.argmax(dim=1)
    accuracy = (lam * (y_a == guess).float() + (1 - lam) * (y_b == guess).float()).mean()
    for target in (pair, built):
        assert torch.equal(target.cross_entropy(logits), by_formula)
        assert torch.equal(target.soft(5), rows)
        assert torch.equal(target.accuracy(logits), accuracy)


def test_a_weight_of_zero_counts_nothing() -> None:
    lam = torch.tensor([0.7, 0.4])
    weights = torch.stack([lam, torch.zeros(2), 1 - lam], dim=1)  # 1 - 0.7 - 0.3 is not 0 in float32
    assert bool((three(weights=weights).soft(3) >= 0).all())
    pair = MixedTarget(LABELS[0], LABELS[2], lam)
    torch.testing.assert_close(three(weights=weights).loss(HALF_QUARTERS), pair.loss(HALF_QUARTERS))


def test_narrow_class_indices() -> None:
    narrow = [y.to(torch.uint8) for y in LABELS]
    assert torch.equal(three(narrow).loss(HALF_QUARTERS), three().loss(HALF_QUARTERS))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MixedTarget.of([LABELS[0]], torch.ones(1)), "labels must be of two images or more, got 1"),
        (lambda: three(weights=torch.ones(2, 2) / 2), r"weights must have shape \(3,\) or \(2, 3\), got \(2, 2\)"),
        (lambda: three(weights=torch.tensor([0.5, 0.5, 0.5])), "weights must sum to 1, got 1.5"),
        (lambda: three(weights=torch.tensor([0.8, 0.5, -0.3])), r"weights must be in \[0, 1\], got -0.3"),
    ],
)
def test_wrong_weights_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(automix.AutomixError, match=f"^{message}$"):
        call()


@pytest.mark.parametrize("labels", ["indices", "rows"])
def test_joined_batches_keep_their_labels_and_weights(labels: str) -> None:
    x, y = batch(4)
    y = F.one_hot(y, 5).float() if labels == "rows" else y
    mixtures = [
        automix.mixup(x, y, images=3, generator=step_generator(0, 0)),
        automix.mixup(x, y, per_sample=True, generator=step_generator(0, 1)),
        Mixed.clean(x, y),
    ]
    for first in mixtures:
        for second in mixtures:
            joined = join_mixed(first, second)
            rows = torch.cat([first.target.soft(5), second.target.soft(5)])
            torch.testing.assert_close(joined.target.soft(5), rows)
            logits = torch.randn(8, 5)
            torch.testing.assert_close(joined.target.loss(logits), F.cross_entropy(logits, rows))


# --- draws, blend and Mixup ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("alpha", "count"), [(1.0, 3), (2.0, 4), (0.5, 3)])
def test_weights_follow_the_dirichlet_law(alpha: float, count: int) -> None:
    x = torch.empty(20_000, 1, 1, 1, dtype=torch.float64)
    weights = draw_weights(x, alpha, count, per_sample=True, generator=step_generator(0, 0))
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(20_000, dtype=torch.float64))
    law = scipy.stats.beta(alpha, (count - 1) * alpha).cdf  # the marginal of each weight
    assert all(scipy.stats.kstest(weight.numpy(), law).pvalue > 0.01 for weight in weights.T)
    assert scipy.stats.kstest(weights[:, 0].numpy(), scipy.stats.beta(alpha, alpha).cdf).pvalue < 1e-6


def test_a_given_lam_is_the_weight_of_the_first_image() -> None:
    x = torch.zeros(5, 1, 1, 1)
    one = draw_weights(x, 3.0, 3, lam=0.4, generator=step_generator(0, 0))
    assert one.shape == (3,)
    assert one[0].item() == pytest.approx(0.4)
    assert one.sum().item() == pytest.approx(1)
    lam = torch.tensor([0.0, 0.2, 0.5, 0.9, 1.0])
    each = draw_weights(x, 3.0, 3, lam=lam, per_sample=True, generator=step_generator(0, 0))
    torch.testing.assert_close(each[:, 0], lam)
    torch.testing.assert_close(each.sum(dim=1), torch.ones(5))
    assert draw_weights(x, 3.0, 2, lam=0.4).tolist() == pytest.approx([0.4, 0.6])


@pytest.mark.parametrize("per_sample", [False, True])
@pytest.mark.parametrize("count", [3, 4])
def test_mixup_of_many_images_one_by_one(count: int, per_sample: bool) -> None:
    x, y = batch(5, 4, 6)
    index = torch.tensor([2, 0, 3, 4, 1])
    mixed = automix.mixup(x, y, images=count, index=index, per_sample=per_sample, generator=step_generator(0, 0))
    weights = mixed.target.weights.expand(5, count)
    for i in range(5):
        place, image, row = i, torch.zeros(3, 4, 6), torch.zeros(5)
        for k in range(count):
            image += weights[i, k] * x[place]
            row[y[place]] += weights[i, k]
            place = int(index[place])
        torch.testing.assert_close(mixed.x[i], image)
        torch.testing.assert_close(mixed.target.soft(5)[i], row)
    assert mixed.masks is not None
    assert mixed.masks.shape == (5, count, 4, 6)
    torch.testing.assert_close(mixed.masks.mean(dim=(2, 3)), weights)
    torch.testing.assert_close(mixed.masks.sum(dim=1), torch.ones(5, 4, 6))
    assert torch.equal(mixed.masks[:, :1], mixed.mask)
    with pytest.raises(automix.AutomixError, match="this batch has no index"):
        mixed.apply(x)


def test_mixup_of_two_images_is_mixup() -> None:
    x, y = batch()
    plain, two = (
        automix.mixup(x, y, generator=step_generator(0, 0)),
        automix.mixup(x, y, images=2, generator=step_generator(0, 0)),
    )
    assert torch.equal(plain.x, two.x)
    assert torch.equal(plain.target.lam, two.target.lam)
    mask = torch.stack([plain.target.lam, 1 - plain.target.lam]).reshape(1, 2, 1, 1)
    assert plain.index is not None
    torch.testing.assert_close(blend_many(x, chain_members(plain.index, 2), mask), plain.x)


def test_lam_one_gives_the_first_image_back_in_its_format() -> None:
    x, y = batch()
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        given = x.to(dtype).contiguous(memory_format=torch.channels_last)
        mixed = automix.mixup(given, y, images=3, lam=1.0)
        assert torch.equal(mixed.x, given)
        assert mixed.x.dtype == dtype
        assert mixed.x.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"images": 1}, "images must be .*>= 2"),
        ({"images": 2.5}, "images must be"),
        ({"images": 3, "objects": torch.ones(6, 16, 16)}, "objects must be None with images=3"),
    ],
)
def test_wrong_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(automix.AutomixError, match=f"^{message}"):
        automix.mixup(*batch(), **options)


def test_the_transform_takes_images() -> None:
    x, y = batch()
    mixed, soft = automix.Mixup(images=3, num_classes=5, generator=step_generator(0, 0))(x, y)
    plain = automix.mixup(x, y, images=3, generator=step_generator(0, 0))
    assert torch.equal(mixed, plain.x)
    assert torch.equal(soft, plain.target.soft(5))
