"""Batches of a dataset in memory, cropped and flipped as tensor operations.

A batch is a function of (seed, step), so training can resume at any step.
"""

from collections.abc import Iterator
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from automix.core.draws import step_generator
from automix.core.errors import AutomixError
from automix.core.normalization import Normalization
from automix.core.validation import check_choice, check_range
from automix.data.batch_plan import BatchPlan
from automix.data.crops import crop_and_flip, draw_boxes, resized_crops
from automix.data.image_set import ImageSet
from automix.data.subset import spread_over_classes

TEST_BATCH = 100  # test images at once, unless a training micro-batch is larger


class MemoryLoader:
    """Batches of images in memory, normalized and in channels-last format.

    Args:
        data: The training set.
        plan: Which images make up which batch.
        test: The test set, for `test_batches` and `preview`.
        crop: "pad" takes a random crop out of the padded image, as on CIFAR; "resized" enlarges a random box
            (RandomResizedCrop); "none" keeps the whole image.
        padding: Black pixels around the image, for "pad".
        flip: Mirror each training image with probability 0.5.
        crop_scale: Smallest share of the image that "resized" keeps, in (0, 1].
        normalization: Mean and standard deviation of the pixels; those of the training set if not given.

    Attributes:
        mean: Mean of each channel that images are normalized by, ``(3,)``.
        std: Standard deviation of each channel, ``(3,)``.
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
        crop_scale: float = 0.08,
        normalization: Normalization | None = None,
    ) -> None:
        if plan.count != len(data):
            raise AutomixError(f"plan.count must be {len(data)}, the number of training images, got {plan.count}")
        if padding < 0:
            raise AutomixError(f"padding must be >= 0, got {padding}")
        check_choice("crop", crop, ("none", "pad", "resized"))
        check_range("crop_scale", crop_scale, 0, 1, bounds="(]")
        self.data = data
        self.plan = plan
        self.test = test
        self.crop = crop
        self.padding = padding if crop == "pad" else 0
        self.flip = flip
        self.crop_scale = crop_scale
        if normalization is None:
            self.mean, self.std = data.statistics()
        else:
            self.mean, self.std = torch.tensor(normalization.mean), torch.tensor(normalization.std)

    def __len__(self) -> int:
        """Steps in an epoch."""
        return self.plan.steps_per_epoch

    def batch(self, step: int, micro_step: int = 0) -> tuple[Tensor, Tensor]:
        """Make a training batch.

        Args:
            step: The training step, 0, 1, ... over all epochs.
            micro_step: The gradient accumulation step of this process.

        Returns:
            Images ``(N, 3, H, W)`` float32 and labels ``(N,)`` int64.
        """
        chosen = self.plan.indices(step, micro_step)
        generator = step_generator(self.plan.seed, step, self.plan.micro_batch_index(micro_step), stream="augment")
        images = self.data.images[chosen]
        size = (images.shape[2], images.shape[3])
        if self.crop == "resized":
            boxes = draw_boxes(len(chosen), size, generator, (self.crop_scale, 1.0))
            images = resized_crops(images, boxes, self._draw_flips(len(chosen), generator), size)
        else:
            corner = torch.randint(2 * self.padding + 1, (2, len(chosen)), generator=generator)
            flip = self._draw_flips(len(chosen), generator)
            images = crop_and_flip(F.pad(images, (self.padding,) * 4), corner[0], corner[1], flip, size)
        return self.normalize(images), self.data.labels[chosen]

    def batches(self, first: int, last: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Go through this process's micro-batches of several steps.

        Args:
            first: The first step.
            last: The step after the last one.

        Yields:
            Images ``(N, 3, H, W)`` and labels ``(N,)`` of each micro-batch.
        """
        for step in range(first, last):
            for micro_step in range(self.plan.accumulate):
                yield self.batch(step, micro_step)

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Go through this process's share of the test set; over all processes every image comes once, in order."""
        test = self._test_set()
        share = torch.arange(self.plan.rank, len(test), self.plan.world_size)
        for chosen in share.split(max(TEST_BATCH, self.plan.micro_batch_size)):
            yield self.normalize(test.images[chosen]), test.labels[chosen]

    def preview(self, count: int) -> tuple[Tensor, Tensor]:
        """Get a few test images of as many classes as possible; always the same ones.

        Args:
            count: Number of images.

        Returns:
            Normalized images ``(N, 3, H, W)`` and labels ``(N,)``.
        """
        test = self._test_set()
        chosen = spread_over_classes(test.labels, count)
        return self.normalize(test.images[chosen]), test.labels[chosen]

    def normalize(self, images: Tensor) -> Tensor:
        """Normalize images by `mean` and `std`.

        Args:
            images: Pixels from 0 to 255, ``(N, 3, H, W)``.

        Returns:
            Normalized pixels, float32, channels-last.
        """
        scaled = images.contiguous(memory_format=torch.channels_last).div(255)
        return scaled.sub_(self.mean.view(3, 1, 1)).div_(self.std.view(3, 1, 1))

    def _draw_flips(self, count: int, generator: torch.Generator) -> Tensor:
        return (torch.rand(count, generator=generator) < 0.5) & self.flip

    def _test_set(self) -> ImageSet:
        if self.test is None:
            raise AutomixError("the loader has no test set; pass test= to MemoryLoader")
        return self.test
