"""Batches of a dataset that is read from disk while training.

The randomness of an image's augmentation is a function of (seed, step, part, position in the part), not of the worker
that happens to make it: any number of workers gives the same batches, and training can be resumed in the middle of an
epoch by asking for the steps that are left. timm's create_loader can do neither, which is why its transforms are used
here and its loader is not.
"""

import multiprocessing
import os
import random
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, get_worker_info

from automix.core.draws import step_seed
from automix.data.augmentation import MEAN, STD, Augmentation, test_transform, train_transform
from automix.data.batch_plan import BatchPlan
from automix.data.decode import BadImage, ReadingError
from automix.data.memory_loader import TEST_BATCH
from automix.data.subset import spread_over_classes

Draw = tuple[int, int]  # position in the dataset, seed of the augmentation
NOTHING = -1  # what a worker notes that reads no image
LOST = (EOFError, ConnectionError, FileNotFoundError)  # how fetching a batch from a worker that has died may end


class Source(Protocol):
    """What can be streamed: ImageFiles, ImageSet, ReaderSet, ShardSet. `labels` is None where reading must tell."""

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> Tensor | None: ...
    def __len__(self) -> int: ...
    def name_of(self, index: int) -> str: ...
    def read(self, index: int) -> tuple[Any, int]: ...


class StreamLoader:
    """Batches after a `plan`, made by `workers` processes (0: in this one), normalized as ImageNet, channels last."""

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
    ) -> None:
        if plan.count != len(train):
            raise ValueError(
                f"the plan counts {plan.count} images, the training set has {len(train)}: accepted are equals"
            )
        if workers < 0:
            raise ValueError(f"workers={workers}: accepted is a whole number >= 0")
        self.plan = plan
        self.mean, self.std = torch.tensor(MEAN), torch.tensor(STD)
        self.test = test
        self.workers = workers
        self._test_images = _Images(test, test_transform(augmentation, test_size), workers)
        self._steps = _Steps(plan)
        self._turn = 0
        self._train_images = _Images(train, train_transform(augmentation, train_size), workers)
        self._train_loader = self._loader(self._train_images, self._steps, keep_workers=True)

    def __len__(self) -> int:
        """Steps in an epoch."""
        return self.plan.steps_per_epoch

    def batches(self, first: int, last: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's accumulate of the steps from `first` up to `last`, exclusive.

        The workers stay for the next call. They serve one call at a time: going on with an older one is an error.
        """
        self._turn += 1
        turn = self._turn
        self._steps.range = range(first, last)
        for batch in self._unwrapped(self._train_loader):
            if turn != self._turn:
                break
            yield batch
        if turn != self._turn:
            raise RuntimeError("batches() was called again: the older call cannot go on")

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the test set: every image once over all processes, in order."""
        share = torch.arange(self.plan.rank, len(self.test), self.plan.world_size)
        size = max(TEST_BATCH, self.plan.micro_batch_size)
        draws = [[(index, 0) for index in part.tolist()] for part in share.split(size)]
        self._test_images.notes.fill_(NOTHING)  # of the last evaluation's workers, which are gone
        yield from self._unwrapped(self._loader(self._test_images, draws))

    def preview(self, count: int) -> tuple[Tensor, Tensor]:
        """`count` test images, of as many different classes as there are where labels are known without reading.

        Otherwise they are taken at equal distances; always the same ones.
        """
        labels, total = self.test.labels, len(self.test)
        count = min(count, total)
        chosen = torch.arange(count) * total // count if labels is None else spread_over_classes(labels, count)
        return _collate(self._test_images.__getitems__([(index, 0) for index in chosen.tolist()]))

    def worker_error(self, error: Exception) -> ReadingError | None:
        """What to say, in one line, where `error` came of a worker that died; None where it did not."""
        said = re.match(r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (.+)", " ".join(str(error).split()))
        files = []
        if said or isinstance(error, LOST):
            files = [*self._train_images.files_of_dead_workers(), *self._test_images.files_of_dead_workers()]
        if not said and not files:
            return None
        where = f"while it read {' and '.join(files)}" if files else "between two images"
        reason = f" ({said[1].rstrip('. ')})" if said else ""
        advice = "where memory is short, accepted are fewer --workers, 0 to read in the main process"
        return ReadingError(f"a loader worker died {where}{reason}; {advice}")

    def _unwrapped(self, loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """The loader's batches; complaints without the tracebacks that they come in.

        Those hold on to the workers too, in a cycle, and they end slowly, or noisily, when a cycle is what ends them.
        """
        try:
            yield from _started(loader)
        except (BadImage, ReadingError) as error:
            raise error.with_traceback(None) from None
        except (RuntimeError, *LOST) as error:
            died = self.worker_error(error)
            if died is None:
                raise
            error.__traceback__ = error.__cause__ = error.__context__ = None
            raise died from None

    def _loader(self, pictures: "_Images", draws: Any, keep_workers: bool = False) -> Any:
        return DataLoader(
            pictures,
            batch_sampler=draws,
            num_workers=self.workers,
            collate_fn=_collate,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=keep_workers and self.workers > 0,
            generator=torch.Generator(),  # it draws the workers' seeds, otherwise from the caller's random state
        )


class _Steps:
    """The draws of each micro_step of the steps in `range`, as DataLoader wants its batch sampler."""

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


class _Images(Dataset[tuple[Tensor, int]]):
    """Images read and transformed, each with its own seed.

    Each of the `workers` notes, as [its process, the image], what it is reading, in memory that outlives it.
    """

    def __init__(self, source: Source, transform: Any, workers: int) -> None:
        self.source = source
        self.transform = transform
        self.notes = torch.full((workers, 2), NOTHING).share_memory_()

    def __len__(self) -> int:
        return len(self.source)

    def __getitems__(self, draws: list[Draw]) -> list[tuple[Tensor, int]]:
        """A whole batch, which is how DataLoader asks: putting the random states back takes half a millisecond."""
        with _random_states_kept():
            return [self._picture(index, seed) for index, seed in draws]

    def _picture(self, index: int, seed: int) -> tuple[Tensor, int]:
        with self._noted(index):
            image, label = self.source.read(index)
            _seed(seed)
            return self.transform(image), label

    def files_of_dead_workers(self) -> list[str]:
        """What workers that are no more were reading; a process that is just dying is given a second."""
        reading = [(process, index) for process, index in self.notes.tolist() if index != NOTHING]
        for _ in range(20 if reading else 0):
            alive = {child.pid for child in multiprocessing.active_children()}
            if dead := [index for process, index in reading if process not in alive]:
                return [self.source.name_of(index) for index in dead]
            time.sleep(0.05)
        return []

    @contextmanager
    def _noted(self, index: int) -> Iterator[None]:
        worker = get_worker_info()
        if worker is None:
            yield
            return
        note = self.notes[worker.id]
        note.copy_(torch.tensor([os.getpid(), index]))
        try:
            yield
        finally:
            note[1] = NOTHING


def _started(loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """The loader at work, without the signal handler that torch installs for its workers' deaths.

    It raises wherever the main process happens to be, in the middle of a save for instance. Without it torch notices a
    death when it waits for a batch, within five seconds.
    """
    can = hasattr(signal, "SIGCHLD") and threading.current_thread() is threading.main_thread()
    before = signal.getsignal(signal.SIGCHLD) if can else None
    batches = iter(loader)
    if before is not None:
        signal.signal(signal.SIGCHLD, before)
    return batches


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """Put the three generators that transforms draw from back as they were."""
    import numpy as np

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _seed(seed: int) -> None:
    import numpy as np

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would change the GPUs' generators as well


def _collate(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    images = [image for image, _ in items]
    batch = torch.empty(len(images), *images[0].shape, memory_format=torch.channels_last)
    torch.stack(images, out=batch)  # once, and not again into another order
    return batch, torch.tensor([label for _, label in items])
