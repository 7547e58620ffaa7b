"""What lies on the pixels of mixed images: maps, labels of pixels and boxes, worked out by hand or by slow loops."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import HandWritten, batch
from torch import Tensor

import automix
from automix import Mixed, MixedTarget
from automix.core import PixelTarget, blend_maps, join_mixed, mix_boxes, resize_mask
from automix.core.draws import step_generator

INDEX = torch.tensor([1, 0])


def mixture(mask: Tensor, index: Tensor = INDEX) -> Mixed:
    """A batch with a given mask (N, 1, H, W); its pixels do not count here."""
    y = torch.arange(len(mask))
    x = torch.zeros(len(mask), 3, *mask.shape[-2:])
    return Mixed(x, MixedTarget(y, y[index], mask.mean(dim=(1, 2, 3))), mask, index)


# --- maps


def test_maps_by_hand() -> None:
    mask = torch.tensor([[[[1.0, 0.75], [0.5, 0.0]]], [[[0.0, 0.25], [1.0, 1.0]]]])
    depth = torch.tensor([[[1.0, 2.0], [3.0, 4.0]], [[10.0, 20.0], [30.0, 40.0]]])
    mixed = mixture(mask)
    expected = torch.tensor([[[1.0, 6.5], [16.5, 40.0]], [[1.0, 6.5], [30.0, 40.0]]])
    torch.testing.assert_close(mixed.apply(depth), expected)
    torch.testing.assert_close(mixed.apply(depth.unsqueeze(1)), expected.unsqueeze(1))
    classes = torch.tensor([[[1, 2], [3, 4]], [[5, 6], [7, 8]]])
    chosen = torch.tensor([[[1, 2], [3, 8]], [[1, 2], [7, 8]]])  # 0.5 is the first image's
    assert torch.equal(mixed.apply(classes), chosen)
    assert torch.equal(mixed.apply(classes.byte()), chosen.byte())
    assert torch.equal(mixed.apply(classes > 4), chosen > 4)


def test_masks_are_resized_to_the_maps() -> None:
    mask = torch.tensor([[[[1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]], [[[0.0, 0.0, 1.0, 1.0]] * 2]])
    small = torch.tensor([[[1.0, 1.0]], [[3.0, 3.0]]])  # 1 x 2 cells of 2 x 2 pixels
    assert torch.equal(mixture(mask).apply(small), torch.tensor([[[3.0, 3.0]], [[1.0, 3.0]]]))  # the center's pixel
    averaged = resize_mask(mask, (1, 2), "bilinear")
    torch.testing.assert_close(averaged, F.interpolate(mask, (1, 2), mode="bilinear", antialias=True))
    torch.testing.assert_close(mixture(mask).apply(small, mode="bilinear")[0, 0], 3 - 2 * averaged[0, 0, 0])
    large = torch.rand(2, 5, 8, 16)
    grown = mask.repeat_interleave(4, dim=2).repeat_interleave(4, dim=3)
    torch.testing.assert_close(mixture(mask).apply(large), grown * large + (1 - grown) * large[INDEX])


def test_a_mask_with_channels_is_averaged() -> None:
    mask = torch.rand(2, 3, 4, 4)
    maps = torch.rand(2, 4, 4)
    mean = mask.mean(dim=1)
    torch.testing.assert_close(blend_maps(maps, INDEX, mask), mean * maps + (1 - mean) * maps[INDEX])


def test_gradients_reach_mask_and_maps() -> None:
    mask, maps = torch.rand(2, 1, 4, 4, requires_grad=True), torch.rand(2, 4, 4, requires_grad=True)
    mixture(mask).apply(maps).sum().backward()
    assert mask.grad is not None
    torch.testing.assert_close(mask.grad.squeeze(1), (maps - maps[INDEX]).detach())
    assert maps.grad is not None
    torch.testing.assert_close(maps.grad, (mask + (1 - mask)[INDEX]).squeeze(1).detach())


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_of_a_task(share: float) -> None:
    x, y = batch(7)
    task = automix.create_task("cutmix", HandWritten(), mix_share=share)
    mixed = task.mix(x, y)
    torch.testing.assert_close(mixed.apply(x), mixed.x)
    learned = automix.AutoMix(HandWritten(), layer="body").mix(x, y)
    torch.testing.assert_close(learned.apply(x), learned.x)


def test_joined_batches_keep_their_partners() -> None:
    x, y = batch(7)
    mixed = automix.mixup(x[:3], y[:3], generator=step_generator(0, 0))
    joined = join_mixed(mixed, Mixed.clean(x[3:], y[3:]))
    torch.testing.assert_close(joined.apply(x), joined.x)
    moved = automix.resizemix(x[3:], y[3:], generator=step_generator(0, 0))
    assert join_mixed(mixed, moved).index is None


@pytest.mark.parametrize(
    ("other", "mode", "message"),
    [
        (torch.zeros(2, 4), "nearest", r"^maps must have shape \(2, h, w\) or \(2, channels, h, w\), got \(2, 4\)"),
        (torch.zeros(3, 4, 4), "nearest", r"^maps must have shape \(2, h, w\).*\(3, 4, 4\)"),
        (torch.zeros(2, 4, 4), "cubic", "^mode must be one of nearest, bilinear; got 'cubic'"),
    ],
)
def test_wrong_maps_are_refused(other: Tensor, mode: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        mixture(torch.rand(2, 1, 4, 4)).apply(other, mode)


# --- labels of pixels


def slow_loss(logits: Tensor, y: Tensor, mask: Tensor, index: Tensor, ignored: int) -> Tensor:
    """Pixel by pixel."""
    total, weights = 0.0, 0.0
    for n in range(len(y)):
        for row in range(y.shape[1]):
            for column in range(y.shape[2]):
                log_probabilities = logits[n, :, row, column].double().log_softmax(0)
                s = mask[n, 0, row, column].item()
                for label, share in ((y[n, row, column], s), (y[index[n], row, column], 1 - s)):
                    if int(label) != ignored:
                        total -= share * log_probabilities[int(label)].item()
                        weights += share
    return torch.tensor(total / weights)


def test_the_loss_of_pixels_is_that_of_a_slow_loop() -> None:
    y = torch.randint(4, (3, 5, 6))
    y[0, :2] = 255
    mask, index, logits = torch.rand(3, 1, 5, 6), torch.tensor([2, 0, 1]), torch.randn(3, 4, 5, 6)
    target = PixelTarget.from_mixed(mixture(mask, index), y)
    torch.testing.assert_close(target.cross_entropy(logits), slow_loss(logits, y, mask, index, 255))
    assert target.cross_entropy(logits.bfloat16()).dtype == torch.float32


def test_unmixed_pixels_have_torchs_loss() -> None:
    x, y = batch(3, 5, 6)
    labels, logits = torch.randint(4, (3, 5, 6), dtype=torch.uint8), torch.randn(3, 4, 5, 6)
    labels[1, 2:4] = 255
    target = PixelTarget.from_mixed(automix.vanilla(x, y), labels)
    torch.testing.assert_close(target.cross_entropy(logits), F.cross_entropy(logits, labels.long(), ignore_index=255))
    for mode in ("nearest", "bilinear"):
        halves = PixelTarget.from_mixed(automix.mixup(x, y, lam=0.3), torch.ones(3, 9, 4, dtype=torch.int64), mode=mode)
        torch.testing.assert_close(halves.soft(2)[:, 1], torch.ones(3, 9, 4))


def test_soft_labels_of_pixels_by_hand() -> None:
    mask = torch.tensor([[[[1.0, 0.25]]], [[[0.5, 0.0]]]])
    y = torch.tensor([[[0, 2]], [[1, 255]]])
    soft = PixelTarget.from_mixed(mixture(mask), y).soft(3)
    expected = torch.tensor([[[[1, 0]], [[0, 0]], [[0, 0.25]]], [[[0.5, 0]], [[0.5, 0]], [[0, 1.0]]]])
    assert torch.equal(soft, expected)
    logits = torch.randn(2, 3, 1, 2)
    whole = PixelTarget(y.clamp(max=2), y[INDEX].clamp(max=2), mask.squeeze(1))
    by_rows = F.cross_entropy(logits, whole.soft(3))
    torch.testing.assert_close(whole.cross_entropy(logits), by_rows)


def test_pixels_without_a_class_have_no_loss() -> None:
    logits = torch.randn(2, 3, 2, 2, requires_grad=True)
    nothing = torch.full((2, 2, 2), 255)
    loss = PixelTarget.from_mixed(mixture(torch.rand(2, 1, 2, 2)), nothing).cross_entropy(logits)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad is not None
    assert not logits.grad.any()


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (torch.zeros(2, 1, 4, 4, dtype=torch.int64), r"^labels must have shape \(2, h, w\)"),
        (torch.zeros(2, 4, 4), "^labels must be class maps of an integer type, got dtype torch.float32"),
    ],
)
def test_wrong_labels_of_pixels_are_refused(labels: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PixelTarget.from_mixed(mixture(torch.rand(2, 1, 4, 4)), labels)


def test_logits_of_another_size_are_refused() -> None:
    target = PixelTarget.from_mixed(mixture(torch.rand(2, 1, 4, 4)), torch.zeros(2, 4, 4, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"^logits must have shape \(2, num_classes, 4, 4\), got \(2, 3, 2, 2\)"):
        target.cross_entropy(torch.zeros(2, 3, 2, 2))


# --- boxes

# The left half of the first image stays, of the second one the upper half.
HALVES = torch.ones(2, 1, 4, 4)
HALVES[0, :, :, 2:] = 0
HALVES[1, :, 2:] = 0


def test_boxes_by_hand() -> None:
    boxes = [torch.tensor([[0.0, 0.0, 4.0, 2.0], [2.0, 0.0, 4.0, 4.0]]), torch.tensor([[1.0, 1.0, 3.0, 4.0]])]
    labels = [torch.tensor([5, 6]), torch.tensor([7])]
    first, second = mix_boxes(mixture(HALVES), boxes, labels)
    # half of the first box is in the left half, nothing of the second one; half of the partner's is in the right half
    assert first.boxes.tolist() == [[0.0, 0.0, 4.0, 2.0], [1.0, 1.0, 3.0, 4.0]]
    assert first.labels.tolist() == [5, 7]
    assert first.weights.tolist() == [0.5, 0.5]
    assert first.of_partner.tolist() == [False, True]
    # one of three rows is in the upper half; of the partner's boxes nothing and a half are in the lower half
    assert second.labels.tolist() == [7, 6]
    torch.testing.assert_close(second.weights, torch.tensor([1 / 3, 0.5]))
    assert second.boxes.tolist() == [[1.0, 1.0, 3.0, 4.0], [2.0, 0.0, 4.0, 4.0]]


def test_boxes_of_which_little_is_visible_are_dropped() -> None:
    boxes, labels = (
        [torch.tensor([[0.0, 0.0, 4.0, 1.0]]), torch.tensor([[1.0, 0.0, 4.0, 1.0]])],
        [torch.tensor([0])] * 2,
    )
    kept = {bound: len(mix_boxes(mixture(HALVES), boxes, labels, bound)[0].boxes) for bound in (0, 0.5, 0.6, 0.7)}
    assert kept == {0: 2, 0.5: 2, 0.6: 1, 0.7: 0}  # visible are 1/2 and 2/3


def test_soft_masks_parts_of_pixels_and_empty_lists() -> None:
    mixed = mixture(torch.full((2, 1, 4, 4), 0.75))
    boxes = [torch.tensor([[0.5, 0.5, 2.25, 3.0], [9.0, 9.0, 12.0, 12.0]]), torch.zeros(0, 4)]
    first, second = mix_boxes(mixed, boxes, [torch.tensor([1, 2]), torch.zeros(0, dtype=torch.int64)])
    torch.testing.assert_close(first.weights, torch.tensor([0.75]))  # the other one lies outside of the image
    torch.testing.assert_close(second.weights, torch.tensor([0.25]))
    assert second.of_partner.tolist() == [True]
    assert mix_boxes(mixed, [torch.zeros(0, 4)] * 2, [torch.zeros(0, dtype=torch.int64)] * 2)[0].boxes.shape == (0, 4)


def test_visible_shares_are_those_of_a_slow_count() -> None:
    """Whole pixels counted one by one."""
    x, y = batch(4, 9, 12)
    corners = ([[1, 2, 7, 8], [0, 0, 12, 9]], [[3, 3, 4, 9]], [[5, 0, 12, 2]], [[0, 4, 6, 9]])
    boxes = [torch.tensor(one) for one in corners]
    labels = [torch.full((len(one),), number) for number, one in enumerate(boxes)]
    mixed = automix.fmix(x, y, index=torch.arange(4).roll(1), generator=step_generator(0, 3))
    assert mixed.index is not None
    for i, found in enumerate(mix_boxes(mixed, boxes, labels, min_visible=0.2)):
        expected = []
        for image, share in ((i, mixed.mask[i, 0]), (int(mixed.index[i]), 1 - mixed.mask[i, 0])):
            for x0, y0, x1, y1 in boxes[image].tolist():
                pixels = [share[row, column].item() for row in range(y0, y1) for column in range(x0, x1)]
                if (visible := sum(pixels) / len(pixels)) >= 0.2:
                    expected.append((image, visible))
        assert found.labels.tolist() == [image for image, _ in expected]
        torch.testing.assert_close(found.weights, torch.tensor([visible for _, visible in expected]))


def test_an_image_that_is_its_own_partner_shows_its_boxes_once() -> None:
    x, y = batch(2, 4, 4)
    boxes, labels = [torch.tensor([[0.0, 0.0, 2.0, 2.0]])] * 2, [torch.tensor([3])] * 2
    for mixed in (automix.vanilla(x, y), automix.mixup(x, y, lam=0.3, index=torch.arange(2))):
        (first, _) = mix_boxes(mixed, boxes, labels)
        assert first.weights.tolist() == [1.0]
        assert first.labels.tolist() == [3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"boxes": [torch.zeros(1, 4)]}, "^boxes must have one tensor for each of the 2 images, got 1"),
        ({"boxes": [torch.zeros(1, 5)] * 2}, r"^boxes must have shape \(M, 4\), got \(1, 5\)"),
        ({"labels": [torch.zeros(2)] * 2}, r"^labels must have shape \(1,\), got \(2,\)"),
        ({"min_visible": 1.5}, r"^min_visible must be in \[0, 1\], got 1.5"),
    ],
)
def test_wrong_boxes_are_refused(change: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {"boxes": [torch.zeros(1, 4)] * 2, "labels": [torch.zeros(1)] * 2}
    with pytest.raises(ValueError, match=message):
        mix_boxes(mixture(HALVES), **{**right, **change})
