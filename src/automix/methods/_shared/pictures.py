"""The user's own pictures as a mixing set (PixMix): the images of a folder, read once and kept at the size needed."""

import functools
import os
from pathlib import Path

import torch
from torch import Tensor

from automix.core.errors import AutomixError, one_line

ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm")
MOST_BYTES = 256 * 2**20  # kept in memory; of a larger folder, pictures at even distances


@functools.lru_cache(maxsize=4)
def folder_pictures(folder: str, height: int, width: int, channels: int) -> Tensor:
    """Read the pictures of a folder and of those in it.

    Each is resized until it covers the size, and its center is cut out.

    Args:
        folder: The folder.
        height: Height in pixels.
        width: Width in pixels.
        channels: 3, or 1 for gray pictures.

    Returns:
        Pictures ``(P, channels, height, width)``, uint8. Do not write into them.
    """
    from PIL import Image, ImageOps

    if channels not in (1, 3):
        raise AutomixError(f"pictures of a folder have 1 or 3 channels, got images with {channels}")
    paths = sorted(
        Path(inside) / name for inside, _, names in os.walk(folder) for name in names if name.lower().endswith(ENDINGS)
    )
    if not paths:
        raise AutomixError(f"pictures: no image ({' '.join(ENDINGS)}) in the folder {folder}")
    most = max(1, MOST_BYTES // (channels * height * width))
    count = min(len(paths), most)
    pictures = torch.empty(count, channels, height, width, dtype=torch.uint8, device="cpu")
    for number in range(count):
        path = paths[number * len(paths) // count]
        try:
            with Image.open(path) as image:
                fitted = ImageOps.fit(image.convert("RGB" if channels == 3 else "L"), (width, height))
        except (OSError, ValueError, Image.DecompressionBombError) as error:
            raise AutomixError(f"pictures: {path} cannot be read ({one_line(error)})") from None
        flat = torch.frombuffer(bytearray(fitted.tobytes()), dtype=torch.uint8)
        pictures[number] = flat.view(height, width, channels).permute(2, 0, 1)
    return pictures
