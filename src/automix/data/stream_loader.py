"""Batches of a dataset that is read from disk during training.

The augmentation of an image is a function of (seed, step, micro-batch, position in the micro-batch), not of the worker
that makes it: any number of workers gives the same batches, and training can resume in the middle of an epoch. timm's
create_loader offers neither, so its transforms are used here, but not its loader.
"""

import re
import signal
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from automix.core.errors import AutomixError, one_line
from automix.core.normalization import IMAGENET, Normalization
from automix.data.augmentation import Augmentation, test_transform, train_transform
from automix.data.batch_plan import BatchPlan
from automix.data.decode import BadImage, ReadingError
from automix.data.decode_cache import CachePlan, cropped_files, training_files
from automix.data.image_files import ImageFiles
from automix.data.memory_loader import TEST_BATCH
from automix.data.sources import Source
from automix.data.streamed_images import StepSampler, StreamedImages, collate
from automix.data.subset import spread_over_classes

LOST_WORKER = (EOFError, ConnectionError, FileNotFoundError)  # what fetching a batch from a dead worker may raise


class StreamLoader:
    """Batches of images from disk, normalized and in channels-last format.

    Args:
        train: The training set.
        test: The test set.
        plan: Which images make up which batch.
        augmentation: Crops and colors of training images, and the crop of test images.
        train_size: Side of the training images in pixels.
        test_size: Side of the test images in pixels.
        workers: Worker processes; 0 reads in this process.
        normalization: Mean and standard deviation of the pixels; ImageNet's if not given.
        cache: Which decoded images of `ImageFiles` are kept in memory; none if not given.

    Attributes:
        mean: Mean of each channel that images are normalized by, ``(3,)``.
        std: Standard deviation of each channel, ``(3,)``.
    """

    def __init__(
        self,
        train: Source,
        test: Source,
        plan: BatchPlan,
        augmentation: Augmentation,
        *,
        train_size: int,
        test_size: int,
        workers: int = 2,
        normalization: Normalization = IMAGENET,
        cache: CachePlan | None = None,
    ) -> None:
        if plan.count != len(train):
            raise AutomixError(f"plan.count must be {len(train)}, the number of training images, got {plan.count}")
        if workers < 0:
            raise AutomixError(f"workers must be >= 0, got {workers}")
        self.plan = plan
        self.mean, self.std = torch.tensor(normalization.mean), torch.tensor(normalization.std)
        self.test = test
        self.workers = workers
        self._collate = partial(collate, normalization=normalization)
        crop = test_transform(augmentation, test_size)
        self._test_images = StreamedImages(test, crop, workers)
        if cache is not None and isinstance(test, ImageFiles) and cache.test_pixels is not None:
            self._test_images = StreamedImages(cropped_files(test, cache, crop, workers), None, workers)
        if cache is not None and isinstance(train, ImageFiles):
            train = training_files(train, cache, workers)
        self._sampler = StepSampler(plan)
        self._calls = 0
        self._train_images = StreamedImages(train, train_transform(augmentation, train_size, normalization), workers)
        self._train_loader = self._make_loader(self._train_images, self._sampler, keep_workers=True)

    def __len__(self) -> int:
        """Steps in an epoch."""
        return self.plan.steps_per_epoch

    def batches(self, first: int, last: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Go through this process's micro-batches of several steps.

        The workers are kept for the next call. They serve one call at a time: an older iterator cannot be continued.

        Args:
            first: The first step.
            last: The step after the last one.

        Yields:
            Images ``(N, 3, H, W)`` and labels ``(N,)`` of each micro-batch.
        """
        self._calls += 1
        call = self._calls
        self._sampler.range = range(first, last)
        for batch in self._load(self._train_loader):
            if call != self._calls:
                break
            yield batch
        if call != self._calls:
            raise RuntimeError("batches() was called again: the older iterator cannot be continued")

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Go through this process's share of the test set; over all processes every image comes once, in order."""
        share = torch.arange(self.plan.rank, len(self.test), self.plan.world_size)
        size = max(TEST_BATCH, self.plan.micro_batch_size)
        draws = [[(index, 0) for index in chunk.tolist()] for chunk in share.split(size)]
        self._test_images.forget_workers()
        yield from self._load(self._make_loader(self._test_images, draws))

    def preview(self, count: int) -> tuple[Tensor, Tensor]:
        """Get a few test images; always the same ones.

        They are of as many classes as possible, or at equal distances if the labels are known only by reading.

        Args:
            count: Number of images.

        Returns:
            Normalized images ``(N, 3, H, W)`` and labels ``(N,)``.
        """
        labels, total = self.test.labels, len(self.test)
        count = min(count, total)
        chosen = torch.arange(count) * total // count if labels is None else spread_over_classes(labels, count)
        return self._collate(self._test_images.__getitems__([(index, 0) for index in chosen.tolist()]))

    def worker_error(self, error: Exception) -> ReadingError | None:
        """Recognize an exception that was caused by the death of a worker.

        Args:
            error: An exception of the training loop.

        Returns:
            An error of one line that names the image the worker was reading; None if no worker died.
        """
        message = re.match(r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (.+)", one_line(error))
        files = []
        if message or isinstance(error, LOST_WORKER):
            files = [*self._train_images.files_of_dead_workers(), *self._test_images.files_of_dead_workers()]
        if not message and not files:
            return None
        where = f"while it read {' and '.join(files)}" if files else "between two images"
        reason = f" ({message[1].rstrip('. ')})" if message else ""
        advice = "if memory is short, use fewer --workers, or 0 to read in the main process"
        return ReadingError(f"a loader worker died {where}{reason}; {advice}")

    def _load(self, loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """The loader's batches; errors without their tracebacks.

        A traceback keeps the workers alive in a reference cycle, and workers that the garbage collector ends are slow
        and noisy.
        """
        try:
            yield from _start(loader)
        except (BadImage, ReadingError) as error:
            raise error.with_traceback(None) from None
        except (RuntimeError, *LOST_WORKER) as error:
            died = self.worker_error(error)
            if died is None:
                raise
            error.__traceback__ = error.__cause__ = error.__context__ = None
            raise died from None

    def _make_loader(self, images: StreamedImages, draws: Any, keep_workers: bool = False) -> Any:
        return DataLoader(
            images,
            batch_sampler=draws,
            num_workers=self.workers,
            collate_fn=self._collate,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=keep_workers and self.workers > 0,
            generator=torch.Generator(),  # for the workers' seeds, which would else come from the global generator
        )


def _start(loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """Start the loader without the signal handler that torch installs for the death of a worker.

    The handler raises at any point of the main process, in the middle of a save for instance. Without it, torch notices
    a dead worker when it waits for a batch, within five seconds.
    """
    can_restore = hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD) if can_restore else None
    batches = iter(loader)
    if before is not None:
        signal.signal(signal.SIGCHLD, before)
    return batches
