"""Mistakes of training loops that raise no error: each gives one warning.

- the model is left in eval mode after an evaluation
- `update` is forgotten, so that schedules and teacher stand still
- the progress passed to `update` falls, or stays 0
"""

import warnings

from torch import nn

FORGOTTEN_BATCHES = 100  # batches without update() after which it was surely forgotten, not postponed
FORGOTTEN_STEPS = 10  # as many optimizer steps
STUCK_UPDATES = 100  # updates after which progress has left 0, however long the training


class LoopChecks:
    """Watches what a training loop does with a task, and warns once of each mistake."""

    def __init__(self) -> None:
        self._warned: set[str] = set()
        self._changes = 0  # of the student's weights since the last update, as far as batches have shown
        self._version: int | None = None  # of those weights in the last batch

    def before_batch(self, student: nn.Module, batches: int) -> None:
        """Check the student's mode, and that `update` is called.

        Args:
            student: The network in training.
            batches: Batches since the last update, this one included.
        """
        if not student.training:
            self.warn_once(
                "eval", "the model is in eval mode while its task trains: call task.train() after evaluating"
            )
        version = None  # torch counts how often a tensor was changed in place, as optimizers do
        for parameter in student.parameters():
            if parameter.requires_grad:
                version = parameter._version
                break
        self._changes += self._version is not None and version != self._version
        self._version = version
        if batches == FORGOTTEN_BATCHES or self._changes == FORGOTTEN_STEPS:
            count = f"{self._changes} optimizer steps" if self._changes else f"{batches} batches"
            self.warn_once("update", f"task.update() was not called for {count}: schedules and teacher stand still")

    def before_update(self, step: int, progress_before: float, progress: float) -> None:
        """Check that the progress moves forward, and begin to count anew.

        Args:
            step: Number of updates before this one.
            progress_before: Progress passed to the last update.
            progress: Progress passed to this one.
        """
        if progress < progress_before:
            self.warn_once(
                "progress",
                f"progress fell from {progress_before:g} to {progress:g}: pass the part of the WHOLE training",
            )
        if step == STUCK_UPDATES and progress == 0:
            self.warn_once("stuck", f"progress is 0 after {STUCK_UPDATES} updates: pass step / total_steps")
        self._changes, self._version = 0, None

    def warn_once(self, kind: str, message: str) -> None:
        """Give a warning, unless one of its kind was given before.

        Args:
            kind: Name of the mistake.
            message: The warning.
        """
        if kind not in self._warned:
            self._warned.add(kind)
            warnings.warn(message, stacklevel=4)
