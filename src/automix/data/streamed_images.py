"""Images read and augmented by the workers of a `StreamLoader`."""

import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from automix.core.draws import step_seed
from automix.core.normalization import Normalization
from automix.data.batch_plan import BatchPlan
from automix.data.sources import Source

Draw = tuple[int, int]
"""The position of an image in the dataset, and the seed of its augmentation."""

IDLE = -1  # the entry of a worker that reads no image


class StreamedImages(Dataset[tuple[Any, int]]):
    """Images read and transformed, each with its own seed.

    Every worker records, as (process id, position), which image it is reading, in shared memory that outlives it.

    Args:
        source: The dataset.
        transform: Turns a PIL image into a square one, or into a normalized tensor; None if images are squares.
        workers: Number of worker processes.
    """

    def __init__(self, source: Source, transform: Any, workers: int) -> None:
        self.source = source
        self.transform = transform
        self.reading = torch.full((workers, 2), IDLE).share_memory_()

    def __len__(self) -> int:
        return len(self.source)

    def __getitems__(self, draws: list[Draw]) -> list[tuple[Any, int]]:
        """Make a whole batch, as DataLoader asks for it; restoring the random states takes half a millisecond."""
        with _random_states_kept():
            return [self._make(index, seed) for index, seed in draws]

    def forget_workers(self) -> None:
        """Clear the records of earlier workers."""
        self.reading.fill_(IDLE)

    def files_of_dead_workers(self) -> list[str]:
        """Name the images that dead workers were reading; waits up to a second for a dying process."""
        reading = [(process, index) for process, index in self.reading.tolist() if index != IDLE]
        for _ in range(20 if reading else 0):
            alive = {child.pid for child in multiprocessing.active_children()}
            if dead := [index for process, index in reading if process not in alive]:
                return [self.source.name_of(index) for index in dead]
            time.sleep(0.05)
        return []

    def _make(self, index: int, seed: int) -> tuple[Any, int]:
        with self._recorded(index):
            image, label = self.source.read(index)
            if self.transform is None:
                return image, label
            _seed_everything(seed)
            return self.transform(image), label

    @contextmanager
    def _recorded(self, index: int) -> Iterator[None]:
        worker = get_worker_info()
        if worker is None:
            yield
            return
        record = self.reading[worker.id]
        record.copy_(torch.tensor([os.getpid(), index]))
        try:
            yield
        finally:
            record[1] = IDLE


class StepSampler:
    """The draws of every micro-batch of the steps in `range`, as a batch sampler of DataLoader.

    Args:
        plan: Which images make up which batch.
    """

    def __init__(self, plan: BatchPlan) -> None:
        self.plan = plan
        self.range = range(0)

    def __len__(self) -> int:
        return len(self.range) * self.plan.accumulate

    def __iter__(self) -> Iterator[list[Draw]]:
        for step in self.range:
            for micro_step in range(self.plan.accumulate):
                seed = step_seed(self.plan.seed, step, self.plan.micro_batch_index(micro_step), stream="augment")
                chosen = self.plan.indices(step, micro_step).tolist()
                yield [(index, step_seed(seed, place, stream="draw")) for place, index in enumerate(chosen)]


def collate(items: list[tuple[Any, int]], normalization: Normalization) -> tuple[Tensor, Tensor]:
    """Make a batch of images and labels.

    Args:
        items: PIL images of one size, or normalized tensors ``(3, H, W)``, with their labels.
        normalization: Mean and standard deviation of the pixels of PIL images.

    Returns:
        Normalized images ``(N, 3, H, W)``, channels-last, and labels ``(N,)``.
    """
    import numpy as np

    labels = torch.tensor([label for _, label in items])
    images = [image for image, _ in items]
    if isinstance(images[0], Tensor):
        batch = torch.empty(len(images), *images[0].shape, memory_format=torch.channels_last)
        torch.stack(images, out=batch)  # one copy, directly into the channels-last order
        return batch, labels
    # Of a whole batch at once, with the arithmetic of torchvision's ToTensor and Normalize.
    pixels = torch.from_numpy(np.stack([np.asarray(image) for image in images])).permute(0, 3, 1, 2)
    mean, std = (torch.tensor(channels).view(3, 1, 1) for channels in (normalization.mean, normalization.std))
    return pixels.div(255).sub_(mean).div_(std), labels


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """Restore the states of the three generators that transforms draw from."""
    import numpy as np

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _seed_everything(seed: int) -> None:
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would change the GPUs' generators too
