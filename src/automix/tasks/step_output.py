"""What a task returns for a batch."""

from typing import Any

from torch import Tensor


class StepOutput(dict[str, Any]):
    """What a task returns for a batch: ``out.loss`` or ``out["loss"]``.

    A dict, so that every framework that walks through outputs (DDP, Accelerate, timm) knows what to do with it.
    """

    @property
    def loss(self) -> Tensor:
        """The loss to back-propagate, a scalar."""
        return self["loss"]

    @property
    def logits(self) -> Tensor:
        """The student's output for the mixed batch, ``(N, num_classes)``; with `low_memory` no loss can use it."""
        return self["logits"]

    @property
    def metrics(self) -> dict[str, Tensor]:
        """Detached scalars by name: every loss term, `lam`, the accuracy on the MIXED batch.

        They stay on the device, so that a step does not wait for it.
        """
        return self["metrics"]
