"""Decode an image file to RGB; a broken file raises a `BadImage` of one line.

CMYK, 16 bits per channel (scaled to 8), palettes and animations (their first frame) are read with the right colors.
Transparency is dropped: a pixel keeps the color that the file stores for it, as in torchvision and timm. These files
are broken: files that Pillow cannot decode to the end; images with more pixels than Pillow considers safe
(`PIL.Image.MAX_IMAGE_PIXELS`, 89 million), because a file of a few kilobytes may claim any number; floating-point
pixels, whose scale is unknown and which may be NaN; named pipes and devices, because opening them may never return.
"""

import errno
import functools
import importlib
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from automix.core.errors import AutomixError

SYSTEM_ERRNOS = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT)  # not the file's fault


def read_image(file: Any, name: str | None = None, *, short_side: int | None = None) -> Any:
    """Read an image.

    Args:
        file: A path, or a binary file object.
        name: What error messages call the file; `file` itself if not given.
        short_side: Reduce an image whose short side is longer than this many pixels; not reduced if not given.

    Returns:
        The PIL image: RGB, upright according to its EXIF orientation.

    Raises:
        BadImage: The file cannot be read as an image.
        ReadingError: The system could not read it, for instance for lack of memory.
    """
    try:
        return decode(file, short_side)
    except Exception as error:
        raise image_error(name or str(file), error) from None


def read_size(file: Any) -> tuple[int, int] | None:
    """Read the size of an image from the head of its file.

    Args:
        file: A path, or a binary file object.

    Returns:
        Width and height in pixels, swapped if the image is stored on its side; None if the file cannot be read.
    """
    try:
        with _opened(file) as image:
            return image.size
    except Exception:
        return None


def decode(file: Any, short_side: int | None = None) -> Any:
    """Decode an image; `read_image` without its error handling.

    Args:
        file: A path, or a binary file object.
        short_side: Reduce an image whose short side is longer than this many pixels; not reduced if not given.

    Returns:
        The PIL image: RGB, upright according to its EXIF orientation.

    Raises:
        Exception: Almost anything; damaged files make Pillow raise OSError, SyntaxError, struct.error and others.
    """
    from PIL import ImageOps

    with _opened(file) as image:
        size = reduced_size(image.size, short_side)
        if size != image.size:
            image.draft(None, size)  # a JPEG is decoded at 1/2, 1/4 or 1/8 of its size, but not below `size`
        ImageOps.exif_transpose(image, in_place=True)
        upright = to_rgb(image)
    size = reduced_size(upright.size, short_side)
    return upright if size == upright.size else upright.resize(size)  # bicubic


def reduced_size(size: tuple[int, int], short_side: int | None) -> tuple[int, int]:
    """Compute the size of an image whose short side is reduced.

    Args:
        size: Width and height in pixels.
        short_side: Longest short side; None for any.

    Returns:
        The size itself, or the largest one of the same shape that is accepted.
    """
    if short_side is None or min(size) <= short_side:
        return size
    scale = short_side / min(size)
    return max(short_side, round(size[0] * scale)), max(short_side, round(size[1] * scale))


@contextmanager
def _opened(file: Any) -> Iterator[Any]:
    """Open an image file, of which Pillow has read no more than the head."""
    from PIL import Image

    _ignore_bomb_warning()
    reads_heif()
    if isinstance(file, str | os.PathLike) and not stat.S_ISREG(os.stat(file).st_mode):
        raise AutomixError("not a regular file")
    with Image.open(file) as image:
        limit = Image.MAX_IMAGE_PIXELS
        if limit is not None and image.width * image.height > limit:
            raise AutomixError(f"{image.width} x {image.height} px, more than {limit} pixels")
        yield image


def to_rgb(image: Any) -> Any:
    """Convert a PIL image of any mode to RGB.

    Args:
        image: The image.

    Returns:
        The RGB image. Values of 16 bits are scaled to 8 bits.
    """
    from PIL import Image

    if not isinstance(image, Image.Image):
        raise AutomixError(f"it must be a PIL image, got {type(image).__name__}")
    if 0 in image.size:
        raise AutomixError("it has no pixels")
    if image.mode == "F":
        raise AutomixError("its pixels are floating-point numbers, whose scale is unknown")
    if image.mode.startswith("I"):
        image = _to_eight_bits(image)
    image.info.pop("transparency", None)  # Pillow warns of one that it cannot keep
    if image.mode == "RGB":
        image.load()
        return image  # convert would copy it
    return image.convert("RGB")


def image_error(name: str, error: Exception) -> "BadImage | ReadingError":
    """Turn any exception of a decoder into an error of one line.

    Args:
        name: What the message calls the image.
        error: The exception.

    Returns:
        The error to raise: `ReadingError` if the system is at fault, else `BadImage`.
    """
    from PIL import UnidentifiedImageError

    if isinstance(error, BadImage | ReadingError):
        return error
    if isinstance(error, MemoryError):
        return ReadingError(f"{name}: not enough memory to read it")
    reason = (str(error).strip().splitlines() or [""])[0] or type(error).__name__
    if isinstance(error, UnidentifiedImageError):
        reason = "the file is empty" if _is_empty(name) else "no format that Pillow knows"
    elif isinstance(error, OSError) and error.strerror:
        reason = error.strerror
        if error.errno in SYSTEM_ERRNOS:
            return ReadingError(f"{name}: {reason}")
    return BadImage(f"{name}: cannot be read as an image ({reason})")


def _to_eight_bits(image: Any) -> Any:
    """Scale 0 to 65535 to 0 to 255; Pillow's own conversion clips everything above 255."""
    import numpy as np
    from PIL import Image

    values = np.asarray(image)
    if values.min() < 0 or values.max() > 65535:
        raise AutomixError("its pixels have more than 16 bits")
    return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))


@functools.cache
def reads_heif() -> bool:
    """Teach Pillow to read HEIC and HEIF files, if the package pillow-heif is installed.

    Returns:
        Whether such files can be read.
    """
    try:
        importlib.import_module("pillow_heif").register_heif_opener()
    except ImportError:
        return False
    return True


@functools.cache
def _ignore_bomb_warning() -> None:
    """Silence Pillow's warning about many pixels, because `decode` refuses such images.

    The filter is appended, so that filters set by the application take precedence.
    """
    from PIL import Image

    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning, append=True)


def _is_empty(path: str) -> bool:
    try:
        return os.path.getsize(path) == 0
    except OSError:
        return False


class _OneLine(Exception):  # noqa: N818  (a mixin of the two errors below)
    """Keep the message to one line, also for errors that come out of a loader's worker process.

    torch re-raises a worker's exception as the same class with the whole traceback as its message. The last line of
    that is the original message.
    """

    def __init__(self, message: str) -> None:
        last = (message.strip().splitlines() or [""])[-1]
        super().__init__(last.removeprefix(f"{type(self).__module__}.{type(self).__qualname__}: "))


class BadImage(_OneLine, AutomixError):  # noqa: N818  (names the thing, as in bad_data)
    """A file that cannot be read as an image; ``bad_data="skip"`` leaves such files out.

    Args:
        message: One line that starts with the file's name.
    """


class ReadingError(_OneLine, OSError):
    """The system could not read an image that may be sound: out of memory, too many open files, a dead worker.

    Args:
        message: One line that starts with the file's name.
    """
