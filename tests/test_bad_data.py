"""Unusual files are read; broken files end the run or are left out of it."""

import io
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tarfile
import types
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from PIL import Image
from rich.console import Console
from safetensors.torch import load_file

from automix.cli import main as cli
from automix.data import (
    Augmentation,
    BadImage,
    Data,
    ImageFiles,
    ImageSet,
    OtherDataError,
    ReadingError,
    StreamLoader,
    open_data,
)
from automix.data.bad_files import SkippedFile, find_bad_files, read_skipped, write_skipped
from automix.data.decode import read_image
from automix.data.folders import EXTENSIONS
from automix.data.open import open_dataset
from automix.data.readers import ReaderSet
from automix.evaluation.inputs import open_inputs
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder
from automix.runs.recipes import find_recipe
from automix.training import Silent, Stopped, display, train
from automix.training.run import Run

SMALL = Augmentation(train_size=8, crop="none", flip=False)
LARGE = Augmentation(train_size=65, crop="none", flip=False)
WAYS: dict[str, tuple[Augmentation, int]] = {"memory": (SMALL, 0), "stream": (LARGE, 0), "workers": (LARGE, 2)}
every_way = pytest.mark.parametrize("way", WAYS)


def open_way(way: str, root: Path, **options: Any) -> Data:
    augmentation, workers = WAYS[way]
    return open_data(str(root), augmentation, **{"batch_size": 1, "workers": workers, **options})


def colors(loader: Any, x: torch.Tensor) -> torch.Tensor:
    """The color in the middle of each image, 0 to 255."""
    at = x.shape[-1] // 2
    return ((x[:, :, at, at] * loader.std + loader.mean) * 255).round().int()


# --- files that are odd but sound ------------------------------------------------------------------------------------

COLOR = (200, 100, 50)
GRAY = (117, 117, 117)  # 30000 of 65535


def png(width: int, height: int, bits: int, kind: int, rows: bytes) -> bytes:
    """A PNG written by hand: Pillow writes no 16-bit colors, and no header that lies."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def plain(mode: str = "RGB", color: Any = COLOR, size: tuple[int, int] = (12, 10)) -> Image.Image:
    return Image.new(mode, size, color)


def palette(unused: int = 0) -> Image.Image:
    image = Image.new("P", (12, 10), 1)
    image.putpalette([9, 9, 9, *COLOR, 0, 255, 0])
    image.putpixel((0, 0), unused)
    return image


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    content = io.BytesIO()
    image.save(content, format, **options)
    return content.getvalue()


def sixteen_bits() -> Image.Image:
    return Image.fromarray(np.full((10, 12), 30000, dtype=np.uint16))


def animation(format: str, **options: Any) -> bytes:
    others = [plain(color=(0, 0, 255)), plain(color=(0, 255, 0))]
    return encoded(plain(), format, save_all=True, append_images=others, **options)


SOUND: dict[str, tuple[Callable[[], bytes], tuple[int, int, int]]] = {
    "plain.png": (lambda: encoded(plain(), "PNG"), COLOR),
    "cmyk.jpg": (lambda: encoded(plain("CMYK", (55, 155, 205, 0)), "JPEG", quality=100), COLOR),
    "cmyk.tif": (lambda: encoded(plain("CMYK", (55, 155, 205, 0)), "TIFF"), COLOR),
    "gray-16-bit.png": (lambda: encoded(sixteen_bits(), "PNG"), GRAY),
    "gray-16-bit.tif": (lambda: encoded(sixteen_bits(), "TIFF"), GRAY),
    "gray-16-bit.pgm": (lambda: encoded(sixteen_bits(), "PPM"), GRAY),
    "color-16-bit.png": (
        lambda: png(12, 10, 16, 2, (b"\0" + struct.pack(">3H", *(257 * c for c in COLOR)) * 12) * 10),
        COLOR,
    ),
    "palette.png": (lambda: encoded(palette(), "PNG"), COLOR),
    "palette-transparent.png": (lambda: encoded(palette(), "PNG", transparency=0), COLOR),
    "palette-alphas.png": (lambda: encoded(palette(), "PNG", transparency=bytes([0, 128, 255])), COLOR),
    "transparent.png": (lambda: encoded(plain("RGBA", (*COLOR, 0)), "PNG"), COLOR),
    "one-bit.png": (lambda: encoded(plain("1", 1), "PNG"), (255, 255, 255)),
    "animated.gif": (lambda: animation("GIF"), COLOR),
    "animated.png": (lambda: animation("PNG"), COLOR),
    "animated.webp": (lambda: animation("WEBP", lossless=True), COLOR),
    "one-pixel.png": (lambda: encoded(plain(size=(1, 1)), "PNG"), COLOR),
    "long.png": (lambda: encoded(plain(size=(60_000, 1)), "PNG"), COLOR),
    "tall.png": (lambda: encoded(plain(size=(3, 20_000)), "PNG"), COLOR),
    "png-in-truth.jpg": (lambda: encoded(plain(), "PNG"), COLOR),
    "jpeg-in-truth.png": (lambda: encoded(plain(), "JPEG", quality=100), COLOR),
}


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All sound files, each a class of its own, with files beside them that are not meant to be images."""
    root = tmp_path_factory.mktemp("odd")
    for name, (content, _) in SOUND.items():
        for split in ("train", "test"):
            folder = root / split / name.replace(".", "-")
            folder.mkdir(parents=True)
            (folder / name).write_bytes(content())
            (folder / "notes.txt").write_text("no image, and not listed as one")
    return root


@every_way
@pytest.mark.parametrize("bad_data", ["fail", "skip"])
def test_sound_files_are_read_with_their_colors(way: str, bad_data: Any, odd: Path) -> None:
    data = open_way(way, odd, batch_size=len(SOUND), bad_data=bad_data)
    assert data.skipped == (() if bad_data == "skip" else None)
    for x, y in (next(iter(data.loader.batches(0, 1))), next(iter(data.loader.test_batches()))):
        assert sorted(y.tolist()) == list(range(len(SOUND)))
        expected = {name.replace(".", "-"): color for name, (_, color) in SOUND.items()}
        for label, color in zip(y.tolist(), colors(data.loader, x).tolist(), strict=True):
            assert color == pytest.approx(expected[data.classes[label]], abs=2), data.classes[label]


def test_sixteen_bit_values_are_scaled_not_clipped(tmp_path: Path) -> None:
    """Scaled, not clipped: a ramp stays a ramp."""
    ramp = np.linspace(0, 65535, 256, dtype=np.uint16).reshape(1, 256)
    Image.fromarray(ramp).save(tmp_path / "ramp.png")
    read = np.asarray(read_image(tmp_path / "ramp.png"))
    assert read.shape == (1, 256, 3)
    assert (read[0] == np.round(ramp[0] / 257).reshape(-1, 1)).all()


def test_a_thin_image_is_cropped_as_if_resized_whole_without_the_memory(tmp_path: Path) -> None:
    """And takes no gigabytes: 60,000 x 1 px brought to 224 would be 3,010 million pixels."""
    from automix.data.image_set import resize_and_crop

    pixels = np.random.default_rng(0).integers(256, size=(3, 603, 3), dtype=np.uint8)
    long = Image.fromarray(pixels)
    whole = long.resize((8 * 201, 8), Image.Resampling.BICUBIC).crop((4 * 201 - 4, 0, 4 * 201 + 4, 8))
    difference = np.asarray(resize_and_crop(long, long.size, 8)).astype(int) - np.asarray(whole)
    assert np.abs(difference).max() <= 8  # of noise, whose pixels differ by 85 on average
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert resize_and_crop(plain(size=(60_000, 1)), (60_000, 1), 224).size == (224, 224)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_the_median_image_decides_the_size(tmp_path: Path) -> None:
    for split in ("train", "test"):
        for name in "ab":
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            for number in range(6):
                plain(size=(1, 1) if (name, number) == ("a", 0) else (20, 16)).save(folder / f"{number}.png")
    assert open_data(str(tmp_path), Augmentation(), batch_size=2).image_size == 16


# --- files that are broken -------------------------------------------------------------------------------------------


def noise(format: str, size: int = 64) -> bytes:
    pixels = np.random.default_rng(1).integers(256, size=(size, size, 3), dtype=np.uint8)
    return encoded(Image.fromarray(pixels), format)


def floats() -> bytes:
    values = np.full((10, 12), 0.5, dtype=np.float32)
    values[3, 4] = np.nan
    return encoded(Image.fromarray(values), "TIFF")


def write(content: bytes) -> Callable[[Path], None]:
    def spoil(path: Path) -> None:
        path.write_bytes(content)

    return spoil


def unreadable(path: Path) -> None:
    path.write_bytes(noise("PNG"))
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("whoever runs this may read every file (root)")


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "empty.png": (write(b""), "the file is empty"),
    "truncated.jpg": (write(noise("JPEG")[:2000]), "truncated"),
    "truncated.png": (write(noise("PNG")[:5000]), "."),
    "header.jpg": (write(noise("JPEG")[:30]), "."),
    "text.jpg": (write(b"<html>404 not found</html>"), "no format that Pillow knows"),
    "bomb.png": (write(png(60_000, 60_000, 8, 0, b"")), "exceeds limit of"),
    "large.png": (write(png(10_000, 10_000, 1, 0, bytes(1251 * 10_000))), "89478485 pixels"),
    "nan.tif": (write(floats()), "floating-point numbers"),
    "32-bit.tif": (write(encoded(Image.new("I", (12, 10), 70_000), "TIFF")), "more than 16 bits"),
    "gone.png": (lambda path: path.symlink_to("nowhere.png"), "No such file or directory"),
    "unreadable.png": (unreadable, "Permission denied"),
}


def numbered(root: Path, count: int = 5) -> Path:
    """Two classes of images whose gray value tells which one it is: 100 x label + 10 x number, and 5 more in test/."""
    for split, more in (("train", 0), ("test", 5)):
        for label, name in enumerate(("ant", "bee")):
            (root / split / name).mkdir(parents=True)
            for number in range(count):
                value = 100 * label + 10 * number + more
                plain(color=(value,) * 3).save(root / split / name / f"{number}.png")
    return root


def read_all(data: Data) -> list[list[tuple[int, int]]]:
    """(gray value, label) of all images, first those of an epoch, then those of the test set."""
    return [
        sorted(
            (value, label)
            for x, y in batches
            for value, label in zip(colors(data.loader, x)[:, 0].tolist(), y.tolist(), strict=True)
        )
        for batches in (data.loader.batches(0, len(data.loader)), data.loader.test_batches())
    ]


def error_message(call: Callable[[], Any]) -> str:
    """Not by pytest.raises: it keeps the frames, hence the workers, and to collect those takes seconds."""
    try:
        call()
    except (BadImage, ReadingError) as error:
        return str(error)
    return "no error"


@every_way
@pytest.mark.parametrize("kind", BROKEN)
def test_fail_names_a_broken_file_in_one_line(kind: str, way: str, tmp_path: Path) -> None:
    spoil, reason = BROKEN[kind]
    for split in ("train", "test"):
        root = numbered(tmp_path / split, count=2)
        spoil(root / split / "ant" / f"0-{kind}")
        message = error_message(lambda root=root: read_all(open_way(way, root)))  # type: ignore[misc]
        assert message.startswith(f"{root / split / 'ant'}/0-{kind}: cannot be read as an image (")
        assert re.search(reason, message)
        assert "\n" not in message


@every_way
@pytest.mark.parametrize("kind", BROKEN)
def test_skip_leaves_a_broken_file_out_and_the_rest_as_it_was(kind: str, way: str, tmp_path: Path) -> None:
    root = numbered(tmp_path)
    sound = read_all(open_way(way, root))
    for split, name in (("train", "ant"), ("train", "bee"), ("test", "ant")):
        BROKEN[kind][0](root / split / name / f"1-{kind}")
    data = open_way(way, root, bad_data="skip")
    assert read_all(data) == sound
    assert (data.train_count, data.test_count) == (10, 10)
    assert data.file_counts() == {"training": 12, "testing": 11}
    assert data.skipped is not None
    assert [(file.use, file.position, file.path) for file in data.skipped] == [
        ("training", 1, f"{root}/train/ant/1-{kind}"),
        ("training", 7, f"{root}/train/bee/1-{kind}"),
        ("testing", 1, f"{root}/test/ant/1-{kind}"),
    ]
    assert all(re.search(BROKEN[kind][1], file.error) for file in data.skipped)


def test_an_enormous_image_costs_neither_memory_nor_a_warning(tmp_path: Path) -> None:
    """In a process of its own, where warnings are shown and not turned into errors as they are here."""
    paths = []
    for name in ("bomb.png", "large.png"):
        BROKEN[name][0](tmp_path / name)
        paths.append(str(tmp_path / name))
    code = (
        "import resource, sys\n"
        "from automix.data.decode import BadImage, read_image\n"
        "from PIL import Image; Image.init()\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for path in sys.argv[1:]:\n"
        "    try: read_image(path)\n"
        "    except BadImage as error: print(error)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *paths], capture_output=True, text=True, check=True)
    *messages, kilobytes = done.stdout.splitlines()
    assert [message.split(":")[0] for message in messages] == paths
    assert int(kilobytes) < 20_000
    assert done.stderr == ""


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM"])
def test_damaged_files_raise_bad_image(format: str, tmp_path: Path) -> None:
    """Bits flipped, bytes missing: an image or a BadImage of one line, never anything else."""
    draw = random.Random(format)
    whole = noise(format, size=24)
    path = tmp_path / "damaged"
    bad = 0
    for _ in range(150):
        content = bytearray(whole[: draw.randint(1, len(whole))] if draw.random() < 0.3 else whole)
        for _ in range(draw.choice((1, 1, 4, 30))):
            content[int(len(content) * draw.random() ** 3)] ^= 1 << draw.randrange(8)  # mostly in the header
        path.write_bytes(content)
        message = error_message(lambda: read_image(str(path)))
        if message != "no error":
            bad += 1
            assert message.startswith(f"{path}: cannot be read as an image (")
            assert "\n" not in message
    assert bad > 20


def test_fail_reads_nothing_in_advance(tmp_path: Path) -> None:
    root = numbered(tmp_path)
    for path in root.rglob("*.png"):
        path.write_bytes(b"")
    assert open_way("stream", root, batch_size=4).train_count == 10


def test_a_class_without_images_is_refused(tmp_path: Path) -> None:
    root = numbered(tmp_path)
    for path in (root / "train" / "bee").iterdir():
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"^class 'bee': none of its 5 training images can be read"):
        open_way("stream", root, bad_data="skip")
    for path in (root / "test").rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match=r"^none of the 10 files for testing can be read; the first: .*0\.png"):
        open_way("stream", root, bad_data="skip")
    for path in (root / "train" / "bee").iterdir():
        path.rename(path.with_suffix(".txt"))
    with pytest.raises(ValueError, match=rf"^{root}/train/bee: no image in it"):
        open_way("stream", root, bad_data="skip")
    assert {".gif", ".jpg", ".png"} < set(EXTENSIONS)


def test_bad_data_is_fail_or_skip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match=r"bad_data.*fail, skip"):
        open_data("digits", Augmentation(), batch_size=4, bad_data="maybe")  # type: ignore[arg-type]
    assert cli.run(["train", "digits", "--bad-data", "maybe"]) == 2
    error = capsys.readouterr().err
    assert "bad" in error
    assert error.count("\n") == 1


def test_system_errors_are_not_blamed_on_the_file(tmp_path: Path) -> None:
    """With no file descriptor left nothing can be read; to skip everything would be wrong."""
    train_set, test_set = open_dataset(str(numbered(tmp_path)))
    train_set.read(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    spare = os.open(os.devnull, os.O_RDONLY)  # the lowest free number
    os.close(spare)
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare, hard))
    try:
        message = error_message(lambda: find_bad_files(train_set, test_set, 1))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert message == f"{tmp_path}/train/ant/0.png: Too many open files"


# --- sets that are not folders of images -----------------------------------------------------------------------------


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))


def gray(value: int) -> bytes:
    return encoded(plain(color=(value,) * 3), "PNG")


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # timm's reader leaves closing to the collector
@pytest.mark.parametrize("workers", [0, 2])
def test_skip_in_tar_files(workers: int, tmp_path: Path) -> None:
    files = {"ant/0.png": gray(10), "ant/1.png": b"", "ant/2.png": gray(20), "bee/0.png": gray(30), "bee/1.png": b"x"}
    for name in ("train.tar", "val.tar"):
        write_tar(tmp_path / name, files)
    options: dict[str, Any] = {"batch_size": 1, "workers": workers}
    message = error_message(lambda: read_all(open_data(str(tmp_path), LARGE, **options)))
    assert re.match(rf"{tmp_path}/train\.tar: (ant/1|bee/1)\.png: cannot be read as an image \(no format", message)
    data = open_data(str(tmp_path), LARGE, bad_data="skip", **options)
    assert read_all(data) == [[(10, 0), (20, 0), (30, 1)]] * 2
    assert data.skipped is not None
    assert [file.path for file in data.skipped if file.use == "training"] == [
        f"{tmp_path}/train.tar: ant/1.png",
        f"{tmp_path}/train.tar: bee/1.png",
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_skip_in_shards(workers: int, tmp_path: Path) -> None:
    samples = {"0.png": gray(10), "0.cls": b"0", "1.png": b"", "1.cls": b"1", "2.png": gray(30), "2.cls": b"1"}
    for name in ("train.tar", "val.tar"):
        write_tar(tmp_path / "pets" / name, samples)
    options: dict[str, Any] = {"batch_size": 1, "workers": workers, "root": tmp_path}
    message = error_message(lambda: read_all(open_data("wds/pets", LARGE, **options)))
    assert re.match(rf"{tmp_path}/pets/train\.tar, image at byte \d+: cannot be read as an image", message)
    data = open_data("wds/pets", LARGE, bad_data="skip", **options)
    assert read_all(data) == [[(10, 0), (30, 1)]] * 2
    assert data.skipped is not None
    assert len(data.skipped) == 2


class Torchvisions:
    """A set as torchvision has them, given as images and labels."""

    class_to_idx = {"ant": 0, "bee": 1}  # noqa: RUF012

    def __init__(self, *items: tuple[Any, Any]) -> None:
        self.items = items

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        return self.items[index]


def test_readers_name_wrong_labels_and_images() -> None:
    """A label outside the range and NaN pixels are named, and left out on request."""
    items = (plain(), 1), (plain(), 2), (torch.full((3, 8, 8), float("nan")), 0), (plain("L", 7), 0), (plain(), -1)
    data = ReaderSet("torch/mine", Torchvisions(*items))
    assert error_message(lambda: data.read(1)) == "torch/mine, image 1: label must be in [0, 1], got 2"
    assert "torch/mine, image 2: cannot be read as an image (it must be a PIL image, got Tensor" in error_message(
        lambda: data.read(2)
    )
    bad = find_bad_files(data, data, 2)
    assert [(file.use, file.position) for file in bad] == [
        (use, i) for use in ("training", "testing") for i in (1, 2, 4)
    ]
    left = data.take(torch.tensor([0, 3]))
    assert [label for _, label in map(left.read, range(len(left)))] == [1, 0]
    assert error_message(lambda: data.take(torch.tensor([3, 4])).read(1)).startswith("torch/mine, image 4: label ")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: ImageFiles(("a.png", "b.png"), torch.tensor([0, 3]), ("x", "y")),
            "b.png: label must be in [0, 1], got 3",
        ),
        (
            lambda: ImageSet(torch.zeros(2, 3, 4, 4, dtype=torch.uint8), torch.tensor([-1, 0]), ("x",)),
            "image 0: label must be in [0, 0], got -1",
        ),
        (
            lambda: ImageSet(torch.full((1, 3, 4, 4), float("nan")), torch.tensor([0]), ("x",)),
            "images must be torch.uint8 (values 0 to 255), got torch.float32",
        ),
    ],
)
def test_labels_and_pixels_are_checked_where_they_are_given(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        call()


@pytest.mark.parametrize(
    ("split", "label", "message"),
    [
        ("train", "-1", r"train\.tar: .*1\.cls: label .*\[0, .*'-1'"),
        ("train", "4000000000", r"train\.tar: .*1\.cls: label .*'4000000000'"),
        ("val", "7", r"val\.tar, image at byte \d+: label .*\[0, 1\], got 7"),
    ],
)
def test_labels_of_shards_are_checked(split: str, label: str, message: str, tmp_path: Path) -> None:
    for name in ("train", "val"):
        files = {"0.png": gray(1), "0.cls": b"1", "1.png": gray(2), "1.cls": label.encode() if name == split else b"0"}
        write_tar(tmp_path / "pets" / f"{name}.tar", files)
    with pytest.raises(ValueError, match=message) as error:
        open_dataset("wds/pets", tmp_path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "files", "message"),
    [
        (
            "tiny-imagenet-200",
            {
                "wnids.txt": "n1\n",
                "words.txt": "n1\tcat\n",
                "train/n1/n1_boxes.txt": "a.png\t0\t0\t9\t9\n",
                "val/val_annotations.txt": "b.png\tn7\t0\t0\t9\t9\n",
            },
            "val/val_annotations.txt: 'n7' is unknown",
        ),
        (
            "CUB_200_2011",
            {
                "images.txt": "1 a.png\n2 b.png\n",
                "image_class_labels.txt": "1 1\n2 9\n",
                "classes.txt": "1 001.Cat\n",
                "train_test_split.txt": "1 1\n2 0\n",
                "bounding_boxes.txt": "1 0 0 9 9\n2 0 0 9 9\n",
            },
            "image_class_labels.txt: '9' is unknown",
        ),
        (
            "inat2017",
            {
                "train2017.json": '{"categories": [{"id": 4, "name": "cat"}], "annotations": [], "images": []}',
                "val2017.json": '{"annotations": [{"image_id": 1, "category_id": 5}], "images": []}',
            },
            "val2017.json: 5 is unknown",
        ),
        (
            "places205",
            {
                "images256/a/abbey/1.jpg": "",
                "trainvalsplit_places205/train_places205.csv": "a/abbey/1.jpg 0\n",
                "trainvalsplit_places205/val_places205.csv": "a/abbey/2.jpg 205\n",
            },
            "images256/a/abbey/2.jpg: label must be in [0, 0], got 205",
        ),
    ],
)
def test_labels_in_the_lists_of_datasets_are_checked(
    name: str, files: dict[str, str], message: str, tmp_path: Path
) -> None:
    for file, text in files.items():
        (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name / file).write_text(text)
    with pytest.raises(ValueError, match=f"^{re.escape(str(tmp_path / name / message))}") as error:
        open_dataset(str(tmp_path / name))
    assert "\n" not in str(error.value)


# --- runs ------------------------------------------------------------------------------------------------------------


def spoiled(photos: Path, root: Path) -> tuple[Path, list[str]]:
    """A copy of the photos with broken files among them, and the paths of those."""
    for path in photos.rglob("*.png"):
        target = root / path.relative_to(photos)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    added = [("train/a/0-empty.png", b""), ("train/c/2-text.jpg", b"text"), ("test/b/1-cut.png", noise("PNG")[:3000])]
    for name, content in added:
        (root / name).write_bytes(content)
    return root, [str(root / name) for name, _ in added]


def configure(folder: Path, out: Path, **changes: Any) -> TrainConfig:
    """3 epochs of 3 steps of 12 images, a checkpoint after every step."""
    settings = {name: changes.pop(name) for name in list(changes) if hasattr(find_recipe("quick"), name)}
    return TrainConfig(
        data=str(folder),
        method="mixup",
        out=str(out),
        model_options={"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]},
        checkpoint_minutes=0,
        settings=replace(find_recipe("quick"), **{"epochs": 3, "batch_size": 12, **settings}),
        **changes,
    )


def final_state(folder: Path) -> dict[str, bytes]:
    tensors = load_file(folder / "checkpoint.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}


def test_a_run_lists_the_skipped_files(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, bad = spoiled(photos, tmp_path / "photos")
    run = tmp_path / "run"
    line = ["train", str(folder), "--out", str(run), "--method", "mixup", "--epochs", "1", "--batch-size", "12"]
    line += ["--model-options.layers", "[1,1,1,1]", "--model-options.channels", "[8,8,8,8]"]
    assert cli.run([*line, "--bad-data", "fail"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert any(path in error for path in bad)
    assert cli.run([*line, "--bad-data", "skip"]) == 0
    out = capsys.readouterr().out
    assert "36 training and 12 test images" in out
    assert f"bad files left out: 2 of 38 for training, 1 of 13 for testing; all of them in {run}/skipped.json" in out
    assert [f"  {path}: cannot be read as an image (" in out for path in bad] == [True] * 3
    assert json.loads((run / "summary.json").read_text())["skipped_files"] == bad
    # What was trained on is what the photos without the broken files give, label by label.
    same = train(configure(photos, tmp_path / "clean", epochs=1))
    assert "skipped_files" not in same
    spoilt = configure(folder, tmp_path / "again", epochs=1, bad_data="skip")
    assert train(spoilt)["student_top1"] == same["student_top1"]
    assert final_state(tmp_path / "clean") == final_state(tmp_path / "again")


@pytest.mark.parametrize("options", [{}, {"classes": 2, "per_class": 12}], ids=["all", "subset"])
def test_a_run_that_skipped_files_is_evaluated_without_them(
    options: dict[str, Any], photos: Path, tmp_path: Path
) -> None:
    folder, _ = spoiled(photos, tmp_path / "photos")
    run = tmp_path / "run"
    train(configure(folder, run, epochs=1, bad_data="skip", **options))
    written = (run / "skipped.json").read_bytes()
    assert len(open_inputs(str(run)).samples) == (8 if options else 12)
    assert cli.run(["evaluate", str(run), "--on", "accuracy"]) == 0
    assert (run / "skipped.json").read_bytes() == written
    if not options:
        copy = shutil.copytree(folder, tmp_path / "copy")
        assert len(open_inputs(str(run), data=str(copy)).samples) == 12
        assert len(open_inputs(str(run), data=str(photos)).samples) == 12  # other data: the list does not apply
    (folder / "test" / "a" / "new.png").write_bytes(noise("PNG"))
    with pytest.raises(OtherDataError, match=r"skipped\.json"):
        open_inputs(str(run))


class StopAt(Silent):
    def step(self, run: Run, metrics: dict[str, float]) -> None:
        if run.step == 4:
            signal.raise_signal(signal.SIGTERM)


@pytest.mark.parametrize("options", [{}, {"rand_augment": "9/0.5", "workers": 2}], ids=["memory", "workers"])
def test_a_resumed_run_skips_the_same_files(options: dict[str, Any], photos: Path, tmp_path: Path) -> None:
    folder, bad = spoiled(photos, tmp_path / "photos")
    whole, cut = (configure(folder, tmp_path / name, bad_data="skip", **options) for name in ("whole", "cut"))
    assert train(whole)["skipped_files"] == bad
    with pytest.raises(Stopped):
        train(cut, display=StopAt())
    Path(bad[0]).write_bytes(noise("PNG"))  # repaired meanwhile: it comes back in the next run, not in this one
    assert train(cut, resume=True)["skipped_files"] == bad
    assert final_state(whole.folder) == final_state(cut.folder)
    assert train(cut, overwrite=True)["skipped_files"] == bad[1:]
    with pytest.raises(ValueError, match="bad_data=skip, got bad_data=fail"):
        train(replace(cut, bad_data="fail"), resume=True)
    (folder / "train" / "a" / "new.png").write_bytes(noise("PNG"))
    with pytest.raises(ValueError, match=r"skipped\.json: made for other data"):
        train(cut, resume=True)


def test_the_skip_list_survives_its_file_and_is_checked(tmp_path: Path) -> None:
    root = numbered(tmp_path / "data")
    (root / "train" / "ant" / "0-bad.png").write_bytes(b"")
    train_set, test_set = open_dataset(str(root))
    found = find_bad_files(train_set, test_set, 3)
    path = tmp_path / "skipped.json"
    write_skipped(path, found, {"training": 11, "testing": 10})
    assert read_skipped(path, train_set, test_set) == found
    (root / "train" / "ant" / "0-bad.png").rename(root / "train" / "ant" / "0-bat.png")
    with pytest.raises(ValueError, match="made for other data"):
        read_skipped(path, *open_dataset(str(root)))
    for text in ("", "[]", '{"files": {}, "skipped": []}', '{"files": {}, "skipped": [{"x": 1}]}'):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"skipped\.json: cannot be read as a list of skipped files") as error:
            read_skipped(path, train_set, test_set)
        assert "\n" not in str(error.value)


def test_a_long_list_of_skipped_files_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(display, "LISTED", 2)
    files = tuple(SkippedFile("training", i, f"{i}.png", f"{i}.png: [broken]") for i in range(5))
    data = Data("x", ("a",), 8, 10, 4, None, files)  # type: ignore[arg-type]
    run: Any = types.SimpleNamespace(data=data, folder=RunFolder(Path("run")))
    assert display.list_skipped(run) == [
        "bad files left out: 5 of 15 for training, 0 of 4 for testing; all of them in run/skipped.json",
        "  0.png: [broken]",
        "  1.png: [broken]",
        "  and 3 more",
    ]


def test_a_long_search_shows_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    lines = display.Lines(Console(file=shown, width=100))
    lines.reading(16, 80)
    assert shown.getvalue() == ""
    monkeypatch.setattr(display, "SECONDS_BETWEEN_LINES", 0)
    lines.reading(32, 80)
    assert shown.getvalue() == "looking for bad files: 32 of 80 images\n"


def test_progress_counts_every_image_once(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    open_way(
        "stream", numbered(tmp_path, 20), bad_data="skip", progress=lambda done, total: calls.append((done, total))
    )
    assert calls[-1] == (80, 80)
    assert calls == sorted(calls)


def search_in_process(rank: int, root: Path, out: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{out / 'meeting'}", rank=rank, world_size=2)
    read: list[str] = []

    class Counted(ImageFiles):
        def read(self, index: int) -> tuple[Any, int]:
            read.append(self.paths[index])
            return super().read(index)

    first, second = (
        Counted(part.paths, part.labels, part.classes)
        for part in open_dataset(str(root))
        if isinstance(part, ImageFiles)
    )
    found = find_bad_files(first, second, 1)
    (out / f"{rank}.json").write_text(json.dumps([len(read), [file.path for file in found]]))
    dist.destroy_process_group()


def test_processes_share_the_search_and_agree(tmp_path: Path) -> None:
    root = numbered(tmp_path / "data")
    bad = [
        root / "train" / "ant" / "0-bad.png",
        root / "train" / "bee" / "4-bad.png",
        root / "test" / "bee" / "bad.png",
    ]
    for path in bad:
        path.write_bytes(b"")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=search_in_process, args=(rank, root, tmp_path)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0]
    counts, found = zip(*(json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)), strict=True)
    assert list(found) == [[str(path) for path in bad]] * 2
    assert sum(counts) == 23
    assert min(counts) >= 11


# --- workers that die ------------------------------------------------------------------------------------------------


def make_deadly(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Let the decoder end the process at one of the files."""

    def die(path: str, **options: Any) -> Any:
        if path.endswith("deadly.png"):
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            os._exit(3)
        return read_image(path, **options)

    for module in ("image_files", "decode_cache"):
        monkeypatch.setattr(f"automix.data.{module}.read_image", die)


@pytest.mark.parametrize(("how", "split"), [("killed", "train"), ("exited", "test")])
def test_a_worker_that_dies_is_reported_with_its_file(
    how: str, split: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = numbered(tmp_path)
    plain().save(root / split / "bee" / "deadly.png")
    make_deadly(monkeypatch, how)
    loader = open_way("workers", root, batch_size=2).loader
    assert isinstance(loader, StreamLoader)
    message = error_message(lambda: list(loader.batches(0, 5) if split == "train" else loader.test_batches()))
    assert message.startswith(f"a loader worker died while it read {root}/{split}/bee/deadly.png")
    assert "\n" not in message


def test_a_run_whose_worker_dies_ends_in_one_line(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And torch has installed nothing that would raise in the middle of something else."""
    folder, _ = spoiled(photos, tmp_path / "photos")
    for path in folder.rglob("*-*"):
        path.unlink()
    plain().save(folder / "train" / "b" / "deadly.png")
    configure(folder, tmp_path / "run", rand_augment="9/0.5", train_size=16).save(tmp_path / "config.yaml")
    make_deadly(monkeypatch, "killed")
    before = signal.getsignal(signal.SIGCHLD)
    assert cli.run(["train", "--config", str(tmp_path / "config.yaml")]) == 1
    assert signal.getsignal(signal.SIGCHLD) == before
    error = capsys.readouterr().err
    assert f"a loader worker died while it read {folder}/train/b/deadly.png" in error
    assert error.count("\n") == 1


def test_other_errors_are_not_taken_for_a_dead_worker(tmp_path: Path) -> None:
    loader = open_way("workers", numbered(tmp_path)).loader
    assert isinstance(loader, StreamLoader)
    assert loader.worker_error(RuntimeError("shapes do not match")) is None
    ended = loader.worker_error(RuntimeError("DataLoader worker (pid 12) is killed by signal: Bus error. Too little."))
    assert str(ended).startswith("a loader worker died between two images (is killed by signal: Bus error.")
