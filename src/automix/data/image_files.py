"""A dataset on disk: a list of image files with their labels, read on demand."""

import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from automix.core.errors import AutomixError
from automix.data.decode import read_image
from automix.data.image_set import ImageSet, resize_and_crop, resize_and_crop_boxes
from automix.data.masks import mask_box, read_trimap
from automix.data.subset import check_labels, subset_positions

if TYPE_CHECKING:
    import numpy as np

CHUNK = 64  # images that a thread reads at a time


@dataclass(frozen=True)
class ImageFiles:
    """Labeled image files.

    Attributes:
        paths: The files.
        labels: Class indices, ``(N,)`` int64.
        classes: The names of the classes, in the order of the labels.
        boxes: Object boxes, ``(N, 4)`` float: x0, y0, x1, y1 in pixels of the file, x1 and y1 exclusive. None if the
            dataset has no boxes, or has masks instead.
        masks: Trimaps of the objects, one file per image. They are read by `read_mask` and `with_boxes` alone. None if
            the dataset has no masks.
        ignored: How many files beside the images were not read, by ending; of the folders as they were listed.
    """

    paths: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    boxes: Tensor | None = None
    masks: tuple[str, ...] | None = None
    ignored: Mapping[str, int] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        check_labels(self.labels, self.classes, self.name_of)

    def __len__(self) -> int:
        return len(self.paths)

    def name_of(self, index: int) -> str:
        """Name an image for messages.

        Args:
            index: Position of the image.

        Returns:
            The path of its file.
        """
        return self.paths[index]

    def read(self, index: int) -> tuple[Any, int]:
        """Read one image.

        Args:
            index: Position of the image.

        Returns:
            The PIL image (RGB) and its label.

        Raises:
            BadImage: The file cannot be read as an image.
        """
        return read_image(self.paths[index]), int(self.labels[index])

    def read_mask(self, index: int) -> "np.ndarray[Any, np.dtype[np.bool_]]":
        """Read the mask of the object in one image.

        Args:
            index: Position of the image.

        Returns:
            True where the object is, ``(H, W)``, in pixels of the file.

        Raises:
            BadImage: The file of the mask cannot be read.
        """
        if self.masks is None:
            raise AutomixError("masks must be known to read one; of the named datasets, pets has masks")
        return read_trimap(self.masks[index])

    def with_boxes(self) -> "ImageFiles":
        """Read the boxes around the masks.

        Returns:
            The dataset with boxes; itself if it has boxes already, or has no masks.
        """
        if self.boxes is not None or self.masks is None:
            return self
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            boxes = list(pool.map(lambda index: mask_box(self.read_mask(index)), range(len(self))))
        return replace(self, boxes=torch.stack(boxes))

    def subset(self, *, classes: int | None = None, per_class: int | None = None, seed: int = 0) -> "ImageFiles":
        """Keep some classes and some images of each.

        Args:
            classes: Keep the first so many classes; all if not given.
            per_class: Keep so many images of each class; all if not given.
            seed: Seed of the choice within a class.

        Returns:
            The smaller dataset, in the same order.
        """
        chosen = self.take(subset_positions(self.labels, len(self.classes), classes, per_class, seed))
        return replace(chosen, classes=self.classes[:classes])

    def take(self, positions: Tensor) -> "ImageFiles":
        """Keep the images at some positions.

        Args:
            positions: Positions, ``(M,)`` int64.

        Returns:
            Those images, in that order.
        """
        chosen = positions.tolist()
        return replace(
            self,
            paths=tuple(self.paths[i] for i in chosen),
            labels=self.labels[positions],
            boxes=None if self.boxes is None else self.boxes[positions],
            masks=None if self.masks is None else tuple(self.masks[i] for i in chosen),
        )

    def in_memory(self, size: int | None = None, crop: float = 1.0, squeeze: bool = False) -> ImageSet:
        """Read all images.

        Args:
            size: Resize and center-crop the images to this side in pixels. If not given, all files must have the same
                width and height.
            crop: Share of the resized short side that the crop keeps.
            squeeze: Resize both sides to `size` instead of cropping.

        Returns:
            The images, in the same order.
        """
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
                        own = boxes[index : index + 1]
                        boxes[index] = resize_and_crop_boxes(own, image.size, size, crop, squeeze)
                    image = resize_and_crop(image, image.size, size, crop, squeeze)
                elif image.size != first.size:
                    shapes = f"{image.width} x {image.height} px, the first image {first.width} x {first.height} px"
                    raise AutomixError(f"{path}: {shapes}; pass image_size to resize all images")
                pixels[index] = np.moveaxis(np.asarray(image), 2, 0)

        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:  # PIL releases the GIL while it decodes
            for _ in pool.map(load, range(0, len(self), CHUNK)):
                pass
        return ImageSet(torch.from_numpy(pixels), self.labels, self.classes, boxes)
