"""Batches of a dataset in memory, cropped and flipped as tensor operations.

Batch number `step` is a function of (seed, step): whoever resumes at a step gets the batch that would have come.
"""

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.draws import step_generator
from automix.data.batch_plan import BatchPlan
from automix.data.crops import crop_and_flip, draw_boxes, resized_crops
from automix.data.image_set import ImageSet
from automix.data.subset import spread_over_classes

TEST_BATCH = 100  # test images at once, unless a training part is larger


class MemoryLoader:
    """Batches after a `plan`, pixels normalized by the training set's statistics, channels last.

    `crop` "pad" takes a random crop out of the image with `padding` black pixels around it, as on CIFAR; "resized"
    enlarges a random box (RandomResizedCrop); "none" leaves the image as it is. `flip` mirrors every other image.
    """

    def __init__(
        self,
        data: ImageSet,
        plan: BatchPlan,
        *,
        test: ImageSet | None = None,
        crop: Literal["none", "pad", "resized"] = "pad",
        padding: int = 4,
        flip: bool = True,
    ) -> None:
        if plan.count != len(data):
            raise ValueError(
                f"the plan counts {plan.count} images, the training set has {len(data)}: accepted are equals"
            )
        if padding < 0:
            raise ValueError(f"padding={padding}: accepted is a number of pixels >= 0")
        if crop not in ("none", "pad", "resized"):
            raise ValueError(f"crop={crop!r}: accepted are none, pad, resized")
        self.data = data
        self.plan = plan
        self.test = test
        self.crop = crop
        self.padding = padding if crop == "pad" else 0
        self.flip = flip
        self.mean, self.std = data.statistics()

    def __len__(self) -> int:
        """Steps in an epoch."""
        return self.plan.steps_per_epoch

    def batch(self, step: int, micro_step: int = 0) -> tuple[Tensor, Tensor]:
        """Images (N, 3, H, W) and labels (N,) of training step 0, 1, ..."""
        chosen = self.plan.indices(step, micro_step)
        generator = step_generator(self.plan.seed, step, self.plan.micro_batch_index(micro_step), stream="augment")
        images = self.data.images[chosen]
        size = (images.shape[2], images.shape[3])
        if self.crop == "resized":
            boxes = draw_boxes(len(chosen), size, generator)
            images = resized_crops(images, boxes, self._draw_flips(len(chosen), generator), size)
        else:
            corner = torch.randint(2 * self.padding + 1, (2, len(chosen)), generator=generator)
            flip = self._draw_flips(len(chosen), generator)
            images = crop_and_flip(F.pad(images, (self.padding,) * 4), corner[0], corner[1], flip, size)
        return self.normalize(images), self.data.labels[chosen]

    def batches(self, first: int, last: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's accumulate of the steps from `first` up to `last`, exclusive."""
        for step in range(first, last):
            for micro_step in range(self.plan.accumulate):
                yield self.batch(step, micro_step)

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the test set: every image once over all processes, in order."""
        test = self._test_set()
        share = torch.arange(self.plan.rank, len(test), self.plan.world_size)
        for chosen in share.split(max(TEST_BATCH, self.plan.micro_batch_size)):
            yield self.normalize(test.images[chosen]), test.labels[chosen]

    def preview(self, count: int) -> tuple[Tensor, Tensor]:
        """`count` test images, of as many different classes as there are; always the same ones."""
        test = self._test_set()
        chosen = spread_over_classes(test.labels, count)
        return self.normalize(test.images[chosen]), test.labels[chosen]

    def normalize(self, images: Tensor) -> Tensor:
        """Images of values 0 to 255 as float32 of mean 0 and variance 1 over the training set; for test images too."""
        scaled = images.contiguous(memory_format=torch.channels_last).div(255)
        return scaled.sub_(self.mean.view(3, 1, 1)).div_(self.std.view(3, 1, 1))

    def _draw_flips(self, count: int, generator: torch.Generator) -> Tensor:
        return (torch.rand(count, generator=generator) < 0.5) & self.flip

    def _test_set(self) -> ImageSet:
        if self.test is None:
            raise ValueError("the loader has no test set: pass test=... when making it")
        return self.test
