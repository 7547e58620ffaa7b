"""Full disks, folders that may not be written, files that were cut or changed: noticed, named, nothing lost."""

import os
import random
import resource
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from automix.core.tensor_files import DamagedError, read_tensors
from automix.runs.checkpoint import read_checkpoint
from automix.runs.config import TrainConfig
from automix.runs.folder import load_classifier
from automix.training import train
from faults.conftest import Record
from faults.runs import CHECKPOINT, PREVIOUS, configure, digest, fork, train_killed

pytestmark = pytest.mark.slow

FLIPS = 1000


def flip(content: bytes, chance: random.Random) -> bytes:
    """One bit of `content` is another one."""
    place = chance.randrange(8 * len(content))
    changed = bytearray(content)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


@pytest.mark.parametrize("name", [CHECKPOINT, "last.safetensors"])
def test_bit_flips(name: str, photos: Path, tmp_path: Path, record: Record) -> None:
    """Half of them anywhere, half in the header, which is a hundredth of the file and decides what the rest means."""
    config = configure(photos, tmp_path / "run", epochs=1)
    train(config)
    path = config.folder / name
    content = path.read_bytes()
    wanted = read_tensors(path)
    header = 8 + int.from_bytes(content[:8], "little")
    chance = random.Random(name)
    noticed = harmless = 0
    for number in range(FLIPS):
        damaged = flip(content, chance) if number % 2 else flip(content[:header], chance) + content[header:]
        path.write_bytes(damaged)
        try:
            tensors, metadata = read_tensors(path)
        except DamagedError as error:
            noticed += str(error).startswith(f"{path}: ") and "\n" not in str(error)
            continue
        same = all(tensors[key].equal(value) for key, value in wanted[0].items()) and tensors.keys() == wanted[0].keys()
        harmless += same and metadata["automix"] == wanted[1]["automix"]
    survived = noticed + harmless
    lost = f"nothing: {noticed} noticed, {harmless} in the name of the checksum itself"
    record(f"a bit flipped in {name}", FLIPS, survived, lost)
    assert survived == FLIPS
    assert noticed > 0.9 * FLIPS


def test_a_damaged_checkpoint_costs_one_save(photos: Path, tmp_path: Path, record: Record) -> None:
    """Flipped, cut or emptied, at any step: the run goes on from the one before, and ends with the same bytes."""
    whole = configure(photos, tmp_path / "whole")
    train(whole)
    chance = random.Random(3)
    kinds: dict[str, Callable[[bytes], bytes]] = {
        "a bit flipped": lambda content: flip(content, chance),
        "cut off": lambda content: content[: chance.randrange(1, len(content))],
        "emptied": lambda content: b"",
        "zeros at the end": lambda content: content[:-4096] + bytes(4096),  # what some disks leave after a power cut
    }
    for kind, damage in kinds.items():
        config = configure(photos, tmp_path / kind)
        train_killed(config, after=5)
        path, previous = config.folder / CHECKPOINT, config.folder / PREVIOUS
        path.write_bytes(damage(path.read_bytes()))
        before = {file: file.read_bytes() for file in (path, previous)}
        with pytest.warns(UserWarning, match=r"damaged.*; resuming from checkpoint-previous.safetensors, .* step 4$"):
            assert read_checkpoint(path).facts["step"] == 4
        assert {file: file.read_bytes() for file in before} == before, "reading has changed something"
        with pytest.warns(UserWarning, match=rf"^{path}: "):
            train(config, resume=True)
        assert (config.folder / "checkpoint-damaged.safetensors").read_bytes() == before[path]
        same = digest(config.folder) == digest(whole.folder)
        record(f"latest checkpoint: {kind}", 1, int(same), "one save, then the same bytes")
        assert same


def test_a_disk_that_is_full(photos: Path, tmp_path: Path, record: Record) -> None:
    """A file may not grow beyond half a checkpoint: the save fails in one line, and what was there still serves."""
    whole, config = (configure(photos, tmp_path / name) for name in ("whole", "full"))
    train(whole)
    train_killed(config, after=4)
    before = (config.folder / CHECKPOINT).read_bytes()
    said = tmp_path / "said"

    def continue_on_full_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, len(before) // 2))
        tell(config, said)

    child = fork(continue_on_full_disk)
    child.join()
    assert said.read_text() == f"[Errno 27] File too large: '{config.folder / CHECKPOINT}'"
    assert (config.folder / CHECKPOINT).read_bytes() == before
    train(config, resume=True)
    same = digest(config.folder) == digest(whole.folder)
    record("disk full in a save (RLIMIT_FSIZE)", 1, int(same), "the steps since the last checkpoint")
    assert same


def test_a_small_disk(photos: Path, record: Record) -> None:
    """The same on a file system that is really full."""
    place = Path(tempfile.mkdtemp())
    line = ["mount", "-t", "tmpfs", "-o", "size=1500k", "tmpfs", str(place)]
    if os.geteuid() != 0 or shutil.which("mount") is None or subprocess.run(line, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        config = configure(photos, place / "run")
        train_killed(config, after=4)
        before = digest(config.folder)
        size = (config.folder / CHECKPOINT).stat().st_size
        free = shutil.disk_usage(place).free
        (place / "filler").write_bytes(bytes(max(0, free - size // 2)))
        said = place.with_name(place.name + "-said")
        child = fork(tell, config, said)
        child.join()
        assert said.read_text().startswith("[Errno 28] No space left on device")
        assert digest(config.folder) == before
        (place / "filler").unlink()
        train(config, resume=True)
        record("disk full in a save (tmpfs)", 1, 1, "the steps since the last checkpoint")
    finally:
        subprocess.run(["umount", str(place)], check=True)


def test_a_folder_that_may_not_be_written(photos: Path, tmp_path: Path, record: Record) -> None:
    place = Path(tempfile.mkdtemp())  # pytest's own folder belongs to nobody else
    place.chmod(0o755)
    shutil.copytree(photos, place / "photos")
    config = configure(place / "photos", place / "run")
    train_killed(config, after=4)
    before = digest(config.folder)
    said = place / "said"
    said.write_text("")
    said.chmod(0o666)
    for path in [config.folder, *config.folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)

    def continue_as_nobody() -> None:
        if os.geteuid() == 0:  # root may write anywhere
            os.setuid(65534)
        tell(config, said)

    child = fork(continue_as_nobody)
    child.join()
    assert "[Errno 13] Permission denied" in said.read_text()
    assert "\n" not in said.read_text()
    assert digest(config.folder) == before
    record("read-only folder", 1, 1, "nothing: refused in one line")
    shutil.rmtree(place)


def tell(config: TrainConfig, said: Path) -> None:
    """Resume, and write down what the error says."""
    try:
        train(config, resume=True)
    except OSError as error:
        said.write_text(str(error))


def test_every_cut_of_a_classifier_is_noticed(photos: Path, tmp_path: Path, record: Record) -> None:
    config = configure(photos, tmp_path / "run", epochs=1)
    train(config)
    path = config.folder / "last.safetensors"
    content, chance = path.read_bytes(), random.Random(4)
    cuts = 200
    noticed = 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(cuts):
            path.write_bytes(content[: chance.randrange(len(content))])
            with pytest.raises(ValueError, match=r"last.safetensors: not a safetensors file, or damaged"):
                load_classifier(config.folder)
            noticed += 1
    record("last.safetensors cut off", cuts, noticed, "nothing: refused in one line")
