"""Batches of a dataset that is read from disk while training.

The randomness of an image's augmentation is a function of (seed, step, part, position in the part), not of the worker
that happens to make it: any number of workers gives the same batches, and training can be resumed in the middle of an
epoch by asking for the steps that are left. timm's create_loader can do neither, which is why its transforms are used
here and its loader is not.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from automix.data.augmentation import MEAN, STD, Augmentation, test_transform, train_transform
from automix.data.choose import spread_over_classes
from automix.data.listing import BadImage
from automix.data.memory import TEST_BATCH
from automix.data.plan import BatchPlan
from automix.mixing import step_seed

Draw = tuple[int, int]  # position in the dataset, seed of the augmentation


class Source(Protocol):
    """What can be streamed: Listing, ImageSet, ReaderSet, ShardSet. `labels` is None where reading must tell."""

    @property
    def classes(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> Tensor | None: ...
    def __len__(self) -> int: ...
    def read(self, index: int) -> tuple[Any, int]: ...


class StreamLoader:
    """Batches after a `plan`, made by `workers` processes (0: in this one), normalised as ImageNet, channels last."""

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
        self._test_pictures = _Pictures(test, test_transform(augmentation, test_size))
        self._steps = _Steps(plan)
        self._turn = 0
        pictures = _Pictures(train, train_transform(augmentation, train_size))
        self._train_loader = self._loader(pictures, self._steps, keep_workers=True)

    def __len__(self) -> int:
        """Steps in an epoch."""
        return self.plan.steps_per_epoch

    def batches(self, first: int, last: int) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's pieces of the steps from `first` up to `last`, exclusive.

        The workers stay for the next call. They serve one call at a time: going on with an older one is an error.
        """
        self._turn += 1
        turn = self._turn
        self._steps.range = range(first, last)
        for batch in _unwrapped(self._train_loader):
            if turn != self._turn:
                break
            yield batch
        if turn != self._turn:
            raise RuntimeError("batches() was called again: the older call cannot go on")

    def test_batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """This process's share of the test set: every image once over all processes, in order."""
        share = torch.arange(self.plan.rank, len(self.test), self.plan.world)
        size = max(TEST_BATCH, self.plan.part_size)
        draws = [[(index, 0) for index in part.tolist()] for part in share.split(size)]
        yield from _unwrapped(self._loader(self._test_pictures, draws))

    def preview(self, count: int) -> tuple[Tensor, Tensor]:
        """`count` test images, of as many different classes as there are where labels are known without reading.

        Otherwise they are taken at equal distances; always the same ones.
        """
        labels, total = self.test.labels, len(self.test)
        count = min(count, total)
        chosen = torch.arange(count) * total // count if labels is None else spread_over_classes(labels, count)
        return _collate([self._test_pictures[(index, 0)] for index in chosen.tolist()])

    def _loader(self, pictures: "_Pictures", draws: Any, keep_workers: bool = False) -> Any:
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
    """The draws of each piece of the steps in `range`, as DataLoader wants its batch sampler."""

    def __init__(self, plan: BatchPlan) -> None:
        self.plan = plan
        self.range = range(0)

    def __len__(self) -> int:
        return len(self.range) * self.plan.pieces

    def __iter__(self) -> Iterator[list[Draw]]:
        for step in self.range:
            for piece in range(self.plan.pieces):
                seed = step_seed(self.plan.seed, step, self.plan.part(piece), stream="augment")
                chosen = self.plan.indices(step, piece).tolist()
                yield [(index, step_seed(seed, place, stream="draw")) for place, index in enumerate(chosen)]


class _Pictures(Dataset[tuple[Tensor, int]]):
    """Images read and transformed, each with its own seed."""

    def __init__(self, source: Source, transform: Any) -> None:
        self.source = source
        self.transform = transform

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, draw: Draw) -> tuple[Tensor, int]:
        index, seed = draw
        image, label = self.source.read(index)
        with _seeded(seed):
            return self.transform(image), label


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Seed the three generators that transforms draw from, and put them back as they were."""
    import numpy as np

    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.default_generator.manual_seed(seed)  # torch.manual_seed would change the GPUs' generators as well
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])
        torch.set_rng_state(states[2])


def _unwrapped(loader: Any) -> Iterator[tuple[Tensor, Tensor]]:
    """The loader's batches; a worker's complaint about an image without the traceback that it comes in.

    That traceback holds on to the workers too, in a cycle, and they end slowly when a cycle is what ends them.
    """
    try:
        yield from loader
    except BadImage as error:
        raise error.with_traceback(None) from None


def _collate(items: list[tuple[Tensor, int]]) -> tuple[Tensor, Tensor]:
    images = torch.stack([image for image, _ in items]).contiguous(memory_format=torch.channels_last)
    return images, torch.tensor([label for _, label in items])
