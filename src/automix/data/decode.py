"""From a file to an RGB image. What is sound is read with its right colors, what is broken is a BadImage of one line.

Sound are CMYK, 16 bits per pixel (scaled), palettes, and animations (their first frame). Transparency is dropped: a
pixel has the color that its file notes for it, as everywhere in torchvision and timm. Broken are files that Pillow
cannot decode to the end, images of more pixels than Pillow takes for safe (`PIL.Image.MAX_IMAGE_PIXELS`, 89 million: a
file of a few kilobytes may claim any number, and each takes memory), and pixels without a known scale (floating-point
numbers, which is also the only way in which a NaN could come out of a file).
"""

import errno
import functools
import os
import warnings
from typing import Any

SYSTEM_ERRNOS = (errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT)  # no fault of the file


class _OneLine(Exception):  # noqa: N818  (only a part of the two below)
    """One line, from a loader's worker process too.

    A worker's exception is made anew in the main process, of the same class and with the whole traceback as its
    message. Its last line is the message proper.
    """

    def __init__(self, message: str) -> None:
        last = (message.strip().splitlines() or [""])[-1]
        super().__init__(last.removeprefix(f"{type(self).__module__}.{type(self).__qualname__}: "))


class BadImage(_OneLine, ValueError):  # noqa: N818  (what it is, not what Python calls such a thing)
    """A file that cannot be read as an image; `--bad-data skip` leaves such files out."""


class ReadingError(_OneLine, OSError):
    """The machine could not read an image, for no fault of the file: no memory, too many open files, a dead worker."""


def read_image(file: Any, name: str | None = None) -> Any:
    """`decode`, or a complaint of one line; `name` is what it calls the file."""
    try:
        return decode(file)
    except Exception as error:
        raise image_error(name or str(file), error) from None


def decode(file: Any) -> Any:
    """The path or open file as PIL's RGB image, upright as its camera noted.

    May raise anything: damaged files make Pillow end in OSError, SyntaxError, struct.error, ...
    """
    from PIL import Image, ImageOps

    _refuse_instead_of_warning()
    with Image.open(file) as image:
        limit = Image.MAX_IMAGE_PIXELS
        if limit is not None and image.width * image.height > limit:
            raise ValueError(f"{image.width} x {image.height} px: accepted are up to {limit} pixels")
        ImageOps.exif_transpose(image, in_place=True)
        return to_rgb(image)


def to_rgb(image: Any) -> Any:
    """A PIL image of any mode as RGB."""
    from PIL import Image

    if not isinstance(image, Image.Image):
        raise TypeError(f"it is a {type(image).__name__}; accepted are PIL's images")
    if 0 in image.size:
        raise ValueError("it has no pixels")
    if image.mode == "F":
        raise ValueError("its pixels are floating-point numbers: accepted are whole ones, whose scale is known")
    if image.mode.startswith("I"):
        image = _to_eight_bits(image)
    image.info.pop("transparency", None)  # Pillow warns of one that it cannot keep
    return image.convert("RGB")


def image_error(name: str, error: Exception) -> BadImage | ReadingError:
    """What to raise where reading the image `name` ended in `error`."""
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
    """0 to 65535 scaled to 0 to 255; Pillow's own conversion turns everything above 255 white."""
    import numpy as np
    from PIL import Image

    values = np.asarray(image)
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("its pixels have more than 16 bits")
    return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))


@functools.cache
def _refuse_instead_of_warning() -> None:
    """Silence Pillow's warning of many pixels: `decode` refuses what it warns of.

    At the end of the list, where it gives way to whatever filter somebody else has set.
    """
    from PIL import Image

    warnings.filterwarnings("ignore", category=Image.DecompressionBombWarning, append=True)


def _is_empty(path: str) -> bool:
    try:
        return os.path.getsize(path) == 0
    except OSError:
        return False
