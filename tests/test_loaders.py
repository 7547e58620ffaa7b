"""Plans, crops, both loaders, and open_data that chooses between them."""

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
import torchvision.transforms as T
import torchvision.transforms.functional as TF
from PIL import Image
from timm.data.distributed_sampler import RepeatAugSampler
from torch import Tensor

from automix.core.errors import AutomixError
from automix.core.normalization import IMAGENET, Normalization
from automix.data import Augmentation, BatchPlan, ImageSet, MemoryLoader, StreamLoader, open_data
from automix.data.augmentation import train_transform
from automix.data.crops import draw_boxes, resized_crops

STRONG = Augmentation(train_size=20, crop="resized", rand_augment="9/0.5", erasing=0.5)


def photos(root: Path, per_class: int = 8) -> Path:
    """Three classes of noise, 30 x 40 px, in train/ and test/."""
    noise = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("ant", "bee", "cat"):
            (root / split / name).mkdir(parents=True)
            for i in range(per_class):
                pixels = noise.integers(256, size=(30, 40, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{i}.png")
    return root


def as_list(batches: Any) -> list[tuple[Tensor, Tensor]]:
    return list(batches)


def error_message(batches: Any) -> str:
    """Not by pytest.raises: it keeps the frames, hence the workers, and to collect those takes seconds."""
    try:
        list(batches)
    except (RuntimeError, ValueError) as error:
        return str(error)
    return "no error"


def same(first: list[tuple[Tensor, Tensor]], second: list[tuple[Tensor, Tensor]]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(torch.equal(x, other_x) and torch.equal(y, other_y) for (x, y), (other_x, other_y) in pairs)


# --- the plan --------------------------------------------------------------------------------------------------------


def test_an_epoch_has_each_image_once_and_leaves_the_incomplete_batch_out() -> None:
    plan = BatchPlan(23, 5, seed=3)
    assert plan.steps_per_epoch == 4
    epochs = [torch.cat([plan.indices(step) for step in range(start, start + 4)]) for start in (0, 4)]
    for epoch in epochs:
        assert len(epoch.unique()) == 20
    assert not torch.equal(epochs[0], epochs[1])
    assert torch.equal(BatchPlan(23, 5, seed=3).indices(6), plan.indices(6))
    assert not torch.equal(BatchPlan(23, 5, seed=4).indices(6), plan.indices(6))


def test_processes_and_accumulation_make_the_same_micro_batches() -> None:
    whole = BatchPlan(40, 12).indices(4)
    processes = [BatchPlan(40, 12, rank=rank, world_size=4) for rank in range(4)]
    pieces = BatchPlan(40, 12, accumulate=4)
    both = [BatchPlan(40, 12, rank=rank, world_size=2, accumulate=2) for rank in range(2)]
    parts = {plan.micro_batch_index(0): plan.indices(4, 0) for plan in processes}
    assert parts.keys() == {0, 1, 2, 3}
    for piece in range(4):
        assert torch.equal(pieces.indices(4, piece), parts[pieces.micro_batch_index(piece)])
    assert [[plan.micro_batch_index(piece) for piece in range(2)] for plan in both] == [[0, 2], [1, 3]]
    for plan in both:
        for piece in range(2):
            assert torch.equal(plan.indices(4, piece), parts[plan.micro_batch_index(piece)])
    assert torch.equal(torch.stack([parts[part] for part in range(4)], dim=1).flatten(), whole)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_repeats_match_timms_sampler(world_size: int) -> None:
    order = torch.cat([BatchPlan(24, 6).indices(step) for step in range(4)])
    for rank in range(world_size):
        plan = BatchPlan(24, 6, repeats=3, rank=rank, world_size=world_size)
        ours = torch.cat([plan.indices(step) for step in range(plan.steps_per_epoch)])
        timms = RepeatAugSampler(range(24), num_replicas=world_size, rank=rank, shuffle=False, selected_round=0)
        assert torch.equal(ours, order[torch.tensor(list(timms))])


def epoch_of(plan: BatchPlan, epoch: int = 0) -> Tensor:
    first = epoch * plan.steps_per_epoch
    return torch.cat([plan.indices(step) for step in range(first, first + plan.steps_per_epoch)])


LONG_TAIL = torch.tensor([0] * 40 + [2] * 17 + [3] * 2 + [5])  # classes 1 and 4 have no images


def test_balanced_epochs_have_all_classes_equally_often() -> None:
    shuffled = LONG_TAIL[torch.randperm(60, generator=torch.Generator().manual_seed(1))]
    plan = BatchPlan(60, 6, seed=3, labels=shuffled)
    epochs = [epoch_of(plan, epoch) for epoch in range(3)]
    for epoch in epochs:
        assert torch.bincount(shuffled[epoch]).tolist() == [15, 0, 15, 15, 0, 15]
        times = torch.bincount(epoch, minlength=60)
        assert times[shuffled == 0].max() == 1  # 15 of 40
        assert times[shuffled == 2].max() == 1
        assert sorted(times[shuffled == 3].tolist()) == [7, 8]  # one after the other
    assert not torch.equal(epochs[0], epochs[1])
    assert len(torch.cat(epochs)[shuffled[torch.cat(epochs)] == 0].unique()) > 15  # others of the frequent class
    runs = (shuffled[epochs[0]].diff() != 0).sum()
    assert runs > 30  # and in random order


def test_balanced_epochs_differ_by_one_draw_where_classes_do_not_divide_them() -> None:
    labels = torch.arange(11) % 3
    extra = [
        tuple((torch.bincount(labels[epoch_of(BatchPlan(11, 1, labels=labels), e)]) - 3).tolist()) for e in range(20)
    ]
    assert all(sorted(counts) == [0, 1, 1] for counts in extra)
    assert len(set(extra)) == 3  # not always the same classes


def test_balanced_batches_are_a_function_of_seed_and_step() -> None:
    whole = BatchPlan(60, 12, seed=3, labels=LONG_TAIL)
    before = [whole.indices(step) for step in range(12)]
    for step in (11, 3, 7):  # resumed in any epoch
        assert torch.equal(BatchPlan(60, 12, seed=3, labels=LONG_TAIL).indices(step), before[step])
        ranks = [BatchPlan(60, 12, seed=3, rank=rank, world_size=3, labels=LONG_TAIL) for rank in range(3)]
        assert torch.equal(torch.stack([plan.indices(step) for plan in ranks], dim=1).flatten(), before[step])
    assert not torch.equal(BatchPlan(60, 12, seed=4, labels=LONG_TAIL).indices(3), before[3])


def test_balanced_repeats_come_in_a_row() -> None:
    epoch = epoch_of(BatchPlan(60, 6, repeats=3, labels=LONG_TAIL)).view(-1, 3)
    assert (epoch == epoch[:, :1]).all()
    assert torch.bincount(LONG_TAIL[epoch[:, 0]]).tolist() == [5, 0, 5, 5, 0, 5]


def test_balance_of_opened_data(tmp_path: Path) -> None:
    for number in range(1, 8):
        (photos(tmp_path) if number == 1 else tmp_path).joinpath(f"train/cat/{number}.png").unlink()
    options: Any = {"batch_size": 17, "workers": 0}
    for augmentation in (Augmentation(train_size=16), STRONG):
        plain = open_data(str(tmp_path), augmentation, **options)
        assert plain.class_counts == (8, 8, 1)
        assert plain.loader.plan.labels is None
        weighted = open_data(str(tmp_path), augmentation, balance="loss", **options)
        assert same(as_list(plain.loader.batches(0, 1)), as_list(weighted.loader.batches(0, 1)))
        balanced = open_data(str(tmp_path), augmentation, balance="sampling", **options)
        ((_, y),) = as_list(balanced.loader.batches(0, 1))
        assert sorted(torch.bincount(y).tolist()) == [5, 6, 6]
    with pytest.raises(AutomixError, match="balance must be one of none, sampling, loss"):
        open_data(str(tmp_path), STRONG, balance="rare", **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: BatchPlan(10, 5, labels=torch.zeros(9, dtype=torch.long)), "labels must be 10.* got 9"),
        (lambda: BatchPlan(10, 0), r"batch_size .*\[1, 10\]"),
        (lambda: BatchPlan(10, 11), r"batch_size .*\[1, 10\]"),
        (lambda: BatchPlan(10, 9, world_size=2, accumulate=2), "batch_size .* multiple of 4"),
        (lambda: BatchPlan(10, 2, repeats=0), "repeats .* >= 1"),
        (lambda: BatchPlan(10, 2, rank=2, world_size=2), r"rank .*\[0, 1\]"),
        (lambda: Augmentation(rand_augment="9"), "rand_augment .*MAGNITUDE/DEVIATION"),
        (lambda: Augmentation(auto_augment="x"), "auto_augment.*original, originalr"),
        (lambda: Augmentation(auto_augment="v0", rand_augment="9/0.5"), "auto_augment and rand_augment"),
        (lambda: Augmentation(test_crop=0), r"test_crop .*\(0, 1\]"),
        (lambda: Augmentation(crop_scale=0), r"crop_scale .*\(0, 1\]"),
        (lambda: Augmentation(crop_scale=1.1), r"crop_scale .*\(0, 1\]"),
        (lambda: MemoryLoader(noise_set(), BatchPlan(60, 30), crop_scale=0), r"crop_scale .*\(0, 1\]"),
        (lambda: Normalization((0.5, 0.5), (0.5, 0.5, 0.5)), "mean must be 3 numbers"),  # type: ignore[arg-type]
        (lambda: Normalization((0.5, 0.5, 0.5), (0.5, 0.0, 0.5)), "std must be > 0"),
        (lambda: Augmentation(train_size=0), "train_size.* >= 1"),
        (lambda: Augmentation(train_size=1.5), "train_size.*integer"),  # type: ignore[arg-type]
        (lambda: Augmentation(flip="no"), "flip.*true or false"),  # type: ignore[arg-type]
        (lambda: Augmentation(colour_jitter=0.4), "colour_jitter"),  # type: ignore[call-arg]
        (lambda: Augmentation(erasing=2), r"erasing.*\[0, 1\]"),
        (lambda: Augmentation(crop="x"), "crop.*none, pad, resized"),  # type: ignore[arg-type]
        (lambda: open_data("digits", STRONG, batch_size=4), "rand_augment .*'digits'.* crop and flip"),
        (lambda: open_data("digits", Augmentation(), batch_size=4, classes=11), r"classes .*\[1, 10\]"),
        (lambda: open_data("digits", Augmentation(), batch_size=4, classes=1), "classes .* >= 2"),
    ],
)
def test_wrong_input_is_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(AutomixError, match=message) as error:
        call()
    assert "\n" not in str(error.value)


# --- crops of a batch ------------------------------------------------------------------------------------------------


def test_resized_crops_are_torchvisions() -> None:
    x = torch.randint(256, (6, 3, 20, 24), dtype=torch.uint8)
    boxes = torch.tensor([[0, 0, 20, 24], [3, 5, 7, 9], [13, 0, 7, 24], [0, 23, 20, 1], [19, 23, 1, 1], [4, 4, 12, 16]])
    flip = torch.tensor([False, True, False, True, False, True])
    ours = resized_crops(x, boxes, flip, (20, 24))
    for i, (top, left, height, width) in enumerate(boxes.tolist()):
        expected = TF.resized_crop(x[i].float(), top, left, height, width, [20, 24], antialias=False)
        torch.testing.assert_close(ours[i], TF.hflip(expected) if flip[i] else expected, atol=1e-3, rtol=0)


@pytest.mark.parametrize("size", [(64, 64), (40, 90)])
def test_boxes_are_distributed_as_by_torchvision(size: tuple[int, int]) -> None:
    ours = draw_boxes(3000, size, torch.Generator().manual_seed(1)).double()
    image = torch.zeros(3, *size)
    scale, ratio = [0.08, 1.0], [3 / 4, 4 / 3]
    drawn = [T.RandomResizedCrop.get_params(image, scale, ratio) for _ in range(3000)]
    theirs = torch.tensor(drawn, dtype=torch.float64)
    for of in (lambda b: b[:, 2] * b[:, 3], lambda b: b[:, 3] / b[:, 2], lambda b: b[:, 0], lambda b: b[:, 1]):
        assert scipy.stats.ks_2samp(of(ours), of(theirs)).pvalue > 0.005
    assert (ours[:, 2:] >= 1).all()
    assert (ours[:, 0] + ours[:, 2]).max() == size[0]
    assert (ours[:, 1] + ours[:, 3]).max() == size[1]


def test_the_fallback_box_is_torchvisions() -> None:
    wide = (10, 400)
    ours = draw_boxes(5, wide, torch.Generator().manual_seed(0), scale=(0.9, 1.0))
    theirs = T.RandomResizedCrop.get_params(torch.zeros(3, *wide), [0.9, 1.0], [3 / 4, 4 / 3])
    assert ours.tolist() == [list(theirs)] * 5


# --- in memory -------------------------------------------------------------------------------------------------------


def noise_set(count: int = 60, size: int = 12) -> ImageSet:
    images = torch.randint(256, (count, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(5))
    return ImageSet(images, torch.arange(count) // 2 % 5, tuple("abcde"))


@pytest.mark.parametrize("crop", ["none", "pad", "resized"])
def test_processes_and_accumulation_in_memory_give_the_same_batches(crop: Any) -> None:
    data = noise_set()
    pieces = MemoryLoader(data, BatchPlan(60, 20, accumulate=2), crop=crop)
    processes = [MemoryLoader(data, BatchPlan(60, 20, rank=rank, world_size=2), crop=crop) for rank in range(2)]
    ours = as_list(pieces.batches(1, 5))
    theirs = [batch for step in range(1, 5) for loader in processes for batch in loader.batches(step, step + 1)]
    assert len(ours) == 8
    assert same(ours, theirs)
    assert same(ours[4:], as_list(pieces.batches(3, 5)))
    assert ours[0][0].shape == (10, 3, 12, 12)
    assert ours[0][0].is_contiguous(memory_format=torch.channels_last)


def test_crops_change_the_batches_and_not_the_data() -> None:
    data = noise_set()
    before = data.images.clone()
    plain = MemoryLoader(data, BatchPlan(60, 30), crop="none", flip=False)
    x, _ = plain.batch(0)
    assert torch.equal(x, plain.normalize(data.images[plain.plan.indices(0)]))
    for crop in ("pad", "resized"):
        other = MemoryLoader(data, BatchPlan(60, 30), crop=crop, flip=False)
        differs = (other.batch(0)[0] != x).flatten(1).any(dim=1)
        assert differs.float().mean() > 0.8
    assert torch.equal(data.images, before)


def test_statistics_are_those_of_the_pixels() -> None:
    data = noise_set(7)
    mean, std = data.statistics()
    pixels = data.images.double() / 255
    torch.testing.assert_close(mean, pixels.mean(dim=(0, 2, 3)).float())
    torch.testing.assert_close(std, pixels.std(dim=(0, 2, 3)).float())


def test_a_preview_shows_many_classes() -> None:
    data = noise_set()
    x, y = MemoryLoader(data, BatchPlan(60, 20), test=data).preview(7)
    assert y.tolist() == [0, 1, 2, 3, 4, 0, 1]
    x_all, _ = next(MemoryLoader(data, BatchPlan(60, 60), test=data).test_batches())
    assert torch.equal(x, x_all[[0, 2, 4, 6, 8, 1, 3]])


# --- streams ---------------------------------------------------------------------------------------------------------


def test_any_number_of_workers_gives_the_same_batches(tmp_path: Path) -> None:
    loaders = [open_data(str(photos(tmp_path)), STRONG, batch_size=6, accumulate=2, workers=0).loader]
    loaders += [
        open_data(str(tmp_path), STRONG, batch_size=6, accumulate=2, workers=workers).loader for workers in (1, 2)
    ]
    random.seed(3)
    np.random.seed(3)
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]
    none, one, two = (as_list(loader.batches(0, 8)) for loader in loaders)
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # type: ignore[index]
    assert before == after
    assert len(none) == 16
    assert same(none, one)
    assert same(none, two)
    assert same(none[10:], as_list(loaders[2].batches(5, 8)))  # resumed in the middle of the second epoch
    abandoned = loaders[2].batches(0, 8)
    assert same(none[:1], [next(abandoned)])
    assert same(none[6:], as_list(loaders[2].batches(3, 8)))
    assert "cannot be continued" in error_message(abandoned)
    x, y = none[0]
    assert x.shape == (3, 3, 20, 20)
    assert (x.dtype, y.dtype) == (torch.float32, torch.int64)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert two[0][0].is_contiguous(memory_format=torch.channels_last)


def test_processes_and_accumulation_on_a_stream_give_the_same_batches(tmp_path: Path) -> None:
    def loader(**options: Any) -> Any:
        return open_data(str(tmp_path), STRONG, batch_size=6, workers=0, seed=4, **options).loader

    photos(tmp_path)
    processes = [loader(rank=rank, world_size=2) for rank in range(2)]
    theirs = [batch for step in range(3) for process in processes for batch in process.batches(step, step + 1)]
    assert same(as_list(loader(accumulate=2).batches(0, 3)), theirs)
    assert not same(as_list(loader(accumulate=2).batches(0, 3)), as_list(loader(accumulate=2).batches(3, 6)))


def test_repeats_of_an_image_are_augmented_differently(tmp_path: Path) -> None:
    augmentation = Augmentation(train_size=20, crop="resized", erasing=0.1, repeats=3)
    data = open_data(str(photos(tmp_path)), augmentation, batch_size=6, workers=0)
    x, y = next(iter(data.loader.batches(0, 1)))
    assert y[0] == y[1] == y[2]
    assert not torch.equal(x[0], x[1])


@pytest.mark.parametrize("crop", ["none", "pad", "resized"])
def test_streamed_pixels_are_those_of_the_files(tmp_path: Path, crop: Any) -> None:
    """An image of one color keeps it through crops; RandomErasing and the colors are timm's."""
    for split in ("train", "test"):
        for name, value in (("dark", 60), ("light", 180)):
            (tmp_path / split / name).mkdir(parents=True)
            Image.new("RGB", (90, 70), (value, value, value)).save(tmp_path / split / name / "0.png")
    data = open_data(str(tmp_path), Augmentation(train_size=65, test_size=50, crop=crop), batch_size=2, workers=0)
    assert isinstance(data.loader, StreamLoader)
    assert data.image_size == 65
    x, y = next(iter(data.loader.batches(0, 1)))
    values = (torch.tensor([60.0, 180.0])[y].view(-1, 1) / 255 - data.loader.mean) / data.loader.std
    torch.testing.assert_close(x[:, :, 32, 32], values, atol=1e-5, rtol=0)
    inside = (x - values.view(2, 3, 1, 1)).abs().amax(dim=(1, 2, 3)) < 1e-5
    assert inside.all() or crop == "pad"
    x_test, _ = data.loader.preview(2)
    assert x_test.shape == (2, 3, 50, 50)


def test_streamed_pixels_are_normalized_as_asked(tmp_path: Path) -> None:
    half = Normalization((0.5, 0.5, 0.5), (0.5, 0.25, 0.5))
    root = str(photos(tmp_path))
    options: Any = {"batch_size": 6, "workers": 0}
    augmentation = Augmentation(train_size=65, crop="resized", color_jitter=0.4)
    ours = open_data(root, augmentation, normalization=half, **options).loader
    default = open_data(root, augmentation, **options).loader
    assert ours.mean.tolist() == [0.5, 0.5, 0.5]
    assert ours.std.tolist() == [0.5, 0.25, 0.5]
    assert default.mean.tolist() == pytest.approx(IMAGENET.mean)
    assert default.std.tolist() == pytest.approx(IMAGENET.std)
    for batches in (lambda loader: loader.batches(0, 1), lambda loader: loader.test_batches()):
        pixels = [next(iter(batches(loader)))[0] * loader.std.view(3, 1, 1) for loader in (ours, default)]
        difference = pixels[0] + ours.mean.view(3, 1, 1) - pixels[1] - default.mean.view(3, 1, 1)
        assert difference.abs().max() < 1e-5


def test_images_in_memory_are_normalized_as_asked(tmp_path: Path) -> None:
    half = Normalization((0.5, 0.4, 0.3), (0.5, 0.25, 0.5))
    loader = open_data(str(photos(tmp_path)), Augmentation(train_size=16), batch_size=6, normalization=half).loader
    assert isinstance(loader, MemoryLoader)
    assert loader.test is not None
    x, _ = next(loader.test_batches())
    torch.testing.assert_close(x, TF.normalize(loader.test.images / 255, list(half.mean), list(half.std)))
    torch.testing.assert_close(loader.mean, torch.tensor(half.mean))
    torch.testing.assert_close(loader.std, torch.tensor(half.std))


@pytest.mark.parametrize("loader", ["memory", "stream"])
def test_the_whole_image_is_kept_at_crop_scale_1(tmp_path: Path, loader: str) -> None:
    for split in ("train", "test"):
        for name in ("ant", "bee"):
            (tmp_path / split / name).mkdir(parents=True)
            Image.fromarray(np.arange(64, dtype=np.uint8).repeat(3).reshape(8, 8, 3)).save(
                tmp_path / split / name / "0.png"
            )
    options: Any = {"crop": "resized", "flip": False}
    if loader == "stream":
        options["erasing"] = 1e-9  # works on one image at a time
    whole, any_part = (
        open_data(str(tmp_path), Augmentation(**options, crop_scale=scale), batch_size=2, workers=0).loader
        for scale in (1.0, 0.08)
    )
    assert isinstance(whole, MemoryLoader if loader == "memory" else StreamLoader)
    image = whole.preview(1)[0][0]
    seen = [x for x, _ in whole.batches(0, 20)]
    # a box of the whole area and another shape than the image does not fit: the image itself remains
    assert all((x - image).abs().max() < 1e-4 for x in seen)
    assert any((x - image).abs().max() > 0.1 for x, _ in any_part.batches(0, 20))


# --- test sets -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("augmentation", [Augmentation(train_size=16), STRONG])
def test_processes_share_the_test_set(tmp_path: Path, augmentation: Augmentation) -> None:
    photos(tmp_path, per_class=7)

    def share(rank: int, world_size: int) -> tuple[Tensor, Tensor]:
        data = open_data(str(tmp_path), augmentation, batch_size=4, rank=rank, world_size=world_size, workers=0)
        parts = as_list(data.loader.test_batches())
        return torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts])

    x, y = share(0, 1)
    assert y.tolist() == [0] * 7 + [1] * 7 + [2] * 7
    for rank in range(2):
        x_share, y_share = share(rank, 2)
        assert torch.equal(x_share, x[rank::2])
        assert torch.equal(y_share, y[rank::2])


def test_test_images_are_the_same_in_memory_and_on_a_stream(tmp_path: Path) -> None:
    photos(tmp_path)
    small = Augmentation(train_size=16, test_size=20, test_crop=0.8)
    memory, stream = (
        open_data(str(tmp_path), augmentation, batch_size=4, workers=0).loader
        for augmentation in (small, Augmentation(train_size=16, test_size=20, test_crop=0.8, erasing=0.1))
    )
    assert isinstance(memory, MemoryLoader)
    assert isinstance(stream, StreamLoader)
    pixels = [
        loader.preview(5)[0] * loader.std.view(3, 1, 1) + loader.mean.view(3, 1, 1) for loader in (memory, stream)
    ]
    torch.testing.assert_close(pixels[0], pixels[1], atol=1e-5, rtol=0)


# --- open_data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("augmentation", "kind", "size"),
    [
        (Augmentation(), MemoryLoader, 30),  # the short side of the files
        (Augmentation(train_size=64), MemoryLoader, 64),
        (Augmentation(train_size=65), StreamLoader, 65),
        (Augmentation(auto_augment="original"), StreamLoader, 30),
        (Augmentation(color_jitter=0.4), StreamLoader, 30),
    ],
)
def test_small_images_are_held_in_memory(tmp_path: Path, augmentation: Augmentation, kind: type, size: int) -> None:
    data = open_data(str(photos(tmp_path)), augmentation, batch_size=4, workers=0, per_class=6, classes=2)
    assert isinstance(data.loader, kind)
    assert (data.image_size, data.train_count, data.test_count, data.classes) == (size, 12, 16, ("ant", "bee"))
    assert next(iter(data.loader.batches(0, 1)))[0].shape == (4, 3, size, size)


def test_digits_are_not_mirrored() -> None:
    loader = open_data("digits", Augmentation(), batch_size=100).loader
    assert isinstance(loader, MemoryLoader)
    assert (loader.flip, loader.padding) == (False, 2)
    assert open_data("digits", Augmentation(train_size=72), batch_size=100, per_class=10).image_size == 72


def test_runs_of_other_seeds_share_the_subset() -> None:
    def images(**options: Any) -> Tensor:
        loader = open_data("digits", Augmentation(), batch_size=10, per_class=5, **options).loader
        assert isinstance(loader, MemoryLoader)
        return loader.data.images

    assert torch.equal(images(seed=0), images(seed=1))
    assert not torch.equal(images(subset_seed=0), images(subset_seed=1))


@pytest.mark.skipif("AUTOMIX_DATA" not in os.environ, reason="AUTOMIX_DATA is not set")
@pytest.mark.parametrize(
    ("name", "augmentation", "counts", "kind"),
    [
        ("cifar100", Augmentation(), (60, 500), MemoryLoader),
        ("tiny-imagenet", Augmentation(crop="resized"), (60, 250), MemoryLoader),
        (
            "cub200",
            Augmentation(train_size=96, test_size=128, test_crop=0.875, crop="resized"),
            (60, 132),
            StreamLoader,
        ),
    ],
)
def test_real_datasets_by_name(name: str, augmentation: Augmentation, counts: tuple[int, int], kind: type) -> None:
    data = open_data(name, augmentation, batch_size=20, classes=5, per_class=12, workers=2)
    assert (data.train_count, data.test_count) == counts
    assert isinstance(data.loader, kind)
    for x, y in data.loader.batches(2, 4):
        assert x.shape == (20, 3, data.image_size, data.image_size)
        assert x.std() > 0.5
        assert int(y.max()) < 5
    assert len(data.loader.preview(5)[1].unique()) == 5


@pytest.mark.parametrize("policy", [{"rand_augment": "10/0.5"}, {"auto_augment": "v0"}, {"auto_augment": "3a"}])
def test_the_strongest_policies_work_with_any_pillow(policy: dict[str, Any]) -> None:
    """timm's Posterize at full strength asks Pillow for no bits at all, which Pillow 13 refuses."""
    transform = train_transform(Augmentation(train_size=8, **policy), 8, IMAGENET)
    image = Image.fromarray(np.full((8, 8, 3), 255, dtype=np.uint8))
    random.seed(0)
    np.random.seed(0)
    for _ in range(600):
        assert transform(image).size == (8, 8)
