"""Files are whole: the old one or the new one."""

import errno
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from automix.core.files import exclusive, write_atomically, write_text


def half_then(error: BaseException) -> Callable[[Path], None]:
    def write(temporary: Path) -> None:
        temporary.write_text("new con")
        raise error

    return write


@pytest.mark.parametrize("before", [None, "old"])
def test_the_new_file_replaces_the_old_one(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "x.safetensors"
    if before is not None:
        path.write_text(before)

    def write(temporary: Path) -> None:
        temporary.write_text("new content")
        assert temporary.parent == tmp_path
        assert temporary.suffix == path.suffix
        assert temporary.name.startswith(".")
        assert str(os.getpid()) in temporary.name
        assert (path.read_text() if path.exists() else None) == before  # whoever looks now sees the old one

    write_atomically(path, write)
    assert path.read_text() == "new content"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), ValueError("bad"), KeyboardInterrupt()], ids=repr
)
@pytest.mark.parametrize("exists", [True, False])
def test_a_write_that_fails_half_way_leaves_the_old_file(tmp_path: Path, error: BaseException, exists: bool) -> None:
    path = tmp_path / "x"
    if exists:
        path.write_text("old")
    with pytest.raises(type(error)) as raised:
        write_atomically(path, half_then(error))
    assert raised.value is error
    assert [file.name for file in tmp_path.iterdir()] == (["x"] if exists else [])
    if exists:
        assert path.read_text() == "old"


def test_a_move_that_fails_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()  # a file cannot replace a folder
    with pytest.raises(OSError):
        write_atomically(tmp_path / "x", lambda temporary: temporary.write_text("new"))
    assert [file.name for file in tmp_path.iterdir()] == ["x"]


def test_a_missing_folder_is_an_oserror(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomically(tmp_path / "none" / "x", lambda temporary: temporary.write_text("new"))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write into read-only folders")
def test_a_read_only_folder_is_an_oserror(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("old")
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(PermissionError):
            write_atomically(tmp_path / "x", lambda temporary: temporary.write_text("new"))
        assert (tmp_path / "x").read_text() == "old"
    finally:
        tmp_path.chmod(0o700)


@pytest.mark.skipif(os.name != "posix", reason="folders cannot be opened here")
def test_content_is_synced_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, calls = tmp_path / "x", []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        calls.append(("fsync", os.fstat(descriptor).st_ino))
        fsync(descriptor)

    def record_replace(source: Any, target: Any) -> None:
        calls.append(("replace", os.stat(source).st_ino))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    write_atomically(path, lambda temporary: temporary.write_text("new"))
    file, folder = path.stat().st_ino, tmp_path.stat().st_ino
    assert calls == [("fsync", file), ("replace", file), ("fsync", folder)]


def _count_up(path: Path) -> None:
    for _ in range(50):
        with exclusive(path):
            write_text(path, str(int(path.read_text()) + 1))


def test_processes_that_change_a_file_wait_for_each_other(tmp_path: Path) -> None:
    """Without the lock, numbers that two processes read at once would be counted once."""
    path = tmp_path / "count"
    path.write_text("0")
    children = [multiprocessing.get_context("fork").Process(target=_count_up, args=(path,)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert path.read_text() == "150"
