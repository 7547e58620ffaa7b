"""Accuracy on mixed samples: a classifier that reads colors, pairs counted with Python's sets, all mixers."""

import os
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from conftest import HandWritten
from evaluation_data import noise, unchanged
from method_data import NEED_A_NETWORK
from PIL import Image
from torch import Tensor, nn

import automix
from automix.core.errors import AutomixError
from automix.core.normalization import denormalize, normalize
from automix.data import ImageSet
from automix.data.datasets import open_dataset
from automix.evaluation.mixed import LAMS, Curve, draw_curves, evaluate_mixed
from automix.evaluation.mixers import Mixer, method_mixer, mixes_pairs, task_mixer
from automix.evaluation.samples import Samples
from automix.runs.classifier import Card, WithNormalization

MEAN, STD = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.25, 0.3])
ONE_IMAGE = {"vanilla", "augmix", "pixmix"}


class Colors(nn.Module):
    """Classes red, green, blue: how much there is of each color; where two are equal, red before green before blue."""

    def __init__(self) -> None:
        super().__init__()
        self.preference = nn.Parameter(torch.tensor([0.003, 0.002, 0.001]))

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3)) + self.preference


def colors(labels: list[int]) -> Samples:
    """An image of each class's pure color; the blue of later images is a little darker, so that all differ."""
    images = torch.zeros(len(labels), 3, 4, 4, dtype=torch.uint8)
    for number, label in enumerate(labels):
        images[number, label] = 255
        images[number, label, 0, 0] = number
    return Samples(ImageSet(images, torch.tensor(labels), ("red", "green", "blue")), 4)


class Recorder:
    """Mixup, and a memory of what it was asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[Tensor, Tensor, float, Tensor]] = []

    def __call__(self, pixels: Tensor, labels: Tensor, lam: float, index: Tensor) -> Tensor:
        self.calls.append((pixels.clone(), labels.clone(), lam, index.clone()))
        return lam * pixels + (1 - lam) * pixels[index]

    def pairs(self, lam: float) -> list[tuple[int, int]]:
        """The classes of the pairs that were mixed with this lam."""
        chosen = [(labels, index) for _, labels, asked, index in self.calls if asked == lam]
        return [pair for labels, index in chosen for pair in zip(labels.tolist(), labels[index].tolist(), strict=True)]


# --- what is counted -------------------------------------------------------------------------------------------------


def test_accuracies_of_colors_by_hand() -> None:
    mix, samples = Recorder(), colors([0, 1, 2] * 5)
    curve = evaluate_mixed(Colors(), samples, {"mixup": mix}, lams=(0, 0.3, 0.5, 1), batch_size=6).curves["mixup"]
    pairs = [pair for pair in mix.pairs(0.5) if pair[0] != pair[1]]
    assert curve.pairs == len(pairs) < 15  # 15 images in 3 batches: some pairs are of one class
    assert curve.top1 == (100, 100, 100, 100)
    # One color alone: the second answer is red, or green where red is the first.
    second = {0: 1, 1: 0, 2: 0}
    at_0 = sum(second[b] == a for a, b in pairs) / len(pairs)
    at_1 = sum(second[a] == b for a, b in pairs) / len(pairs)
    assert curve.top2 == pytest.approx((100 * at_0, 100, 100, 100 * at_1))
    assert 0 < at_1 < 1


def test_a_mixer_that_shows_a_third_class_is_always_wrong() -> None:
    def third_color(pixels: Tensor, labels: Tensor, lam: float, index: Tensor) -> Tensor:
        shown = torch.zeros_like(pixels)
        shown[torch.arange(len(labels)), (3 - labels - labels[index]) % 3] = 1
        return shown

    curve = evaluate_mixed(Colors(), colors([0, 1, 2] * 2), {"stranger": third_color}, lams=[0.5]).curves["stranger"]
    assert (curve.top1, curve.top2) == ((0,), (0,))


@pytest.mark.parametrize("batch_size", [4, 7, 100])
def test_the_counts_are_those_of_pythons_sets(batch_size: int) -> None:
    model, mix = HandWritten().eval(), Recorder()
    curve = evaluate_mixed(model, noise(40), {"mixup": mix}, lams=(0.2, 0.6), batch_size=batch_size).curves["mixup"]
    for place, lam in enumerate((0.2, 0.6)):
        top1, top2 = [], []
        for pixels, labels, asked, index in mix.calls:
            if asked != lam:
                continue
            with torch.no_grad():
                answers = model(lam * pixels + (1 - lam) * pixels[index]).argsort(dim=1, descending=True).tolist()
            for order, a, b in zip(answers, labels.tolist(), labels[index].tolist(), strict=True):
                if a != b:
                    top1.append(order[0] in {a, b})
                    top2.append(set(order[:2]) == {a, b})
        assert curve.pairs == len(top1)
        assert curve.top1[place] == pytest.approx(100 * sum(top1) / len(top1))
        assert curve.top2[place] == pytest.approx(100 * sum(top2) / len(top2))


def test_values_are_means_over_the_lams_in_between() -> None:
    samples, mixers = colors([0, 1, 2] * 5), {"mixup": method_mixer("mixup"), "clean": method_mixer("vanilla")}
    found = evaluate_mixed(Colors(), samples, mixers, lams=(1, 0.5, 0, 0.25))
    names = ("top1", "top2", "top2_at_0.5")
    assert list(found.values) == [f"{mixer}_{name}" for mixer in mixers for name in names]
    assert found.values["mixup_top2"] == found.values["mixup_top2_at_0.5"] == 100  # without the guesses at 0 and 1
    assert found.values["clean_top1"] == 100
    assert 0 < found.values["clean_top2"] < 100
    curve = evaluate_mixed(Colors(), samples, {"m": method_mixer("mixup")}).curves["m"]
    assert curve.lams == LAMS == (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    assert found.notes == (f"{curve.pairs} pairs of two classes; {15 - curve.pairs} pairs of one class are left out",)
    assert "mixup_top2_at_0.5" not in evaluate_mixed(Colors(), samples, mixers, lams=[0.4]).values
    assert Curve((0, 0.1, 0.9, 1), (1, 2, 4, 9), (0, 0, 0, 0), 1).mean_between((1, 2, 4, 9)) == 3


# --- the pairs -------------------------------------------------------------------------------------------------------


def test_pairs_are_the_same_for_every_mixer_and_lam_and_from_the_seed() -> None:
    def recorded(seed: int) -> list[list[tuple[Tensor, Tensor, float, Tensor]]]:
        one, other = Recorder(), Recorder()
        evaluate_mixed(
            Colors(), colors([0, 1, 2] * 7), {"a": one, "b": other}, lams=(0.2, 0.7), seed=seed, batch_size=8
        )
        return [[call for call in mix.calls if call[2] == lam] for mix in (one, other) for lam in (0.2, 0.7)]

    first, *others = recorded(0) + recorded(0)
    for calls in others:
        for (x, y, _, index), (x_again, y_again, _, index_again) in zip(first, calls, strict=True):
            assert torch.equal(x, x_again)
            assert torch.equal(y, y_again)
            assert torch.equal(index, index_again)
    assert [len(call[1]) for call in first] == [8, 8, 5]
    assert not torch.equal(torch.cat([call[1] for call in first]), torch.cat([call[1] for call in recorded(1)[0]]))


def test_every_image_is_mixed_once_and_with_another() -> None:
    mix = Recorder()
    evaluate_mixed(Colors(), colors([0] * 4 + [1] * 8 + [2] * 9), {"mixup": mix}, lams=[0.5], batch_size=8)
    first = torch.cat([pixels.sum(dim=1)[:, 0, 0] * 255 for pixels, *_ in mix.calls])
    assert sorted(first.round().int().tolist()) == list(range(21))
    for _, labels, _, index in mix.calls:
        assert sorted(index.tolist()) == list(range(len(labels)))
        assert (index != torch.arange(len(labels))).all()


def test_a_set_that_is_sorted_by_class_has_pairs_of_two_classes() -> None:
    samples = colors([0] * 20 + [1] * 20 + [2] * 20)
    curve = evaluate_mixed(Colors(), samples, {"m": method_mixer("mixup")}, batch_size=20).curves["m"]
    assert 30 < curve.pairs < 55  # about two thirds


def test_sets_that_are_read_image_by_image_have_the_same_pairs() -> None:
    samples, mixers = colors([0] * 9 + [1] * 9 + [2] * 9), {"cutmix": method_mixer("cutmix")}

    class Streamed:
        classes = samples.classes
        __len__ = samples.source.__len__

        def read(self, index: int) -> tuple[Image.Image, int]:
            return samples.source.read(index)

    streamed = Samples(cast(Any, Streamed()), 4)
    assert evaluate_mixed(Colors(), streamed, mixers).curves == evaluate_mixed(Colors(), samples, mixers).curves


# --- mixers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", automix.methods())
def test_every_method_has_a_mixer_or_says_that_it_needs_a_network(name: str) -> None:
    if name in NEED_A_NETWORK:
        with pytest.raises(AutomixError, match=f"{name}.*network.*task_mixer"):
            method_mixer(name)
        return
    mix = method_mixer(name)
    samples = noise(10)
    pixels, labels = next(samples.batches(10))
    index, kept = torch.arange(10).roll(1), pixels.clone()
    mixed = mix(pixels, labels, 0.4, index)
    assert mixed.shape == pixels.shape
    assert mixed.min() >= -1e-6
    assert mixed.max() <= 1 + 1e-6
    assert torch.equal(mixed, mix(pixels, labels, 0.4, index))
    assert torch.equal(pixels, kept)
    torch.testing.assert_close(mix(pixels, labels, 1.0, index), pixels)
    other_partner = pixels.clone()
    other_partner[index[0]] = 1 - pixels[index[0]]
    partner_shows = not torch.equal(mix(other_partner, labels, 0.4, index)[0], mixed[0])
    assert partner_shows == (name not in ONE_IMAGE)
    found = evaluate_mixed(HandWritten(), samples, {name: mix}, lams=(0.3, 0.5), batch_size=5)
    assert list(found.values) == [f"{name}_top1", f"{name}_top2", f"{name}_top2_at_0.5"]


def test_mixup_by_hand() -> None:
    pixels, labels = next(noise(4).batches(4))
    index = torch.tensor([2, 3, 0, 1])
    mixed = method_mixer("mixup")(pixels, labels, 0.3, index)
    torch.testing.assert_close(mixed, 0.3 * pixels + 0.7 * pixels[index])


def test_boxes_differ_between_samples_and_batches_but_not_over_lam() -> None:
    """Black images with white partners show the box."""
    pixels = torch.zeros(40, 3, 32, 32)
    pixels[20:] = 1
    index, mix = torch.arange(40).roll(20), method_mixer("cutmix")
    boxes = {lam: mix(pixels, torch.arange(40), lam, index)[:20, 0] for lam in (0.5, 0.8)}
    assert (boxes[0.8] <= boxes[0.5]).all()
    assert len({tuple(box.flatten().tolist()) for box in boxes[0.8]}) > 15
    other = mix(pixels, torch.arange(40).roll(7), 0.5, index)[:20, 0]
    assert not torch.equal(other, boxes[0.5])


def test_methods_that_mean_pixels_get_pixels() -> None:
    """Told from the batch, gray images would be black, and what a translation leaves open would be gray as well."""
    gray = torch.full((32, 3, 16, 16), 0.5)
    for name in ("augmix", "pixmix"):
        mixed = method_mixer(name)(gray, torch.arange(32), 0.3, torch.arange(32).roll(1))
        assert mixed.min() < 0.4


def test_options_are_the_methods() -> None:
    pixels, labels = next(noise(8).batches(8))
    coarse, fine = (method_mixer("gridmix", grid=grid)(pixels, labels, 0.5, torch.arange(8).roll(1)) for grid in (2, 8))
    assert not torch.equal(coarse, fine)
    with pytest.raises(ValueError, match=r"gird.*grid"):
        method_mixer("gridmix", gird=2)


def automix_task() -> automix.Task:
    return automix.AutoMix(HandWritten(), layer="body").eval()


@pytest.mark.parametrize("lam", [0.05, 0.3, 0.5, 1.0])
def test_the_mixer_of_a_task_is_its_mix_on_normalized_images(lam: float) -> None:
    task = automix_task()
    pixels, labels = next(noise(6).batches(6))
    index = torch.arange(6).roll(1)
    x = normalize(pixels, MEAN, STD)
    expected = denormalize(task.mix(x, labels, lam=lam, index=index).x, MEAN, STD)
    for mean, std in ((MEAN, STD), (tuple(MEAN.tolist()), tuple(STD.tolist()))):
        torch.testing.assert_close(task_mixer(task, mean, std)(pixels, labels, lam, index), expected)
    without = denormalize(task.mix(pixels, labels, lam=0.5, index=index).x, torch.zeros(3), torch.ones(3))
    assert not torch.allclose(task_mixer(task, MEAN, STD)(pixels, labels, 0.5, index), without, atol=1e-4)


@pytest.mark.parametrize("name", ["puzzlemix", "supermix"])
def test_tasks_that_need_gradients_can_be_mixers(name: str) -> None:
    task = automix.create_task(name, HandWritten())
    found = evaluate_mixed(HandWritten(), noise(12), {name: task_mixer(task, MEAN, STD)}, lams=[0.5])
    assert 0 <= found.values[f"{name}_top2"] <= 100


def test_more_than_two_images_are_refused() -> None:
    mix = task_mixer(automix.create_task("comixup", HandWritten()), MEAN, STD)
    with pytest.raises(AutomixError, match=r"pairs.*more than two"):
        evaluate_mixed(HandWritten(), noise(12), {"comixup": mix})


def test_task_and_random_numbers_are_left_alone() -> None:
    model, task = HandWritten(), automix_task().train()
    mixers = {"automix": task_mixer(task, MEAN, STD), "cutmix": method_mixer("cutmix")}
    with unchanged(task):
        first = evaluate_mixed(model, noise(20), mixers).values
    assert all(0 <= value <= 100 for value in first.values())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mixup", True),
        ("cutmix", True),
        ("manifoldmix", True),
        ("puzzlemix", True),
        ("supermix", True),
        ("vanilla", False),
        ("augmix", False),
        ("pixmix", False),
        ("comixup", False),
    ],
)
def test_which_methods_mix_pairs(name: str, expected: bool) -> None:
    task = automix.create_task(name, HandWritten(2), **({"layers": ("stem",)} if name == "manifoldmix" else {}))
    x, _ = next(noise(4).batches(4))
    with unchanged(task):
        assert mixes_pairs(task, x) is expected


# --- the rest --------------------------------------------------------------------------------------------------------


def test_the_picture_has_room_for_many_mixers() -> None:
    mixers = {"mixup": method_mixer("mixup"), "cutmix": method_mixer("cutmix")}
    picture = evaluate_mixed(Colors(), colors([0, 1, 2] * 3), mixers, lams=(0.2, 0.5)).pictures["mixed"]()
    assert (picture.mode, picture.width) == ("RGB", 1080)
    many = {f"mixer {number}": Curve((0.2, 0.5), (1.0, 2.0), (3.0, 4.0), 5) for number in range(20)}
    assert draw_curves(many).size == picture.size


def mixup_with(**options: Any) -> Callable[[], Any]:
    mixers: dict[str, Mixer] = {"m": method_mixer("mixup")}
    return lambda: evaluate_mixed(Colors(), **{"samples": colors([0, 1]), "mixers": mixers, **options})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (mixup_with(mixers={}), "^mixers.*at least 1"),
        (mixup_with(lams=[0.5, 1.2]), r"^lams.*\[0, 1\].*1.2"),
        (mixup_with(lams=[-0.1, 0.5]), r"^lams.*\[0, 1\].*-0.1"),
        (mixup_with(lams=[float("nan"), 0.5]), r"^lams.*\[0, 1\].*nan"),
        (mixup_with(lams=[0, 1]), r"^lams.*\(0, 1\)"),
        (mixup_with(lams=[]), r"^lams.*\(0, 1\)"),
        (mixup_with(batch_size=1), "^batch_size.*2"),
        (mixup_with(samples=colors([1])), "^samples.*at least 2 images.*1"),
        (mixup_with(samples=noise(4, 1)), "^samples.*at least 2 images and 2 classes.*1"),
        (mixup_with(samples=colors([1, 1, 1])), "^samples.*at least 2 classes"),
        (mixup_with(mixers={"half": lambda x, y, lam, index: x[:1]}), r"^mixer 'half'.*\(2, 3, 4, 4\)"),
        (lambda: method_mixer("cutmx"), "method.*cutmx.*cutmix"),
        (lambda: task_mixer(automix_task(), MEAN, [0.2, 0.0, 0.3]), "^std.*> 0.*0"),
    ],
)
def test_wrong_input_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.skipif("AUTOMIX_DATA" not in os.environ, reason="AUTOMIX_DATA is not set")
def test_real_photos() -> None:
    _, test = open_dataset("cifar100")
    samples = Samples(test, 32).first(40)
    network = automix.create_model("resnet18", num_classes=100, image_size=32, channels=(8, 8, 16, 16))
    card = Card(
        model="resnet18",
        model_options={},
        classes=samples.classes,
        image_size=32,
        train_size=32,
        mean=(0.5, 0.5, 0.45),
        std=(0.25, 0.25, 0.25),
    )
    task = automix.AutoMix(network).eval()
    mixers = {"cutmix": method_mixer("cutmix"), "automix": task_mixer(task, card.mean, card.std)}
    found = evaluate_mixed(WithNormalization(network, card), samples, mixers, lams=(0.25, 0.5, 1), batch_size=16)
    assert all(0 <= value <= 100 for _, value in found)
    assert found.notes == ("40 pairs of two classes; 0 pairs of one class are left out",)  # one image of each class
    assert found.pictures["mixed"]().width == 1080
