"""Files that are either the old one or the new one, never half of one, whatever happens while they are written."""

import os
from collections.abc import Callable
from pathlib import Path


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, bring it to the disk, and move it to `path`.

    If anything fails, a full disk or Ctrl-C included, the temporary file is removed, the file that was at `path` before
    is untouched, and the error passes through. The temporary file keeps the suffix of `path`, by which some writers
    choose the format; its name starts with a dot, so that whoever lists the folder does not take it for a result.
    """
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        write(temporary)
        _bring_to_disk(temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if os.name == "posix":  # elsewhere a folder cannot be opened
        _bring_to_disk(path.parent)


def _bring_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
