"""Images with boxes, and training batches of them as a function of (seed, step)."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from automix.core.draws import step_generator
from automix.data.batch_plan import BatchPlan
from automix.data.decode import read_image

Batch = tuple[list[Tensor], list["Objects"]]


@dataclass(frozen=True)
class Objects:
    """What an image shows: `boxes` (M, 4), x0 y0 x1 y1 in pixels, x1 and y1 exclusive, and `labels` (M,), from 0.

    `ignored` (M,) marks VOC's difficult objects and COCO's crowds: not trained on, and in testing whoever finds one is
    neither right nor wrong.
    """

    boxes: Tensor
    labels: Tensor
    ignored: Tensor

    @classmethod
    def of(cls, boxes: list[list[float]], labels: list[int], ignored: list[bool]) -> "Objects":
        return cls(torch.tensor(boxes).float().view(-1, 4), torch.tensor(labels).long(), torch.tensor(ignored).bool())

    def mirrored(self, width: int) -> "Objects":
        x0, y0, x1, y1 = self.boxes.unbind(dim=1)
        return Objects(torch.stack([width - x1, y0, width - x0, y1], dim=1), self.labels, self.ignored)


@dataclass(frozen=True)
class DetectionSet:
    """Images and the `objects` on each: files at `paths`, or `images` (N, 3, H, W) uint8 in memory."""

    classes: tuple[str, ...]
    objects: tuple[Objects, ...]
    paths: tuple[str, ...] = ()
    images: Tensor | None = None

    def __len__(self) -> int:
        return len(self.objects)

    def read(self, index: int) -> Tensor:
        """Image `index` as (3, H, W) uint8."""
        import numpy as np

        if self.images is not None:
            return self.images[index]
        return torch.from_numpy(np.array(read_image(self.paths[index]))).permute(2, 0, 1)

    def take(self, positions: list[int]) -> "DetectionSet":
        """The images at `positions`, in that order."""
        return DetectionSet(
            self.classes,
            tuple(self.objects[i] for i in positions),
            tuple(self.paths[i] for i in positions) if self.paths else (),
            None if self.images is None else self.images[positions],
        )

    def trainable(self) -> "DetectionSet":
        """The images with something to train on."""
        positions = [i for i, found in enumerate(self.objects) if not found.ignored.all()]
        if not positions:
            raise ValueError(f"none of the {len(self)} training images has a box: accepted are images with boxes")
        return self.take(positions)


def training_batch(data: DetectionSet, plan: BatchPlan, step: int, pool: ThreadPoolExecutor, piece: int = 0) -> Batch:
    """The images of a step, half of them mirrored, and their objects; the short sides are drawn by the detector."""
    positions = plan.indices(step, piece).tolist()
    generator = step_generator(plan.seed, step, plan.micro_batch_index(piece), stream="mirror")
    mirror = (torch.rand(len(positions), generator=generator) < 0.5).tolist()
    images = list(pool.map(data.read, positions))
    objects = [data.objects[i] for i in positions]
    return (
        [image.flip(-1) if turn else image for image, turn in zip(images, mirror, strict=True)],
        [
            found.mirrored(image.shape[-1]) if turn else found
            for found, image, turn in zip(objects, images, mirror, strict=True)
        ],
    )


def training_batches(data: DetectionSet, plan: BatchPlan, start: int, stop: int, workers: int) -> Iterator[Batch]:
    """The batches of steps `start` to `stop`, piece by piece, each read while the one before it is used."""
    order = [(step, piece) for step in range(start, stop) for piece in range(plan.accumulate)]
    # PIL decodes without holding Python's lock, so threads are enough
    with ThreadPoolExecutor(max(1, workers)) as readers, ThreadPoolExecutor(1) as ahead:

        def read(number: int) -> "Future[Batch]":
            step, piece = order[number]
            return ahead.submit(training_batch, data, plan, step, readers, piece)

        coming = read(0) if order else None
        for number in range(len(order)):
            assert coming is not None  # for the type checker
            batch = coming.result()
            coming = read(number + 1) if number + 1 < len(order) else None
            yield batch
