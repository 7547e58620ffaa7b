"""Named tensors in a safetensors file with a checksum.

safetensors detects a truncated file, but not a flipped bit. The files written here carry a CRC-32 of all their bytes
(names and metadata included) in their metadata, which other tools ignore. Files without a checksum are read as they
are.

The checksum detects every change within four bytes, and all but one in four billion of the others; it takes 30 ms for
100 MB. It protects against accidents, not against intent. The format itself never executes anything.
"""

import errno
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from automix.core.errors import AutomixError, one_line
from automix.core.files import write_atomically

CHECKSUM = "automix-crc32"
_BLANK = "0" * 8  # in place of the checksum while it is computed
_PLACE = re.compile(rf'(?<="{CHECKSUM}":")[^"]*'.encode())
_LENGTH = 8  # bytes at the beginning of a safetensors file that give the length of the header
_CHUNK = 2**20


class DamagedError(AutomixError):
    """A file whose content is not what was written."""


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], *, keep: Path | None = None
) -> None:
    """Write tensors to a safetensors file atomically.

    Args:
        path: The file.
        tensors: The tensors by name.
        metadata: Strings to store beside them.
        keep: Where to keep the file that was at `path` before, as in `write_atomically`.
    """
    # Not save_file: only the owner may read its files, and it does not raise an OSError if the disk is full.
    content = memoryview(save(tensors, {**metadata, CHECKSUM: _BLANK}))
    length = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
    head, body = bytes(content[:length]), content[length:]
    checksum = f"{zlib.crc32(body, zlib.crc32(head)):08x}"
    head = _PLACE.sub(checksum.encode(), head)

    def write(temporary: Path) -> None:
        with temporary.open("wb") as file:
            file.write(head)
            file.write(body)

    write_atomically(path, write, keep=keep)


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Read a safetensors file and verify its checksum, if it has one.

    Args:
        path: The file.

    Returns:
        The tensors by name, and the metadata.

    Raises:
        DamagedError: The content is not what was written.
        OSError: The file is missing or may not be read.
    """
    try:
        with path.open("rb") as file, safe_open(path, framework="pt") as opened:
            metadata = opened.metadata() or {}
            damaged = CHECKSUM in metadata and metadata[CHECKSUM] != _checksum(file)
        tensors = load_file(path)
    except SafetensorError as error:
        reason = one_line(error)
        raise DamagedError(f"{path}: not a safetensors file, or damaged ({reason})") from None
    except OSError as error:
        if error.errno != errno.EIO:  # a sector that the disk cannot read any more
            raise
        raise DamagedError(f"{path}: damaged ({error.strerror})") from None
    if damaged:
        raise DamagedError(f"{path}: damaged (its checksum is not that of its content)")
    metadata.pop(CHECKSUM, None)
    return tensors, metadata


def is_whole(path: Path) -> bool:
    """Tell whether a file exists and can be read.

    Args:
        path: The file.

    Returns:
        True if its checksum is right; without a checksum, if it is complete.
    """
    try:
        read_tensors(path)
    except (DamagedError, OSError):
        return False
    return True


def misfit(given: Mapping[str, Tensor], expected: Mapping[str, Tensor], whole: str) -> str | None:
    """Compare the names and shapes of tensors with the expected ones.

    Args:
        given: The tensors of a file.
        expected: The tensors of the model.
        whole: What the message calls the model.

    Returns:
        The first difference in words; None if there is none.
    """
    for name, tensor in expected.items():
        if name not in given:
            return f"{name} is missing"
        if given[name].shape != tensor.shape:
            return f"{name} has shape {tuple(given[name].shape)}, in the {whole} {tuple(tensor.shape)}"
    return next((f"{name} is not in the {whole}" for name in given if name not in expected), None)


def _checksum(file: BinaryIO) -> str:
    """The checksum of the whole file, with a blank in place of the stored checksum."""
    start = file.read(_LENGTH)
    head = start + file.read(int.from_bytes(start, "little"))
    checksum = zlib.crc32(_PLACE.sub(_BLANK.encode(), head))
    while chunk := file.read(_CHUNK):
        checksum = zlib.crc32(chunk, checksum)
    return f"{checksum:08x}"
