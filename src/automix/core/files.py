"""Atomic writes: a file has either its old or its new content, whatever happens during the write; and locks."""

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock


def write_atomically(path: Path, write: Callable[[Path], object], *, keep: Path | None = None) -> None:
    """Write a temporary file beside `path`, flush it to disk, and move it to `path`.

    If anything fails, a full disk or Ctrl-C included, the temporary file is removed, the previous file at `path` is
    untouched, and the error propagates. A process killed at any moment leaves a whole file at `path`.

    Args:
        path: The file.
        write: Writes the content to the path it is given. That path has the suffix of `path`, by which some writers
            choose the format, and its name starts with a dot, so that listings of the folder leave it out.
        keep: Where to keep the previous file. It gets this second name before the new file takes its place.
    """
    remove_leftovers(path.parent)
    temporary = path.with_name(f".{os.getpid()}-{platform.node()}-{path.name}")
    try:
        write(temporary)
        _bring_to_disk(temporary)
        if keep is not None and path.exists():
            _copy_name(path, keep)
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # a full disk names no file, other errors the temporary one
        raise
    if os.name == "posix":  # elsewhere a folder cannot be opened
        _bring_to_disk(path.parent)


def write_text(path: Path, text: str) -> None:
    """Write text to a file atomically.

    Args:
        path: The file.
        text: Its content, written as UTF-8.
    """
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Let one process at a time read a file, change the content and write it again.

    The lock is a hidden file beside it; the system releases it when the process ends, however it ends. Where the file
    system has no locks, there is none.

    Args:
        path: The file; its folder exists.

    Yields:
        Nothing; the lock is held inside the `with` block.
    """
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    with suppress(OSError, NotImplementedError):
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files of processes that were killed while writing.

    Only files of processes of this machine are removed, because processes of other machines may still be alive.

    Args:
        folder: The folder to clean; it may be missing.
    """
    if os.name != "posix" or not folder.is_dir():  # elsewhere os.kill(process, 0) would end the process
        return
    ours = re.compile(rf"\.(\d+)-{re.escape(platform.node())}-.+")
    for path in folder.iterdir():
        if (match := ours.fullmatch(path.name)) and not _lives(int(match[1])):
            path.unlink(missing_ok=True)


def _copy_name(path: Path, other: Path) -> None:
    """Make the content of `path` appear at `other` too, without a moment in which either of them is missing."""
    second = path.with_name(f".{os.getpid()}-{platform.node()}-{other.name}")
    second.unlink(missing_ok=True)
    try:
        try:
            os.link(path, second)
        except OSError:  # a file system without hard links
            shutil.copyfile(path, second)
            _bring_to_disk(second)
        os.replace(second, other)
    finally:
        second.unlink(missing_ok=True)  # os.replace leaves it where both are names of one file already


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):  # OverflowError: not a process id
        return False
    except PermissionError:  # another user's process
        return True
    return True


def _bring_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
