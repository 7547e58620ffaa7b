"""A dataset on disk: a list of image files with their labels, read when they are wanted."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from automix.data.decode import decode as decode
from automix.data.decode import read_image
from automix.data.image_set import ImageSet, resize_and_crop, resize_and_crop_boxes
from automix.data.subset import check_labels, subset_positions

CHUNK = 64  # images that a thread reads at a time


@dataclass(frozen=True)
class ImageFiles:
    """`paths` of N images, `labels` (N,) int64, the names of the classes, and where known the objects' `boxes`.

    Boxes are (N, 4) float: x0 y0 x1 y1 in pixels of the file, x1 and y1 exclusive.
    """

    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    boxes: Tensor | None = None

    def __post_init__(self) -> None:
        check_labels(self.labels, self.classes, self.name_of)

    def __len__(self) -> int:
        return len(self.paths)

    def name_of(self, index: int) -> str:
        """What messages call image `index`."""
        return self.paths[index]

    def read(self, index: int) -> tuple[Any, int]:
        """Image `index` as PIL's, and its label."""
        return read_image(self.paths[index]), int(self.labels[index])

    def subset(self, *, classes: int | None = None, per_class: int | None = None, seed: int = 0) -> "ImageFiles":
        """The first `classes` classes, and `per_class` images of each, drawn by `seed`."""
        chosen = self.take(subset_positions(self.labels, len(self.classes), classes, per_class, seed))
        return replace(chosen, classes=self.classes[:classes])

    def take(self, positions: Tensor) -> "ImageFiles":
        """The images at `positions`, in that order."""
        paths = tuple(self.paths[i] for i in positions.tolist())
        return ImageFiles(
            paths, self.labels[positions], self.classes, None if self.boxes is None else self.boxes[positions]
        )

    def in_memory(self, size: int | None = None, crop: float = 1.0) -> ImageSet:
        """All images, in order, resized and cropped to `size`; without a size they must be equally large already."""
        import numpy as np

        first = read_image(self.paths[0])
        width, height = first.size if size is None else (size, size)
        pixels = np.empty((len(self), 3, height, width), dtype=np.uint8)
        boxes = None if self.boxes is None else self.boxes.clone()

        def load(start: int) -> None:
            for index, path in enumerate(self.paths[start : start + CHUNK], start):
                image = read_image(path)
                if size is not None:
                    if boxes is not None:
                        boxes[index] = resize_and_crop_boxes(boxes[index : index + 1], image.size, size, crop)
                    image = resize_and_crop(image, image.size, size, crop)
                elif image.size != first.size:
                    found = f"{image.width} x {image.height} px, the first is {first.size}"
                    raise ValueError(f"{path}: {found}: pass image_size=...")
                pixels[index] = np.moveaxis(np.asarray(image), 2, 0)

        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # PIL decodes without holding Python's lock
            for _ in pool.map(load, range(0, len(self), CHUNK)):
                pass
        return ImageSet(torch.from_numpy(pixels), self.labels, self.classes, boxes)
