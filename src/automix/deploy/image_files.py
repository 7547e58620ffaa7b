"""Image files named by a user: find them in folders, and read them the way test images are read."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from automix.core.errors import AutomixError, one_line
from automix.data.decode import decode
from automix.data.folders import image_endings, walk_once
from automix.data.image_set import resize_and_crop


def list_images(paths: Sequence[Path]) -> list[Path]:
    """Replace every folder by the image files below it.

    Folders are searched recursively, through symbolic links too, each folder once. Hidden files and folders are left
    out. The file extensions are those that training reads.

    Args:
        paths: Files and folders. A file is listed whatever its extension.

    Returns:
        The files, in the order of `paths` and alphabetical within a folder. A folder without images stays in the list,
        so that reading it reports the problem.
    """
    listed: list[Path] = []
    for path in paths:
        listed.extend(sorted(_images_below(path)) or [path])
    return listed


def read_square(path: Path, size: int, crop: float = 1.0) -> Tensor:
    """Read an image file the way test images are read.

    The image is turned upright and converted to RGB, its short side is resized to ``size / crop`` (bicubic), and the
    center is cut out. Only regular files are opened.

    Args:
        path: The image file.
        size: Side of the result in pixels.
        crop: Share of the resized short side that the result keeps, in (0, 1].

    Returns:
        The pixels, ``(3, size, size)`` uint8.

    Raises:
        AutomixError: The file cannot be read as an image; the message starts with the path.
    """
    try:
        return read_pixels(path, size, crop)
    except Exception as error:
        raise AutomixError(f"{path}: {reason(error)}") from None


def read_pixels(path: Path, size: int, crop: float) -> Tensor:
    """`read_square` without its error handling: a damaged file makes Pillow raise almost anything."""
    if path.is_dir():
        raise AutomixError("no images in this folder")
    image = decode(path)
    return torch.from_numpy(np.array(resize_and_crop(image, image.size, size, crop))).permute(2, 0, 1)


def reason(error: Exception) -> str:
    """Say in one line, without the path, why a file could not be read."""
    return (isinstance(error, OSError) and error.strerror) or one_line(error)


def _images_below(folder: Path) -> Iterator[Path]:
    endings = image_endings()
    for current, names in walk_once(str(folder)) if folder.is_dir() else ():
        is_hidden = any(part.startswith(".") for part in Path(current).relative_to(folder).parts)
        for name in names:
            if not is_hidden and not name.startswith(".") and name.lower().endswith(endings):
                yield Path(current, name)
