"""Which images make up which training batch, as a function of (seed, step).

A step's batch is cut into parts: one for each process and for each piece that a process accumulates gradients over.
Two processes with one piece each and one process with two pieces see the same parts. Nothing is remembered between
calls, so whoever resumes at a step, in the middle of an epoch, gets the batch that would have come.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from automix.core.draws import step_generator


@dataclass(frozen=True)
class BatchPlan:
    """`count` training images in batches of `batch_size`, over all processes and pieces; each epoch in a new order.

    An incomplete last batch is left out. With `repeats` (repeated augmentation) every image comes so many times in a
    row, hence in neighboring parts, and the epoch ends after `count` draws all the same: it shows count / repeats
    different images. `rank` is this process out of `world`; `pieces` is the number of pieces per process and step.
    """

    count: int
    batch_size: int
    seed: int = 0
    repeats: int = 1
    rank: int = 0
    world: int = 1
    pieces: int = 1
    _order: dict[int, Tensor] = field(default_factory=dict, init=False, repr=False, compare=False)  # of one epoch

    def __post_init__(self) -> None:
        for name in ("repeats", "world", "pieces"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}={getattr(self, name)}: accepted is a whole number >= 1")
        if not 0 <= self.rank < self.world:
            raise ValueError(f"rank={self.rank}: accepted are 0 to {self.world - 1}, the processes of world")
        if not 1 <= self.batch_size <= self.count:
            raise ValueError(
                f"batch_size={self.batch_size}: accepted are 1 to {self.count}, the number of training images"
            )
        if self.batch_size % self.parts:
            raise ValueError(
                f"batch_size={self.batch_size}: accepted are multiples of {self.parts}, "
                f"the parts of a step (processes {self.world} x pieces {self.pieces})"
            )

    @property
    def parts(self) -> int:
        """Parts of a step's batch, over all processes."""
        return self.world * self.pieces

    @property
    def part_size(self) -> int:
        """Images in a part."""
        return self.batch_size // self.parts

    @property
    def steps_per_epoch(self) -> int:
        return self.count // self.batch_size

    def part(self, piece: int) -> int:
        """The number of this process's `piece` among all parts of a step."""
        return piece * self.world + self.rank

    def indices(self, step: int, piece: int = 0) -> Tensor:
        """Positions in the training set of the images that `piece` of `step` is made of."""
        epoch, position = divmod(step, self.steps_per_epoch)
        batch = self._order_of(epoch)[position * self.batch_size : (position + 1) * self.batch_size]
        return batch[self.part(piece) :: self.parts]

    def _order_of(self, epoch: int) -> Tensor:
        if epoch not in self._order:
            order = torch.randperm(self.count, generator=step_generator(self.seed, epoch, stream="order"))
            self._order.clear()
            self._order[epoch] = order.repeat_interleave(self.repeats)[: self.count]
        return self._order[epoch]
