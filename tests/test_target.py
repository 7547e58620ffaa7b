"""MixedTarget: the mixed label and its losses, against torch, timm and numbers worked out by hand."""

import math
from functools import partial

import pytest
import timm.data.mixup
import timm.loss
import torch
import torch.nn.functional as F

import automix
from automix import MixedTarget
from automix.core import balanced_weights

LOGITS = torch.tensor([[0.0, math.log(3.0)], [math.log(4.0), 0.0]])  # probabilities (1/4, 3/4) and (4/5, 1/5)
Y_A, Y_B = torch.tensor([0, 1]), torch.tensor([1, 0])


def test_one_lam_by_hand() -> None:
    loss = MixedTarget(Y_A, Y_B, torch.tensor(0.25)).cross_entropy(LOGITS)
    first = 0.25 * math.log(4) + 0.75 * math.log(4 / 3)
    second = 0.25 * math.log(5) + 0.75 * math.log(5 / 4)
    assert loss.item() == pytest.approx((first + second) / 2, abs=1e-6)


def test_each_sample_is_weighted_by_its_own_lam_before_the_mean() -> None:
    loss = MixedTarget(Y_A, Y_B, torch.tensor([1.0, 0.0])).cross_entropy(LOGITS)
    right = (math.log(4) + math.log(5 / 4)) / 2
    averaged_lam_first = (math.log(4) + math.log(4 / 3) + math.log(5) + math.log(5 / 4)) / 4
    assert loss.item() == pytest.approx(right, abs=1e-6)
    assert abs(right - averaged_lam_first) > 0.05


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("lam", [torch.tensor(0.3), torch.tensor([0.3, 0.9, 0.0, 1.0])])
def test_indices_and_rows_agree_with_torch(lam: torch.Tensor, smoothing: float) -> None:
    logits = torch.randn(4, 6)
    y_a, y_b = torch.randint(6, (4,)), torch.randint(6, (4,))
    target = MixedTarget(y_a, y_b, lam)
    expected = F.cross_entropy(logits, target.soft(6), label_smoothing=smoothing)  # torch on the mixed rows
    rows = MixedTarget(F.one_hot(y_a, 6).float(), F.one_hot(y_b, 6).float(), lam)
    torch.testing.assert_close(target.cross_entropy(logits, label_smoothing=smoothing), expected)
    torch.testing.assert_close(rows.cross_entropy(logits, label_smoothing=smoothing), expected)


WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 4.0])


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_class_weights_are_torchs_on_clean_labels(smoothing: float) -> None:
    logits, y = torch.randn(5, 4), torch.tensor([3, 0, 2, 1, 3])
    expected = F.cross_entropy(logits, y, WEIGHTS, label_smoothing=smoothing)
    lam = torch.tensor([0.1, 0.2, 0.3, 0.4, 1.0])
    rows = F.one_hot(y, 4).float()
    for target in (MixedTarget.clean(y), MixedTarget(y, y.clone(), lam), MixedTarget(rows, rows.clone(), lam)):
        torch.testing.assert_close(target.cross_entropy(logits, smoothing, WEIGHTS), expected)
    torch.testing.assert_close(automix.CrossEntropy(smoothing, (0.5, 2.0, 1.0, 4.0))(logits, target), expected)


def test_class_weights_of_mixed_labels_by_hand() -> None:
    loss = MixedTarget(Y_A, Y_B, torch.tensor([0.25, 1.0])).cross_entropy(
        LOGITS, class_weights=torch.tensor([3.0, 1.0])
    )
    first = 0.25 * 3 * math.log(4) + 0.75 * 1 * math.log(4 / 3)
    second = 1 * math.log(5)
    assert loss.item() == pytest.approx((first + second) / (0.25 * 3 + 0.75 + 1), abs=1e-6)


def test_equal_class_weights_change_nothing() -> None:
    logits, target = torch.randn(5, 4), MixedTarget(torch.tensor([3, 0, 2, 1, 3]), torch.arange(5) % 4, torch.rand(5))
    for smoothing in (0.0, 0.1):
        weighted = target.cross_entropy(logits, smoothing, torch.full((4,), 2.0))
        torch.testing.assert_close(weighted, target.cross_entropy(logits, smoothing))


def test_balanced_weights_make_classes_count_the_same() -> None:
    counts = (6, 3, 0, 1)
    weights = balanced_weights(counts)
    assert weights == pytest.approx((10 / 18, 10 / 9, 1.0, 10 / 3))
    assert sum(count * weight for count, weight in zip(counts, weights, strict=True)) == pytest.approx(10)
    assert balanced_weights((5, 5)) == (1.0, 1.0)


def test_soft_labels_are_timms() -> None:
    y = torch.tensor([3, 0, 2, 1, 3])
    ours = MixedTarget(y, y.flip(0), torch.tensor(0.7)).soft(4, label_smoothing=0.1)
    torch.testing.assert_close(ours, timm.data.mixup.mixup_target(y, 4, lam=0.7, smoothing=0.1))


@pytest.mark.parametrize("threshold", [None, 0.2])
def test_bce_is_timms(threshold: float | None) -> None:
    logits, y = torch.randn(5, 4), torch.tensor([3, 0, 2, 1, 3])
    target = MixedTarget(y, y.flip(0), torch.tensor([0.9, 0.6, 0.5, 0.15, 0.0]))
    oracle = timm.loss.BinaryCrossEntropy(target_threshold=threshold)
    torch.testing.assert_close(target.bce(logits, threshold=threshold), oracle(logits, target.soft(4)))


def test_threshold_makes_both_images_fully_present() -> None:
    target = MixedTarget(Y_A, Y_B, torch.tensor([0.7, 0.9]))
    by_hand = F.binary_cross_entropy_with_logits(LOGITS, torch.tensor([[1.0, 1.0], [0.0, 1.0]]))
    torch.testing.assert_close(target.bce(LOGITS, threshold=0.2), by_hand)


def test_the_loss_follows_the_type_of_the_labels() -> None:
    logits, lam = torch.randn(3, 4), torch.tensor(0.4)
    indices = MixedTarget(torch.tensor([0, 1, 2]), torch.tensor([2, 0, 1]), lam)
    multi = torch.tensor([[1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 1, 1]])
    labels = MixedTarget(multi, multi.roll(1, 0), lam)
    torch.testing.assert_close(indices.loss(logits), indices.cross_entropy(logits))
    torch.testing.assert_close(labels.loss(logits), labels.bce(logits))
    assert not torch.allclose(labels.bce(logits), labels.cross_entropy(logits))
    torch.testing.assert_close(labels.soft(), 0.4 * multi.float() + 0.6 * multi.roll(1, 0).float())


def test_clean_target_is_the_plain_loss() -> None:
    logits, y = torch.randn(4, 3), torch.randint(3, (4,))
    torch.testing.assert_close(MixedTarget.clean(y).loss(logits), F.cross_entropy(logits, y))
    assert torch.equal(MixedTarget.clean(y).soft(3), F.one_hot(y, 3).float())


def test_low_precision_logits_are_scored_in_float32_and_float64_stays() -> None:
    target = MixedTarget(Y_A, Y_B, torch.tensor(0.5))
    assert target.cross_entropy(LOGITS.bfloat16()).dtype == torch.float32
    assert target.bce(LOGITS.half()).dtype == torch.float32
    assert target.cross_entropy(LOGITS.double()).dtype == torch.float64


TARGET = MixedTarget(Y_A, Y_B, torch.tensor(0.5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (TARGET.soft, "num_classes is missing"),
        (partial(TARGET.soft, 1), "num_classes=1, got 1"),
        (partial(TARGET.cross_entropy, torch.zeros(2, 1)), "num_classes=1, got 1"),
        (partial(MixedTarget.clean(torch.tensor([-1, 0])).loss, LOGITS), "class indices .*got -1"),
        (partial(MixedTarget.clean(torch.ones(2, 3)).loss, LOGITS), "num_classes=2 columns, got 3"),
        (partial(TARGET.cross_entropy, LOGITS, class_weights=torch.ones(3)), r"class_weights .*\(2,\), got \(3,\)"),
        (partial(TARGET.soft, 2, label_smoothing=1.5), r"label_smoothing.*\[0, 1\)"),
        (partial(TARGET.bce, LOGITS, threshold=1.0), r"threshold.*\[0, 1\)"),
    ],
)
def test_wrong_input_is_refused_in_one_line(call: "partial[torch.Tensor]", message: str) -> None:
    with pytest.raises(ValueError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


def test_accuracy_on_mixed_samples_by_hand() -> None:
    logits = torch.eye(4)[[0, 1, 2, 3]]  # the answers are 0, 1, 2, 3
    y_a, y_b = torch.tensor([0, 0, 2, 1]), torch.tensor([1, 1, 2, 0])
    lam = torch.tensor([0.7, 0.7, 0.9, 0.5])
    # earned: y_a 0.7, y_b 0.3, both 1, none 0
    assert MixedTarget(y_a, y_b, lam).accuracy(logits).item() == pytest.approx((0.7 + 0.3 + 1 + 0) / 4)
    rows = torch.eye(4)
    assert MixedTarget(rows[y_a], rows[y_b], lam).accuracy(logits).item() == pytest.approx(0.5)


def test_float_rows_that_are_no_soft_labels_are_refused() -> None:
    """PyTorch's usual multi-label form is float multi-hot rows; cross-entropy would silently be the wrong loss."""
    x, rows = torch.zeros(2, 3, 4, 4), torch.tensor([[1.0, 0, 1], [0, 1, 0]])
    with pytest.raises(automix.AutomixError, match=r"rows of y must sum to 1 .*bool or integers"):
        automix.mixup(x, rows)
    assert automix.mixup(x, rows.bool()).target.loss(torch.zeros(2, 3)).item() == pytest.approx(0.6931, abs=1e-4)
    automix.mixup(x, torch.tensor([[0.9, 0.05, 0.05], [0, 1, 0]]))
    with pytest.raises(automix.AutomixError, match="rows of y must have 2 columns or more"):
        automix.mixup(x, torch.tensor([[0.3], [0.4]]))  # a regression target
