"""Images with boxes, and training batches of them as a function of (seed, step)."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from automix.core.draws import step_generator
from automix.core.errors import AutomixError
from automix.data.batch_plan import BatchPlan
from automix.data.decode import read_image

Batch = tuple[list[Tensor], list["Objects"]]


@dataclass(frozen=True)
class Objects:
    """The annotated objects of one image.

    Attributes:
        boxes: ``(M, 4)``, x0 y0 x1 y1 in pixels, x1 and y1 exclusive.
        labels: Class indices ``(M,)``, from 0.
        ignored: ``(M,)`` bool, true for VOC's difficult objects and COCO's crowds. They are not trained on, and in the
            evaluation a detection of one is neither right nor wrong.
    """

    boxes: Tensor
    labels: Tensor
    ignored: Tensor

    @classmethod
    def from_lists(cls, boxes: list[list[float]], labels: list[int], ignored: list[bool]) -> "Objects":
        """Build the tensors from lists, which may be empty.

        Args:
            boxes: x0 y0 x1 y1 of each object, in pixels.
            labels: Class indices, from 0.
            ignored: Whether each object is left out of training.

        Returns:
            The objects.
        """
        return cls(torch.tensor(boxes).float().view(-1, 4), torch.tensor(labels).long(), torch.tensor(ignored).bool())

    def flip(self, width: int) -> "Objects":
        """Mirror the boxes from left to right.

        Args:
            width: Width of the image in pixels.

        Returns:
            The objects of the mirrored image.
        """
        x0, y0, x1, y1 = self.boxes.unbind(dim=1)
        return Objects(torch.stack([width - x1, y0, width - x0, y1], dim=1), self.labels, self.ignored)


@dataclass(frozen=True)
class DetectionSet:
    """A detection dataset: image files, or images in memory, and the objects of each.

    Attributes:
        classes: Class names by label.
        objects: The objects of each image.
        paths: The image files; empty if the images are in memory.
        images: ``(N, 3, H, W)`` uint8, or None if the images are files.
    """

    classes: tuple[str, ...]
    objects: tuple[Objects, ...]
    paths: tuple[str, ...] = ()
    images: Tensor | None = None

    def __len__(self) -> int:
        return len(self.objects)

    def read(self, index: int) -> Tensor:
        """Read one image.

        Args:
            index: Position in the dataset.

        Returns:
            The image, ``(3, H, W)`` uint8.
        """
        import numpy as np

        if self.images is not None:
            return self.images[index]
        return torch.from_numpy(np.array(read_image(self.paths[index]))).permute(2, 0, 1)

    def subset(self, positions: list[int]) -> "DetectionSet":
        """Select some of the images.

        Args:
            positions: Positions in the dataset, in the order wanted.

        Returns:
            The dataset of these images.
        """
        return DetectionSet(
            self.classes,
            tuple(self.objects[i] for i in positions),
            tuple(self.paths[i] for i in positions) if self.paths else (),
            None if self.images is None else self.images[positions],
        )

    def trainable(self) -> "DetectionSet":
        """Select the images that have at least one object to train on."""
        positions = [i for i, objects in enumerate(self.objects) if not objects.ignored.all()]
        if not positions:
            raise AutomixError(f"none of the {len(self)} training images has a box to train on")
        return self.subset(positions)


def training_batch(
    data: DetectionSet, plan: BatchPlan, step: int, pool: ThreadPoolExecutor, micro_batch: int = 0
) -> Batch:
    """Read the images of a step and mirror half of them. The detector itself draws their short sides.

    Args:
        data: The training set.
        plan: The images of each step.
        step: Number of the step, from 0.
        pool: Threads that read the images.
        micro_batch: Index of the micro-batch, from 0.

    Returns:
        The images and their objects.
    """
    positions = plan.indices(step, micro_batch).tolist()
    generator = step_generator(plan.seed, step, plan.micro_batch_index(micro_batch), stream="mirror")
    mirror = (torch.rand(len(positions), generator=generator) < 0.5).tolist()
    images = list(pool.map(data.read, positions))
    objects = [data.objects[i] for i in positions]
    return (
        [image.flip(-1) if flip else image for image, flip in zip(images, mirror, strict=True)],
        [
            boxes.flip(image.shape[-1]) if flip else boxes
            for boxes, image, flip in zip(objects, images, mirror, strict=True)
        ],
    )


def training_batches(data: DetectionSet, plan: BatchPlan, start: int, stop: int, workers: int) -> Iterator[Batch]:
    """Iterate over the micro-batches of steps `start` to `stop`; the next one is read in the background.

    Args:
        data: The training set.
        plan: The images of each step.
        start: The first step.
        stop: The step after the last one.
        workers: Threads that read images.

    Yields:
        Images and their objects.
    """
    order = [(step, micro_batch) for step in range(start, stop) for micro_batch in range(plan.accumulate)]
    # PIL decodes without holding Python's lock, so threads are enough
    with ThreadPoolExecutor(max(1, workers)) as readers, ThreadPoolExecutor(1) as ahead:

        def read(number: int) -> "Future[Batch]":
            step, micro_batch = order[number]
            return ahead.submit(training_batch, data, plan, step, readers, micro_batch)

        coming = read(0) if order else None
        for number in range(len(order)):
            assert coming is not None  # for the type checker
            batch = coming.result()
            coming = read(number + 1) if number + 1 < len(order) else None
            yield batch
