"""Edges of the core: the values at which a check or a draw changes its mind, defaults, types and seeds."""

from collections.abc import Callable
from functools import partial
from typing import Any, cast

import pytest
import torch

from automix import MixedTarget
from automix.core import draws
from automix.core.blend import at_least_float32, blend, blend_maps, chain_members, full_mask, mask_spread, resize_mask
from automix.core.criteria import BinaryCrossEntropy, CrossEntropy, Decoupled, mixed_loss
from automix.core.errors import AutomixError
from automix.core.objects import boxes_to_masks, check_takes_objects, object_masks, visible_lam
from automix.core.target import Mixed, as_int64, is_multi_label, join_mixed
from automix.core.tensor_checks import as_lam, check_batch, check_classes, check_index, check_shape, check_soft_rows
from automix.core.tensor_checks import check_weights as check_weights_of
from automix.core.validation import check_options, check_range, check_smoothing, check_whole, unknown_name

X = torch.zeros(4, 3, 2, 2)


def fresh() -> torch.Generator:
    return torch.Generator().manual_seed(3)


# --- draws ------------------------------------------------------------------------------------------------------------


def test_seeds_are_the_same_in_every_version() -> None:
    """A run that is resumed with a later version draws what it would have drawn."""
    assert draws.step_seed(0, 0) == draws.step_seed(0, 0, 0, "mixing") == 1942324419262700328
    assert draws.step_seed(1, 2, 3, "order") == 71964001990501746
    assert max(draws.step_seed(seed, 0) for seed in range(200)) in range(2**62, 2**63)


def test_given_values_come_back_in_the_type_of_the_images() -> None:
    for dtype, expected in ((torch.float16, torch.float32), (torch.float32,) * 2, (torch.float64,) * 2):
        x = X.to(dtype)
        assert draws.draw_lam(x, 1.0, lam=0.25).dtype == expected
        assert draws.draw_lam(x, 1.0).dtype == expected
        assert draws.draw_dirichlet(x, (3,), 1.0).dtype == expected
    assert draws.draw_lam(X, 1.0).shape == ()
    assert draws.draw_lam(X, 1.0, per_sample=True).shape == (4,)
    with pytest.raises(AutomixError, match=r"^alpha must be > 0, got 0"):
        draws.draw_lam(X, 0.0, lam=0.5)
    with pytest.raises(AutomixError, match=r"^alpha must be > 0, got 0"):
        draws.draw_dirichlet(X, (2,), 0.0)


def test_every_draw_takes_its_numbers_from_the_generator() -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    x = torch.zeros(6, 1, 1, 1)
    calls: list[Callable[[torch.Generator], Any]] = [
        lambda generator: draws.draw_lam(x, 1.0, per_sample=True, generator=generator),
        lambda generator: draws.draw_weights(x, 1.0, 2, per_sample=True, generator=generator),
        lambda generator: draws.draw_weights(x, 1.0, 3, per_sample=True, generator=generator),
        lambda generator: draws.draw_weights(x, 1.0, 3, lam=0.5, generator=generator),
        lambda generator: draws.draw_index(x, generator=generator),
        lambda generator: draws.draw_index(x, y=labels, pairing="other-class", generator=generator),
        lambda generator: draws.draw_cycle(x, generator=generator),
        lambda generator: draws.draw_uniform(x, (3,), generator),
        lambda generator: draws.mix_with_probability(torch.arange(6) / 10, 0.5, generator),
        lambda generator: torch.tensor([draws.draw_decision(0.5, generator) for _ in range(20)]),
        lambda generator: torch.tensor([draws.draw_one([1, 2, 3], generator) for _ in range(20)]),
    ]
    for call in calls:
        state = torch.get_rng_state()
        assert torch.equal(call(fresh()), call(fresh()))
        assert torch.equal(torch.get_rng_state(), state)  # torch's own generator is left alone
        assert not torch.equal(call(fresh()), call(torch.Generator().manual_seed(4)))


def test_a_probability_of_one_draws_nothing_and_one_of_zero_mixes_nothing() -> None:
    lam = torch.tensor([0.2, 0.4])
    generator = fresh()
    assert draws.mix_with_probability(lam, 1.0, generator) is lam
    assert draws.draw_decision(1.0, generator) is True
    assert torch.equal(generator.get_state(), fresh().get_state())
    assert draws.mix_with_probability(lam, 0.0, generator).tolist() == [1.0, 1.0]
    assert draws.draw_decision(0.0, generator) is False
    for prob in (-0.1, 1.1):
        with pytest.raises(AutomixError, match=r"^prob must be in \[0, 1\]"):
            draws.mix_with_probability(lam, prob)


def test_a_share_of_the_batches_is_mixed() -> None:
    generator = fresh()
    kept = draws.mix_with_probability(torch.zeros(4000), 0.3, generator)
    assert float((kept == 0).float().mean()) == pytest.approx(0.3, abs=0.03)
    decided = sum(draws.draw_decision(0.3, generator) for _ in range(2000)) / 2000
    assert decided == pytest.approx(0.3, abs=0.04)
    drawn = torch.tensor([draws.draw_one([0, 1, 2], generator) for _ in range(1500)])
    assert torch.bincount(drawn, minlength=3).tolist() == pytest.approx([500] * 3, abs=80)


def test_weights_of_a_given_lam() -> None:
    two = draws.draw_weights(X, 1.0, 2, lam=torch.tensor([0.1, 0.2, 0.3, 1.0]))
    torch.testing.assert_close(two, torch.tensor([[0.1, 0.9], [0.2, 0.8], [0.3, 0.7], [1.0, 0.0]]))
    assert draws.draw_weights(X, 1.0, 2).shape == (2,)
    assert draws.draw_weights(X, 1.0, 3).shape == (3,)
    assert draws.draw_weights(X, 1.0, 3, per_sample=True).shape == (4, 3)
    for options, shape in (({"lam": 0.25}, (3,)), ({"lam": torch.full((4,), 0.25), "per_sample": True}, (4, 3))):
        three = draws.draw_weights(X, 1.0, 3, **options)
        assert three.shape == shape
        torch.testing.assert_close(three[..., 0], torch.full(shape[:-1], 0.25))
        torch.testing.assert_close(three.sum(-1), torch.ones(shape[:-1]))
        assert bool((three > 0).all())


def test_partners_are_any_unless_another_class_is_asked_for() -> None:
    labels = torch.tensor([0, 0, 1, 1])
    generator = fresh()
    random = torch.stack([draws.draw_index(X, y=labels, generator=generator) for _ in range(50)])
    assert bool((labels[random] == labels).any())
    other = torch.stack([draws.draw_index(X, y=labels, pairing="other-class", generator=generator) for _ in range(50)])
    assert not bool((labels[other] == labels).any())
    rows = torch.eye(2)[labels]
    of_rows = torch.stack([draws.draw_other_class(rows, generator=generator) for _ in range(50)])
    assert not bool((labels[of_rows] == labels).any())
    assert sorted(draws.draw_index(X, pairing="other-class").tolist()) == [0, 1, 2, 3]  # without labels: any
    with pytest.raises(AutomixError, match=r"^pairing must be one of random, other-class; got 'any'"):
        draws.draw_index(X, pairing="any")  # type: ignore[arg-type]
    with pytest.raises(AutomixError, match=r"^pairing must be 'random' for multi-label rows"):
        draws.draw_other_class(rows.bool())
    with pytest.raises(AutomixError, match=r"^index must be in \[0, 3\], got 4"):
        draws.draw_index(X, index=torch.tensor([0, 1, 2, 4]))


@pytest.mark.parametrize("labels", [[0, 0, 1, 1], [0, 0, 1, 2], [0, 1, 2, 3], [0, 0, 0, 1, 1, 2]])
def test_every_permutation_with_other_classes_is_drawn_about_as_often(labels: list[int]) -> None:
    """Against all permutations of the batch."""
    from collections import Counter
    from itertools import permutations

    y = torch.tensor(labels)
    wanted = {p for p in permutations(range(len(y))) if all(labels[i] != labels[j] for i, j in enumerate(p))}
    generator = fresh()
    count = 60 * len(wanted)
    found = Counter(tuple(draws.draw_other_class(y, generator=generator).tolist()) for _ in range(count))
    assert found.keys() == wanted
    assert min(found.values()) > 20
    assert max(found.values()) < 140


@pytest.mark.parametrize("count", [2, 3, 7])
def test_a_cycle_leads_through_the_whole_batch(count: int) -> None:
    index = draws.draw_cycle(torch.zeros(count, 1), generator=fresh())
    place, seen = 0, []
    for _ in range(count):
        place = int(index[place])
        seen.append(place)
    assert sorted(seen) == list(range(count))
    assert place == 0


# --- blending ---------------------------------------------------------------------------------------------------------


def test_integers_take_the_pixel_of_the_larger_share() -> None:
    x = torch.tensor([10, 20], dtype=torch.uint8).reshape(2, 1, 1, 1).expand(2, 1, 1, 3)
    mask = torch.tensor([0.49, 0.5, 0.51]).reshape(1, 1, 1, 3)
    mixed = blend(x, torch.tensor([1, 0]), mask)
    assert mixed.dtype == torch.uint8
    assert mixed.flatten().tolist() == [20, 10, 10, 10, 20, 20]


def test_float64_stays_and_everything_else_becomes_float32() -> None:
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.uint8, torch.bool):
        assert at_least_float32(torch.ones(1, dtype=dtype)).dtype == torch.float32
    assert at_least_float32(torch.ones(1, dtype=torch.float64)).dtype == torch.float64


def test_chains_of_partners() -> None:
    index = torch.tensor([1, 2, 0])
    assert chain_members(index, 2).tolist() == [[0, 1, 2], [1, 2, 0]]
    assert chain_members(index, 4).tolist() == [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]


def test_masks_resized() -> None:
    steps = torch.arange(8.0).reshape(1, 1, 1, 8)
    assert resize_mask(steps, (1, 8)) is steps
    assert resize_mask(steps, (1, 4)).flatten().tolist() == [1, 3, 5, 7]  # at the center of each cell
    smooth = resize_mask(steps, (1, 2), "bilinear").flatten().tolist()
    assert smooth[0] == pytest.approx(2.05, abs=0.3)  # averaged over the cell: between the values at its ends
    assert smooth != resize_mask(steps, (1, 2)).flatten().tolist()
    two = torch.stack([torch.zeros(2, 2), torch.ones(2, 2)]).unsqueeze(0).half()
    averaged = resize_mask(two, (2, 2))
    assert averaged.shape == (1, 1, 2, 2)
    assert averaged.dtype == torch.float32
    assert averaged.unique().tolist() == [0.5]
    with pytest.raises(AutomixError, match=r"^mode must be one of nearest, bilinear; got 'area'"):
        resize_mask(steps, (1, 8), "area")  # type: ignore[arg-type]


def test_maps_with_and_without_channels() -> None:
    maps = torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])
    mask = torch.tensor([1.0, 0.0]).reshape(1, 1, 1, 2).expand(2, 1, 1, 2)
    index = torch.tensor([1, 0])
    assert blend_maps(maps, index, mask).tolist() == [[[1.0, 4.0]], [[3.0, 2.0]]]
    assert blend_maps(maps.unsqueeze(1), index, mask).tolist() == [[[[1.0, 4.0]]], [[[3.0, 2.0]]]]
    tall = maps.reshape(2, 2, 1)
    assert blend_maps(tall, index, mask.reshape(2, 1, 2, 1)).tolist() == [[[1.0], [4.0]], [[3.0], [2.0]]]
    with pytest.raises(
        AutomixError, match=r"^maps must have shape \(2, h, w\) or \(2, channels, h, w\), got \(3, 1, 2\)"
    ):
        blend_maps(torch.zeros(3, 1, 2), index, mask)


def test_full_masks_and_their_spread() -> None:
    mask = full_mask(torch.full((1, 1, 1, 1), 0.3), torch.zeros(2, 3, 4, 5))
    assert mask.shape == (2, 1, 4, 5)
    assert mask_spread(mask).tolist() == pytest.approx([0, 0], abs=1e-6)
    halves = torch.tensor([0.0, 1.0]).reshape(1, 1, 1, 2).expand(3, 1, 2, 2)
    assert mask_spread(halves).tolist() == [0.5] * 3  # of all pixels, not of a sample of them


# --- labels -----------------------------------------------------------------------------------------------------------


def test_narrow_indices_become_int64_and_rows_stay() -> None:
    y = torch.tensor([0, 1], dtype=torch.uint8)
    assert as_int64(y).dtype == torch.int64
    target = MixedTarget(y, y.flip(0), torch.tensor(0.5))
    assert target.y_a.dtype == target.y_b.dtype == torch.int64
    both = MixedTarget(y, y.long(), torch.tensor(0.5)), MixedTarget(y.long(), y, torch.tensor(0.5))
    assert all(target.y_a.dtype == target.y_b.dtype == torch.int64 for target in both)
    clean = MixedTarget.clean(y)
    assert clean.y_b is clean.y_a  # its loss is computed once
    rows = torch.eye(2, dtype=torch.int32)
    assert as_int64(rows) is rows
    assert is_multi_label(rows)
    assert not is_multi_label(rows.float())
    assert not is_multi_label(y)


def test_the_weights_of_a_target_sum_to_one() -> None:
    y = torch.tensor([0, 1])
    assert MixedTarget(y, y, torch.tensor(0.25)).weights.tolist() == [0.25, 0.75]
    of_each = MixedTarget(y, y, torch.tensor([0.25, 1.0])).weights
    assert of_each.tolist() == [[0.25, 0.75], [1.0, 0.0]]
    three = MixedTarget.of([y, y, y], torch.tensor([0.5, 0.2, 0.3]))
    assert three.weights.tolist() == pytest.approx([0.5, 0.2, 0.3])
    assert len(three.more) == 1
    assert MixedTarget.clean(y).lam.item() == 1
    with pytest.raises(AutomixError, match=r"^labels must be of two images or more, got 1"):
        MixedTarget.of([y], torch.ones(1))


def test_a_class_on_the_threshold_is_absent() -> None:
    target = MixedTarget(torch.tensor([0]), torch.tensor([1]), torch.tensor(0.5))
    logits = torch.tensor([[2.0, 2.0, 0.0]])
    soft = torch.nn.functional.binary_cross_entropy_with_logits
    torch.testing.assert_close(target.bce(logits, threshold=0.5), soft(logits, torch.zeros(1, 3)))
    torch.testing.assert_close(target.bce(logits, threshold=0.49), soft(logits, torch.tensor([[1.0, 1.0, 0.0]])))
    torch.testing.assert_close(target.bce(logits, threshold=0.0), soft(logits, torch.tensor([[1.0, 1.0, 0.0]])))
    smooth = torch.tensor([[0.5 * 0.9 + 0.1 / 3, 0.5 * 0.9 + 0.1 / 3, 0.1 / 3]])
    torch.testing.assert_close(target.bce(logits, label_smoothing=0.1), soft(logits, smooth))
    torch.testing.assert_close(BinaryCrossEntropy(label_smoothing=0.1)(logits, target), soft(logits, smooth))
    torch.testing.assert_close(BinaryCrossEntropy(0.5)(logits, target), soft(logits, torch.zeros(1, 3)))
    assert (BinaryCrossEntropy().threshold, BinaryCrossEntropy().label_smoothing) == (None, 0.0)
    assert (CrossEntropy().label_smoothing, CrossEntropy().class_weights, Decoupled().eta) == (0.0, None, 0.1)
    with pytest.raises(AutomixError, match=r"^eta must be >= 0, got -1"):
        Decoupled(eta=-1)
    Decoupled(eta=0)


def test_criteria_of_any_kind() -> None:
    logits, target = torch.randn(2, 3), MixedTarget(torch.tensor([0, 1]), torch.tensor([1, 2]), torch.tensor(0.3))
    with pytest.raises(AutomixError, match=r"^label_smoothing must be in \[0, 1\), got 1.0"):
        target.cross_entropy(logits, 1.0)
    torch.testing.assert_close(mixed_loss(torch.nn.CrossEntropyLoss(), logits, target), target.cross_entropy(logits))
    torch.testing.assert_close(mixed_loss(CrossEntropy(0.1), logits, target), target.cross_entropy(logits, 0.1))
    with pytest.raises(AutomixError, match=r"^criterion must return a scalar, got shape \(2,\) from CrossEntropyLoss"):
        mixed_loss(torch.nn.CrossEntropyLoss(reduction="none"), logits, target)
    with pytest.raises(AutomixError, match=r"^criterion must take soft rows .*nll_loss says: "):
        mixed_loss(torch.nn.functional.nll_loss, logits, target)

    def full(logits: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("no memory")

    with pytest.raises(torch.OutOfMemoryError):
        mixed_loss(full, logits, target)


def test_a_clean_batch_and_two_joined_ones() -> None:
    x = torch.zeros(2, 3, 4, 5, dtype=torch.float16)
    clean = Mixed.clean(x, torch.tensor([0, 1]))
    assert clean.mask.shape == (2, 1, 4, 5)
    assert clean.mask.dtype == torch.float32
    assert clean.mask.unique().tolist() == [1.0]
    assert clean.partners().tolist() == [0, 1]
    mixed = Mixed(x, MixedTarget(torch.tensor([0, 1]), torch.tensor([1, 0]), torch.tensor(0.25)), clean.mask / 4,
                  torch.tensor([1, 0]))  # fmt: skip
    both = join_mixed(clean, mixed)
    assert both.partners().tolist() == [0, 1, 3, 2]
    assert both.target.lam.tolist() == [1.0, 1.0, 0.25, 0.25]
    assert both.mask[:, 0, 0, 0].tolist() == [1.0, 1.0, 0.25, 0.25]
    assert both.target.y_b.tolist() == [0, 1, 1, 0]
    assert not both.target.multi_label
    without = Mixed(x, mixed.target, mixed.mask)
    assert join_mixed(clean, without).index is None
    assert join_mixed(without, clean).index is None
    with pytest.raises(AutomixError, match=r"^this batch has no index"):
        without.partners()


# --- objects ----------------------------------------------------------------------------------------------------------


def test_areas_with_nothing_visible_count_half() -> None:
    mask = torch.ones(2, 1, 2, 2)
    nothing, everything = torch.zeros(2, 1, 2, 2), torch.ones(2, 1, 2, 2)
    lam = torch.full((2,), 0.2)
    assert visible_lam(mask, nothing, nothing, lam).tolist() == [0.5, 0.5]
    assert visible_lam(mask, everything, nothing, lam).tolist() == [1.0, 1.0]
    assert visible_lam(mask, everything, nothing, lam, weight=0.5).tolist() == pytest.approx([0.6, 0.6])
    # by the relative rule, an image without an object counts as far as it is shown
    shown = visible_lam(mask * 0.25, nothing, everything, lam, "relative")
    assert shown.tolist() == pytest.approx([0.25, 0.25])
    assert visible_lam(mask, everything, nothing, lam.double()).dtype == torch.float64


def test_masks_of_objects_are_checked() -> None:
    x = torch.zeros(2, 3, 4, 4)
    for value in (0.0, 1.0):
        assert object_masks(torch.full((2, 4, 4), value), x).shape == (2, 1, 4, 4)
    for value in (-0.5, 1.5):
        with pytest.raises(AutomixError, match=rf"^objects must be masks with values in \[0, 1\], got {value:g}"):
            object_masks(torch.full((2, 4, 4), value), x)
    with pytest.raises(AutomixError, match=r"^objects must have shape \(2, 1, 4, 4\) or \(2, 4, 4\) or \(2, 4\), got"):
        object_masks(torch.zeros(2, 4, 5), x)
    with pytest.raises(AutomixError, match=r"^boxes must have shape \(N, 4\), got \(2, 5\)"):
        boxes_to_masks(torch.zeros(2, 5), (4, 4))
    box = boxes_to_masks(torch.tensor([[0.5, 1.0, 2.0, 3.0]]), (4, 3))
    assert box.shape == (1, 1, 4, 3)
    assert box[0, 0].tolist() == [[0, 0, 0], [0.5, 1, 0], [0.5, 1, 0], [0, 0, 0]]

    def method(x: torch.Tensor) -> None:
        raise NotImplementedError

    with pytest.raises(AutomixError, match=r"^objects must be None for method: "):
        check_takes_objects(method)


# --- checks -----------------------------------------------------------------------------------------------------------

LABELS = torch.tensor([0, 1, 2, 2])


@pytest.mark.parametrize(
    "call",
    [
        partial(check_batch, X, LABELS),
        partial(check_batch, X, LABELS.to(torch.uint8)),
        partial(check_batch, X[:1], LABELS[:1]),
        partial(check_batch, X.half(), torch.eye(4)),
        partial(check_batch, X, torch.eye(4).bool()),
        partial(check_batch, X, torch.ones(4, 1, dtype=torch.int64)),
        partial(check_batch, X.to(torch.uint8), LABELS, uint8=True),
        partial(check_soft_rows, torch.full((4, 2), 0.5 + 0.004)),
        partial(check_classes, LABELS, 3),
        partial(check_classes, LABELS[:0], 3),
        partial(check_classes, torch.eye(4), 4),
        partial(check_index, torch.tensor([0, 3, 3, 0]), 4),
        partial(check_weights_of, torch.tensor([0.0, 1.0])),
        partial(check_weights_of, torch.tensor([[0.5, 0.5005], [0.3, 0.7]])),
        partial(as_lam, 0.0, 4),
        partial(as_lam, 1.0, 4),
        partial(as_lam, torch.tensor([0.0, 1.0, 0.5, 0.5]), 4),
        partial(check_shape, "x", torch.zeros(2, 3), (2, "h"), (5, 5)),
        partial(check_range, "x", 0, 0, 1),
        partial(check_range, "x", 1, 0, 1),
        partial(check_whole, "k", 1),
        partial(check_whole, "k", 5, 5, 5),
        partial(check_smoothing, 0.0),
    ],
)
def test_accepted(call: Callable[[], Any]) -> None:
    call()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(check_batch, X[0], LABELS), r"x must be images \(N, C, H, W\) of a floating type, got shape \(3,"),
        (partial(check_batch, X[:0], LABELS[:0]), r"x must be images .* got shape \(0, 3, 2, 2\)"),
        (partial(check_batch, X.long(), LABELS), r"x must be images .* of a floating type, got .* dtype torch.int64"),
        (partial(check_batch, X.to(torch.uint8), LABELS), r"x must be images .* of a floating type, got"),
        (partial(check_batch, X.long(), LABELS, uint8=True), r"x must be images .* of a floating type or uint8, got"),
        (partial(check_batch, X, LABELS[:3]), r"y must be class indices \(4,\) or rows \(4, num_classes\), got"),
        (partial(check_batch, X, torch.zeros(4, 2, 2)), r"y must be class indices .* got shape \(4, 2, 2\)"),
        (partial(check_batch, X, LABELS.float()), r"y must be class indices of an integer type, got dtype torch.float"),
        (partial(check_batch, X, LABELS.bool()), r"y must be class indices of an integer type, got dtype torch.bool"),
        (partial(check_batch, X, LABELS * 1j), r"y must be class indices of an integer type, got dtype torch.complex"),
        (partial(check_batch, X, LABELS.to("meta")), r"y must be on the device of x, cpu, got meta"),
        (partial(check_batch, X, torch.ones(4, 1)), r"rows of y must have 2 columns or more, got shape \(4, 1\)"),
        (partial(check_batch, X, torch.full((4, 2), 0.6)), r"rows of y must sum to 1 \(soft labels\), got 1.2"),
        (partial(check_soft_rows, torch.tensor([[0.5, 0.5], [0.5, 0.1]])), r"rows of y must sum to 1 .* got 0.6"),
        (partial(check_classes, LABELS, 2), r"class indices must be in \[0, 1\] for num_classes=2, got 2"),
        (partial(check_classes, LABELS - 1, 3), r"class indices must be in \[0, 2\] for num_classes=3, got -1"),
        (partial(check_classes, torch.eye(4), 3), r"label rows must have num_classes=3 columns, got 4"),
        (partial(check_index, torch.tensor([0, 4]), 2), r"index must be in \[0, 1\], got 4"),
        (partial(check_index, torch.tensor([0, -1]), 2), r"index must be in \[0, 1\], got -1"),
        (partial(check_index, torch.tensor([0, 2]), 2), r"index must be in \[0, 1\], got 2"),
        (partial(check_index, torch.tensor([0]), 2), r"index must have shape \(2,\) and dtype int64, got \(1,\)"),
        (partial(check_index, torch.tensor([0, 1]).int(), 2), r"index must have shape .* got \(2,\) and torch.int32"),
        (partial(check_weights_of, torch.tensor([0.5, 0.502])), r"weights must sum to 1, got 1.002"),
        (partial(check_weights_of, torch.tensor([0.5, 0.498])), r"weights must sum to 1, got 0.998"),
        (partial(check_weights_of, torch.tensor([[0.5, 0.5], [1.1, -0.1]])), r"weights must be in \[0, 1\], got -0.1"),
        (partial(as_lam, -0.1, 4), r"lam must be in \[0, 1\], got -0.1"),
        (partial(as_lam, 1.1, 4), r"lam must be in \[0, 1\], got 1.1"),
        (partial(as_lam, torch.zeros(3), 4), r"lam must have shape \(\) or \(4,\), got \(3,\)"),
        (partial(as_lam, torch.zeros(4, 1), 4), r"lam must have shape \(\) or \(4,\), got \(4, 1\)"),
        (partial(check_shape, "x", X, (4, "c")), r"x must have shape \(4, c\), got \(4, 3, 2, 2\)"),
        (partial(check_shape, "x", torch.zeros(3), (2,)), r"x must have shape \(2,\), got \(3,\)"),
        (partial(check_range, "x", 0, 0, 1, bounds="()"), r"x must be in \(0, 1\), got 0"),
        (partial(check_range, "x", 1.0, 0, 1, bounds="()"), r"x must be in \(0, 1\), got 1.0"),
        (partial(check_range, "x", 0, 0, bounds="(]"), r"x must be > 0, got 0"),
        (partial(check_range, "x", cast(float, "1"), 0), r"x must be >= 0, got '1'"),
        (partial(check_smoothing, 1.0), r"label_smoothing must be in \[0, 1\), got 1.0"),
        (partial(check_whole, "k", 0), r"k must be an integer >= 1, got 0"),
        (partial(check_whole, "k", 3, 4, 5), r"k must be an integer in \[4, 5\], got 3"),
    ],
)  # fmt: skip
def test_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(AutomixError, match=f"^{message}"):
        call()


def test_options_of_a_method() -> None:
    def method(x: Any, y: Any, *, objects: Any = None, lam: Any = None, size: int = 1) -> None:
        raise NotImplementedError

    check_options(method, {"size": 2})
    for name in ("objects", "lam", "x", "sizes"):
        with pytest.raises(AutomixError, match=rf"^method has no option '{name}'.* Available: size$"):
            check_options(method, {name: 1})
    with pytest.raises(AutomixError, match=r"^size must be an integer, got 'a'"):
        check_options(method, {"size": "a"})
    assert "did you mean" not in str(unknown_name("method", "m" * 100, ["m" * 99]))
    assert "did you mean" in str(unknown_name("method", "m" * 99, ["m" * 98]))
