"""The cache of decoded images: the same batches with and without it, and what it keeps."""

import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision.transforms as T
from PIL import Image
from timm.data import create_transform
from torch import Tensor

from automix.core.errors import AutomixError
from automix.core.normalization import IMAGENET
from automix.data import Augmentation, Data, ImageFiles, decode_cache, open_data, read_image
from automix.data.decode import read_size
from automix.data.decode_cache import CachedImages, CachePlan, plan_cache
from automix.data.stream_loader import StreamLoader

COLORS = Augmentation(train_size=70, test_size=66, test_crop=0.9, crop="resized", color_jitter=0.3)
ERASED = Augmentation(train_size=70, crop="pad", erasing=0.5)
Batches = list[tuple[Tensor, Tensor]]


def photos(root: Path, sizes: tuple[tuple[int, int], ...] = ((90, 120), (100, 80), (75, 75), (130, 95))) -> Path:
    """Two classes of JPEG noise, each with one image on its side (EXIF orientation 6) and one in grayscale."""
    noise = np.random.default_rng(0)
    for split in ("train", "test"):
        for name in ("ant", "bee"):
            (root / split / name).mkdir(parents=True)
            for number, (width, height) in enumerate(sizes):
                image = Image.fromarray(noise.integers(256, size=(height, width, 3), dtype=np.uint8))
                exif = Image.Exif()
                if number == 0:
                    exif[0x0112] = 6
                if number == 1:
                    image = image.convert("L")
                image.save(root / split / name / f"{number}.jpg", exif=exif)
    return root


def opened(root: Path, augmentation: Augmentation = COLORS, **options: Any) -> Data:
    return open_data(str(root), augmentation, **{"batch_size": 4, "workers": 0, **options})


def as_list(batches: Any) -> Batches:
    return list(batches)


def same(first: Batches, second: Batches) -> bool:
    pairs = zip(first, second, strict=True)
    return all(torch.equal(x, other_x) and torch.equal(y, other_y) for (x, y), (other_x, other_y) in pairs)


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of the files that are decoded from now on, in this process."""
    reads: list[str] = []

    def read(path: str, **options: Any) -> Any:
        reads.append(path)
        return read_image(path, **options)

    monkeypatch.setattr(decode_cache, "read_image", read)
    return reads


@pytest.mark.parametrize("augmentation", [COLORS, ERASED])
def test_batches_are_the_same_to_the_bit_with_and_without_the_cache(tmp_path: Path, augmentation: Augmentation) -> None:
    photos(tmp_path)
    plain = opened(tmp_path, augmentation, decode_cache="off")
    assert plain.cache == CachePlan()
    expected, tests = as_list(plain.loader.batches(0, 6)), as_list(plain.loader.test_batches())
    for workers in (0, 1, 2):
        cached = opened(tmp_path, augmentation, workers=workers)
        assert cached.cache.bytes > 0
        assert same(as_list(cached.loader.batches(0, 6)), expected)  # three epochs: from files, then from memory
        assert same(as_list(cached.loader.batches(3, 6)), expected[3:])  # resumed in the middle of an epoch
        assert same(as_list(cached.loader.test_batches()), tests)
        assert same(as_list(cached.loader.test_batches()), tests)
    resumed = opened(tmp_path, augmentation).loader  # nothing kept yet
    assert same(as_list(resumed.batches(3, 6)), expected[3:])


def test_processes_and_accumulation_give_the_same_batches(tmp_path: Path) -> None:
    photos(tmp_path)
    processes = [opened(tmp_path, rank=rank, world_size=2).loader for rank in range(2)]
    theirs = [batch for step in range(4) for process in processes for batch in process.batches(step, step + 1)]
    assert same(as_list(opened(tmp_path, accumulate=2).loader.batches(0, 4)), theirs)


def test_a_file_is_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path)
    reads = count_reads(monkeypatch)
    loader = opened(tmp_path).loader
    first = as_list(loader.batches(0, 2))
    assert len(reads) == len(set(reads)) == 8
    as_list(loader.batches(2, 6))
    assert same(as_list(loader.batches(0, 2)), first)
    assert len(reads) == 8
    as_list(loader.test_batches())
    loader.preview(3)
    as_list(loader.test_batches())
    assert len(reads) == 16


def test_workers_share_what_they_decode(tmp_path: Path) -> None:
    loader = opened(photos(tmp_path), workers=2).loader
    assert isinstance(loader, StreamLoader)
    expected, tests = as_list(loader.batches(0, 4)), as_list(loader.test_batches())
    for path in [*tmp_path.glob("*/*/*.jpg")]:
        path.unlink()
    assert same(as_list(loader.batches(0, 4)), expected)
    assert same(as_list(loader.test_batches()), tests)  # by new workers


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_other_processes_see_what_is_stored(tmp_path: Path, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = tuple(str(path) for path in sorted(photos(tmp_path).glob("train/*/*.jpg")))
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: method)
    files = ImageFiles(paths, torch.arange(len(paths)) % 2, ("ant", "bee"))
    images = CachedImages(files, read_image, [width * height for width, height in map(size_of, paths)], workers=1)
    context: Any = torch.multiprocessing.get_context(method)  # without Process in the stubs
    process = context.Process(target=images.read, args=(2,))
    process.start()
    process.join()
    assert process.exitcode == 0
    expected = read_image(paths[2])
    Path(paths[2]).unlink()
    image, label = images.read(2)
    assert label == 0
    assert np.array_equal(np.asarray(image), np.asarray(expected))


def size_of(path: str) -> tuple[int, int]:
    size = read_size(path)
    assert size is not None
    return size


def test_test_images_are_those_of_timms_transform(tmp_path: Path) -> None:
    photos(tmp_path)
    transform = create_transform(66, crop_pct=0.9, interpolation="bicubic", mean=IMAGENET.mean, std=IMAGENET.std)
    expected = [transform(read_image(str(path))) for path in sorted(tmp_path.glob("test/*/*.jpg"))]
    for caching in ("auto", "off"):
        ((x, _),) = as_list(opened(tmp_path, decode_cache=caching).loader.test_batches())
        assert torch.equal(x, torch.stack(expected))
        assert x.is_contiguous(memory_format=torch.channels_last)


def test_training_pixels_are_those_of_to_tensor_and_normalize(tmp_path: Path) -> None:
    photos(tmp_path)
    whole = Augmentation(train_size=70, crop="none", flip=False)
    data = opened(tmp_path, whole, batch_size=8)
    ((x, _),) = as_list(data.loader.batches(0, 1))
    steps = [T.Resize(70, T.InterpolationMode.BICUBIC), T.CenterCrop(70), T.ToTensor()]
    transform = T.Compose([*steps, T.Normalize(IMAGENET.mean, IMAGENET.std)])
    expected = [transform(read_image(str(path))) for path in sorted(tmp_path.glob("train/*/*.jpg"))]
    order = data.loader.plan.indices(0).tolist()
    assert torch.equal(x, torch.stack([expected[index] for index in order]))


# --- what is kept ----------------------------------------------------------------------------------------------------


def listed(root: Path) -> tuple[ImageFiles, ImageFiles]:
    paths = [tuple(str(path) for path in sorted(root.glob(f"{split}/*/*.jpg"))) for split in ("train", "test")]
    one, two = (ImageFiles(part, torch.arange(len(part)) % 2, ("ant", "bee")) for part in paths)
    return one, two


def planned(root: Path, caching: Any = "auto", train_size: int = 30, processes: int = 1) -> CachePlan:
    train, test = listed(root)
    return plan_cache(train, test, train_size=train_size, test_size=30, caching=caching, processes=processes)


def test_the_bytes_are_those_of_the_images(tmp_path: Path) -> None:
    plan = planned(photos(tmp_path))
    assert plan.bytes == 3 * 2 * (90 * 120 + 100 * 80 + 75 * 75 + 130 * 95) + 3 * 8 * 30 * 30
    assert (plan.short_side, plan.reduced) == (None, 0)
    assert plan.describe() == "decoded images are kept in memory: 0 MB"


def test_photographs_are_reduced_only_where_they_would_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path)
    monkeypatch.setattr(decode_cache, "LIMIT", 150_000)  # the images have 221,550 bytes
    plan = planned(tmp_path)
    assert (plan.short_side, plan.reduced) == (60, 8)
    sizes = [(60, 80), (75, 60), (60, 60), (82, 60)] * 2
    assert plan.train_pixels == tuple(width * height for width, height in sizes)
    assert "8 photographs are reduced to a short side of 60 px" in plan.describe()
    assert planned(tmp_path, "exact") == planned(tmp_path, "off") == CachePlan()
    assert planned(tmp_path, train_size=60) == CachePlan()  # twice the training size does not fit either


def test_reduced_photographs_do_not_depend_on_memory_processes_and_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    photos(tmp_path)
    monkeypatch.setattr(decode_cache, "LIMIT", 150_000)
    small = Augmentation(train_size=30, crop="resized", erasing=0.1)  # not held in memory as a whole
    expected = as_list(opened(tmp_path, small).loader.batches(0, 6))
    assert not same(expected, as_list(opened(tmp_path, small, decode_cache="off").loader.batches(0, 6)))
    assert same(as_list(opened(tmp_path, small, workers=2).loader.batches(0, 6)), expected)
    monkeypatch.setattr(decode_cache, "available_memory", lambda: 0)
    without = opened(tmp_path, small)
    assert (without.cache.bytes, without.cache.short_side) == (0, 60)
    assert same(as_list(without.loader.batches(0, 6)), expected)


def test_the_memory_is_shared_by_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos(tmp_path)
    monkeypatch.setattr(decode_cache, "available_memory", lambda: 1_000_000)
    assert planned(tmp_path, processes=2).train_pixels is not None
    assert planned(tmp_path, processes=2).test_pixels is not None  # 243,150 of 250,000 bytes
    assert planned(tmp_path, processes=3) == CachePlan()
    assert decode_cache.available_memory() == 1_000_000


def test_available_memory_is_a_part_of_the_machines() -> None:
    assert 2**20 < decode_cache.available_memory() < 2**50


def test_a_reduced_photograph_is_the_resized_one(tmp_path: Path) -> None:
    """A smooth image, since a JPEG may be decoded at half its size, which is another filter."""
    ramp = np.add.outer(np.arange(400), np.arange(600))
    smooth = np.stack([ramp / 4, 255 - ramp / 4, ramp / 8], axis=2).astype(np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(smooth).save(tmp_path / "a.jpg", quality=98, exif=exif)
    Image.fromarray(smooth).convert("P").save(tmp_path / "a.png")
    for name in ("a.jpg", "a.png"):
        whole, reduced = read_image(tmp_path / name), read_image(tmp_path / name, short_side=90)
        assert reduced.size == ((90, 135) if name == "a.jpg" else (135, 90))
        difference = np.asarray(whole.resize(reduced.size)).astype(int) - np.asarray(reduced)
        assert np.abs(difference).max() <= 3
        assert np.array_equal(np.asarray(read_image(tmp_path / name, short_side=400)), np.asarray(whole))


def test_broken_files_are_reported_as_without_the_cache(tmp_path: Path) -> None:
    photos(tmp_path)
    (tmp_path / "train/ant/9.jpg").write_bytes(b"no image")
    cut = (tmp_path / "train/bee/0.jpg").read_bytes()
    (tmp_path / "train/bee/0.jpg").write_bytes(cut[: len(cut) // 2])
    messages = []
    for caching in ("auto", "off"):
        with pytest.raises(AutomixError) as caught:
            as_list(opened(tmp_path, decode_cache=caching).loader.batches(0, 2))
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
    assert "cannot be read as an image" in messages[0]


def test_wrong_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AutomixError, match="decode_cache must be one of auto, exact, off; got 'on'"):
        opened(photos(tmp_path), decode_cache="on")
