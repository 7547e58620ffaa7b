"""Is the Mix Block trained, and at its own learning rate? A training loop that has neither raises no error."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from automix.methods.automix.mix_block import MixBlock

CHECKED_STEP = 20  # by then the Mix Block must have moved


class BlockChecks:
    """Watches the Mix Block's weights and the learning rates of an optimizer.

    Args:
        block_lr: Learning rate of the Mix Block, as a multiple of the student's.
    """

    def __init__(self, block_lr: float) -> None:
        self.block_lr = block_lr
        self._first_weight: Tensor | None = None

    def warnings(self, step: int, block: MixBlock, groups: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
        """Look for mistakes after an optimizer step.

        Args:
            step: Number of updates so far.
            block: The Mix Block.
            groups: The parameter groups of the optimizer, after its first step; none later.

        Yields:
            The kind of each mistake and the warning.
        """
        if self._never_moved(step, block):
            yield "optimizer", "the Mix Block is not trained: build the optimizer from task.param_groups(lr=...)"
        if (ratio := self._wrong_ratio(groups)) is not None:
            yield (
                "learning rate",
                f"the scheduler set the Mix Block's learning rate to {ratio:g} times the student's instead "
                f"of {self.block_lr:g}: give it a list, such as OneCycleLR(optimizer, "
                "max_lr=[group['lr'] for group in optimizer.param_groups], ...)",
            )

    def _never_moved(self, step: int, block: MixBlock) -> bool:
        """Whether the weights are those of the first step: the optimizer does not know the Mix Block."""
        if step not in (0, CHECKED_STEP) or self.block_lr == 0 or not block.attention:
            return False
        weight = block.value_weight
        if not weight.requires_grad:
            return False
        if step == 0:
            self._first_weight = weight.detach().clone()
            return False
        return self._first_weight is not None and torch.equal(weight, self._first_weight)

    def _wrong_ratio(self, groups: Sequence[dict[str, Any]]) -> float | None:
        """The ratio of both rates if a scheduler gave all groups one, as OneCycleLR does with a single `max_lr`."""
        rates = {group["name"]: group.get("initial_lr") for group in groups if "name" in group}
        student, block = rates.get("student"), rates.get("mix_block")
        if student and block is not None and not math.isclose(block, self.block_lr * student, rel_tol=1e-3):
            return block / student
        return None
