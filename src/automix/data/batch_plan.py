"""Which images make up which training batch, as a function of (seed, step).

A step's batch is cut into micro-batches: one for each process and each gradient accumulation step. Two processes, or
one process that accumulates two steps, see the same micro-batches. The plan keeps no state between calls, so training
can resume at any step, in the middle of an epoch too.
"""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from automix.core.draws import step_generator
from automix.core.errors import AutomixError


@dataclass(frozen=True)
class BatchPlan:
    """The order of the training images: shuffled anew in every epoch, an incomplete last batch left out.

    Attributes:
        count: Number of training images.
        batch_size: Images in a step, over all processes and accumulation steps.
        seed: Seed of the order.
        repeats: Repeated augmentation: how often an image comes in a row, hence in neighboring micro-batches. An epoch
            still has ``count`` draws, so it shows ``count / repeats`` different images.
        rank: Number of this process.
        world_size: Number of processes.
        accumulate: Gradient accumulation steps of a process in a step.
        labels: Class indices of the training images, ``(count,)``. If given, the classes come equally often: an epoch
            still has ``count`` draws, images of rare classes are repeated, and some of frequent ones left out.
    """

    count: int
    batch_size: int
    seed: int = 0
    repeats: int = 1
    rank: int = 0
    world_size: int = 1
    accumulate: int = 1
    labels: Tensor | None = field(default=None, repr=False, compare=False)
    _order: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)  # of one epoch

    def __post_init__(self) -> None:
        for name in ("repeats", "world_size", "accumulate"):
            if getattr(self, name) < 1:
                raise AutomixError(f"{name} must be >= 1, got {getattr(self, name)}")
        if self.labels is not None and len(self.labels) != self.count:
            raise AutomixError(f"labels must be {self.count}, the number of training images, got {len(self.labels)}")
        if not 0 <= self.rank < self.world_size:
            raise AutomixError(f"rank must be in [0, {self.world_size - 1}], got {self.rank}")
        if not 1 <= self.batch_size <= self.count:
            raise AutomixError(
                f"batch_size must be in [1, {self.count}] (the number of training images), got {self.batch_size}"
            )
        if self.batch_size % self.num_micro_batches:
            raise AutomixError(
                f"batch_size must be a multiple of {self.num_micro_batches} "
                f"(processes {self.world_size} x accumulate {self.accumulate}), got {self.batch_size}"
            )

    @property
    def num_micro_batches(self) -> int:
        """Micro-batches of a step, over all processes."""
        return self.world_size * self.accumulate

    @property
    def micro_batch_size(self) -> int:
        """Images in a micro-batch."""
        return self.batch_size // self.num_micro_batches

    @property
    def steps_per_epoch(self) -> int:
        """Complete batches in an epoch."""
        return self.count // self.batch_size

    def micro_batch_index(self, micro_step: int) -> int:
        """Number a micro-batch of this process among all micro-batches of a step.

        Args:
            micro_step: The accumulation step, 0 to ``accumulate - 1``.

        Returns:
            A number from 0 to ``num_micro_batches - 1``.
        """
        return micro_step * self.world_size + self.rank

    def indices(self, step: int, micro_step: int = 0) -> Tensor:
        """Choose the images of a micro-batch.

        Args:
            step: The training step, 0, 1, ... over all epochs.
            micro_step: The accumulation step of this process.

        Returns:
            Positions in the training set, ``(micro_batch_size,)`` int64.
        """
        epoch, position = divmod(step, self.steps_per_epoch)
        batch = self._epoch_order(epoch)[position * self.batch_size : (position + 1) * self.batch_size]
        return batch[self.micro_batch_index(micro_step) :: self.num_micro_batches]

    def _epoch_order(self, epoch: int) -> Tensor:
        if epoch not in self._order:
            generator = step_generator(self.seed, epoch, stream="order")
            if self.labels is None:
                order = torch.randperm(self.count, generator=generator)
            else:
                order = draw_balanced(self.labels, math.ceil(self.count / self.repeats), generator)
            self._order.clear()
            self._order[epoch] = order.repeat_interleave(self.repeats)[: self.count]
        return self._order[epoch]


def draw_balanced(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Draw images so that all classes come equally often, up to one draw.

    The images of a class come in a shuffled order, and again in another one if there are too few.

    Args:
        labels: Class indices, ``(N,)``.
        count: Number of draws.
        generator: Source of randomness.

    Returns:
        Positions in random order, ``(count,)`` int64.
    """
    sizes = torch.bincount(labels)
    members = [part for part in labels.argsort(stable=True).split(sizes.tolist()) if len(part)]
    draws = []
    for turn, number in enumerate(torch.randperm(len(members), generator=generator).tolist()):
        part = members[number]
        needed = count // len(members) + (turn < count % len(members))
        rounds = torch.rand(math.ceil(needed / len(part)), len(part), generator=generator).argsort(dim=1)
        draws.append(part[rounds.flatten()[:needed]])
    return torch.cat(draws)[torch.randperm(count, generator=generator)]
