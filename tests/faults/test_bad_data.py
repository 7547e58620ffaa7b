"""Damaged files by the hundred, every kind of broken file in a run, workers killed again and again."""

import random
from pathlib import Path

import pytest
from test_bad_data import (
    BROKEN,
    configure,
    error_message,
    final_state,
    make_deadly,
    noise,
    numbered,
    open_way,
    plain,
    spoiled,
)

from automix.data import BadImage, StreamLoader
from automix.data.decode import read_image
from automix.training import train
from faults.conftest import Record

pytestmark = pytest.mark.slow

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM")
DAMAGED = 500  # files of each format
DEATHS = 8  # each is noticed within five seconds


@pytest.mark.filterwarnings("ignore")  # Pillow has a word to say about some of them
def test_damaged_images(tmp_path: Path, record: Record) -> None:
    """Bits flipped, bytes cut off: an image, or one line that names the file."""
    chance, path = random.Random(0), tmp_path / "damaged"
    read = refused = 0
    for format in FORMATS:
        whole = noise(format, size=40)
        for _ in range(DAMAGED):
            content = bytearray(whole[: chance.randint(1, len(whole))] if chance.random() < 0.3 else whole)
            for _ in range(chance.choice((1, 1, 4, 30))):
                content[int(len(content) * chance.random() ** 3)] ^= 1 << chance.randrange(8)
            path.write_bytes(content)
            try:
                read_image(str(path))
                read += 1
            except BadImage as error:
                refused += str(error).startswith(f"{path}: cannot be read") and "\n" not in str(error)
    tries = DAMAGED * len(FORMATS)
    record(
        "image file with flipped or missing bytes", tries, read + refused, f"{refused} named in one line, {read} read"
    )
    assert read + refused == tries


def test_every_kind_of_broken_file(photos: Path, tmp_path: Path, record: Record) -> None:
    """With `--bad-data skip`, in memory and streamed by workers: the digest of the run without the broken files."""
    folder, _ = spoiled(photos, tmp_path / "photos")
    kinds = [kind for kind in BROKEN if kind != "unreadable.png"]  # root may read it
    for number, kind in enumerate(kinds):
        BROKEN[kind][0](folder / "train" / "abc"[number % 3] / f"1-{kind}")
    survived = 0
    ways: list[dict[str, object]] = [
        {},
        {"rand_augment": "9/0.5", "workers": 0},
        {"rand_augment": "9/0.5", "workers": 2},
    ]
    for number, options in enumerate(ways):
        clean = configure(photos, tmp_path / f"clean-{number}", **options)
        spoilt = configure(folder, tmp_path / f"spoilt-{number}", bad_data="skip", **options)
        train(clean)
        assert len(train(spoilt)["skipped_files"]) == len(kinds) + 3
        survived += final_state(clean.folder) == final_state(spoilt.folder)
    record("run with broken files, --bad-data skip", len(ways), survived, f"the {len(kinds) + 3} broken files, listed")
    assert survived == len(ways)


@pytest.mark.parametrize("how", ["killed", "exited"])
def test_workers_that_die(how: str, tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    root = numbered(tmp_path)
    plain().save(root / "train" / "bee" / "deadly.png")
    make_deadly(monkeypatch, how)
    named = 0
    for seed in range(DEATHS):
        loader = open_way("workers", root, batch_size=1, seed=seed).loader
        assert isinstance(loader, StreamLoader)
        message = error_message(lambda loader=loader: list(loader.batches(0, 11)))  # type: ignore[misc]
        named += message.startswith(f"a loader worker died while it read {root}/train/bee/deadly.png")
    word = {"killed": "killed", "exited": "leaves"}[how]
    record(f"loader worker {word} while it reads", DEATHS, named, "the run ends in one line that names the file")
    assert named == DEATHS
