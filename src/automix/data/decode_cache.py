"""Keep decoded images in memory, so that each file is decoded once and not in every epoch.

Training images are kept as they were decoded, and test images as they were cropped: batches are the same to the bit
with and without the cache. There is one exception. If the training images as decoded are larger than `LIMIT`, but would
fit with every short side reduced to twice the training size, they are reduced to that. This depends on the files and
the training size alone: a run on a machine with less memory, or with more processes, reduces them too and decodes them
anew in every epoch.

An image is stored by the worker that reads it first, in memory that all workers share.
"""

import mmap
import multiprocessing
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from automix.data.choices import Caching
from automix.data.decode import read_image, read_size, reduced_size
from automix.data.image_files import ImageFiles

LIMIT = 2 * 2**30  # bytes of a process; larger sets are decoded anew in every epoch
SIZES = 2  # a reduced short side is at least so many times the training size


@dataclass(frozen=True)
class CachePlan:
    """What is kept of a dataset.

    Attributes:
        short_side: Photographs with a longer short side, in pixels, are reduced to it; None if none is reduced.
        reduced: Number of photographs that are reduced.
        train_pixels: Number of pixels of each training image; None if training images are not kept.
        test_pixels: Number of pixels of each test image; None if test images are not kept.
    """

    short_side: int | None = None
    reduced: int = 0
    train_pixels: tuple[int, ...] | None = None
    test_pixels: tuple[int, ...] | None = None

    @property
    def bytes(self) -> int:
        """The memory of all images that are kept."""
        return 3 * (sum(self.train_pixels or ()) + sum(self.test_pixels or ()))

    def describe(self) -> str:
        """Describe the cache in one line; empty if it does nothing."""
        parts = []
        if self.bytes:
            parts.append(f"decoded images are kept in memory: {self.bytes / 1e6:,.0f} MB")
        if self.reduced:
            side = f"{self.reduced} photographs are reduced to a short side of {self.short_side} px before training"
            parts.append(f"{side} (--decode-cache exact keeps their size)")
        return "; ".join(parts)


def plan_cache(
    train: ImageFiles, test: ImageFiles, *, train_size: int, test_size: int, caching: Caching, processes: int
) -> CachePlan:
    """Decide what is kept of a dataset.

    Args:
        train: The training files.
        test: The test files.
        train_size: Side of the training images in pixels.
        test_size: Side of the test images in pixels.
        caching: Which images may be kept.
        processes: Training processes on this machine, each of which has a cache.

    Returns:
        The plan. It has test images if they fit beside the training images.
    """
    if caching == "off":
        return CachePlan()
    smallest = SIZES * train_size if caching == "auto" else None
    sizes = _read_sizes(train.paths, smallest)
    if sizes is None:
        return CachePlan()
    fits = 3 * sum(_pixels(size, None) for size in sizes) <= LIMIT
    short_side = None if fits else smallest
    pixels = tuple(_pixels(size, short_side) for size in sizes)
    reduced = sum(size is not None and reduced_size(size, short_side) != size for size in sizes)
    memory = available_memory() // (2 * processes)
    test_pixels = (test_size**2,) * len(test)
    left = min(LIMIT, memory) - 3 * sum(pixels)
    return CachePlan(
        short_side,
        reduced,
        pixels if left >= 0 else None,
        test_pixels if left >= 3 * sum(test_pixels) else None,
    )


def available_memory() -> int:
    """Look up how many bytes new allocations may take: the machine's memory, or what a container has left.

    Returns:
        The number of bytes; the whole memory on systems that do not tell.
    """
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")] if hasattr(os, "sysconf") else [LIMIT * 8]
    try:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
    except (OSError, ValueError, LookupError):
        pass
    try:
        limit, used = (Path(f"/sys/fs/cgroup/memory.{name}").read_text() for name in ("max", "current"))
        found.append(int(limit) - int(used))  # "max" is no number: no limit
    except (OSError, ValueError):
        pass
    return max(0, min(found))


class CachedImages:
    """Image files whose pixels are kept once they have been read.

    Args:
        files: The files.
        read: Reads a file as a PIL image (RGB); always the same pixels.
        pixels: Number of pixels of each image. An image with another number is read anew each time.
        workers: Worker processes that will share the pixels.

    Attributes:
        classes: The names of the classes, in the order of the labels.
        labels: Class indices, ``(N,)`` int64.
    """

    def __init__(self, files: ImageFiles, read: Callable[[str], Any], pixels: Iterable[int], workers: int) -> None:
        self.files = files
        self.classes = files.classes
        self.labels = files.labels
        self._read = read
        self._ends = 3 * torch.tensor([0, *pixels]).cumsum(0)
        self._widths = _shared(4 * len(files), workers).view(torch.int32)  # 0 until the image is there
        self._stored = _shared(int(self._ends[-1]), workers)

    def __len__(self) -> int:
        return len(self.files)

    def name_of(self, index: int) -> str:
        """Name an image for messages: by its file."""
        return self.files.name_of(index)

    def read(self, index: int) -> tuple[Any, int]:
        """Read one image as a PIL image (RGB), and its label; from memory if it was read before."""
        from PIL import Image

        label = int(self.labels[index])
        start, end = self._ends[index : index + 2].tolist()
        pixels = self._stored[start:end].numpy()
        if width := int(self._widths[index]):
            return Image.frombuffer("RGB", (width, (end - start) // (3 * width)), pixels, "raw", "RGB", 0, 1), label
        image = self._read(self.files.paths[index])
        if 3 * image.width * image.height == end - start:
            self._store(index, image, pixels)
        return image, label

    def _store(self, index: int, image: Any, pixels: Any) -> None:
        import numpy as np

        pixels[:] = np.asarray(image).reshape(-1)
        self._widths[index] = image.width  # last: readers look at it first


def training_files(files: ImageFiles, plan: CachePlan, workers: int) -> CachedImages | ImageFiles:
    """Apply a plan to the training files.

    Args:
        files: The training files.
        plan: The plan.
        workers: Worker processes that will read them.

    Returns:
        The files, with a cache of as many images as the plan keeps.
    """
    if plan.train_pixels is None and plan.short_side is None:
        return files
    pixels = plan.train_pixels or (0,) * len(files)  # which no image has: reduced, but not kept
    return CachedImages(files, partial(read_image, short_side=plan.short_side), pixels, workers)


def cropped_files(files: ImageFiles, plan: CachePlan, crop: Any, workers: int) -> CachedImages:
    """Apply a plan to the test files: their crops are kept.

    Args:
        files: The test files.
        plan: The plan; its `test_pixels` are not None.
        crop: Turns a PIL image into the square that the network sees.
        workers: Worker processes that will read them.

    Returns:
        The files as crops.
    """
    return CachedImages(files, partial(_read_and_crop, crop), plan.test_pixels or (), workers)


def _read_and_crop(crop: Any, path: str) -> Any:
    return crop(read_image(path))


def _read_sizes(paths: Iterable[str], short_side: int | None) -> list[tuple[int, int] | None] | None:
    """The sizes of images; None, without looking at all of them, if they do not fit even when reduced."""
    sizes: list[tuple[int, int] | None] = []
    total = 0
    for path in paths:
        size = read_size(path)
        sizes.append(size)
        total += 3 * _pixels(size, short_side)
        if total > LIMIT:
            return None
    return sizes


def _pixels(size: tuple[int, int] | None, short_side: int | None) -> int:
    if size is None:  # a file that cannot be read; reading it says so
        return 0
    width, height = reduced_size(size, short_side)
    return width * height


def _shared(count: int, workers: int) -> Tensor:
    """Bytes, all 0, that this process and its workers share; pages that are not written take no memory."""
    if workers == 0 or multiprocessing.get_start_method() == "fork":
        return torch.frombuffer(mmap.mmap(-1, max(1, count)), dtype=torch.uint8)[:count]
    storage = torch.UntypedStorage._new_shared(max(1, count))
    return torch.empty(0, dtype=torch.uint8).set_(storage)[:count]
