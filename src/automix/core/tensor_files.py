"""Named tensors in a safetensors file that can tell whether it is damaged.

safetensors notices a file that was cut off, not one of which a bit has changed. The files written here have a checksum
of all their bytes, metadata and names included, in their metadata; other tools do not mind it. Files without one, of
other tools or of older versions, are read as they are.

The checksum is a CRC-32, which no change within four bytes escapes, and of all others one in four billion: 30 ms for
100 MB. It is there against accidents. Against intent there is the format itself: nothing in it is ever executed.
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

from automix.core.files import write_atomically

CHECKSUM = "automix-crc32"
_BLANK = "0" * 8  # stands in the checksum's place while it is computed
_PLACE = re.compile(rf'(?<="{CHECKSUM}":")[^"]*'.encode())
_LENGTH = 8  # bytes at the beginning of a safetensors file that tell how long the header is
_CHUNK = 2**20


class DamagedError(ValueError):
    """A file that is not what was once written."""


def write_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str], *, keep: Path | None = None
) -> None:
    """Write the file atomically; see `write_atomically` for `keep`."""
    # Not save_file: its files can be read by their owner only, and a full disk is no OSError there.
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
    """The tensors and the metadata; a DamagedError of one line where they are not those that were written."""
    try:
        with path.open("rb") as file, safe_open(path, framework="pt") as opened:
            metadata = opened.metadata() or {}
            damaged = CHECKSUM in metadata and metadata[CHECKSUM] != _checksum(file)
        tensors = load_file(path)
    except SafetensorError as error:
        reason = " ".join(str(error).split())
        raise DamagedError(f"{path}: not a safetensors file, or damaged ({reason})") from None
    except OSError as error:
        if error.errno != errno.EIO:  # what a disk says of a place that it cannot read any more
            raise
        raise DamagedError(f"{path}: damaged ({error.strerror})") from None
    if damaged:
        raise DamagedError(f"{path}: damaged (its checksum is not that of its content)")
    metadata.pop(CHECKSUM, None)
    return tensors, metadata


def is_whole(path: Path) -> bool:
    """Whether the file is there and can be read; without a checksum, whether it is complete."""
    try:
        read_tensors(path)
    except (DamagedError, OSError):
        return False
    return True


def misfit(given: Mapping[str, Tensor], expected: Mapping[str, Tensor], whole: str) -> str | None:
    """What of `given` does not fit the tensors that `whole`, a model or network, expects; None where all fits."""
    for name, tensor in expected.items():
        if name not in given:
            return f"{name} is missing"
        if given[name].shape != tensor.shape:
            return f"{name} has shape {tuple(given[name].shape)}, in the {whole} {tuple(tensor.shape)}"
    return next((f"{name} is not in the {whole}" for name in given if name not in expected), None)


def _checksum(file: BinaryIO) -> str:
    """Of the whole file, as it was before the checksum had been written into it."""
    start = file.read(_LENGTH)
    head = start + file.read(int.from_bytes(start, "little"))
    checksum = zlib.crc32(_PLACE.sub(_BLANK.encode(), head))
    while chunk := file.read(_CHUNK):
        checksum = zlib.crc32(chunk, checksum)
    return f"{checksum:08x}"
