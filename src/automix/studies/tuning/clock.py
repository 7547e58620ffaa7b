"""The time of a search: what was spent, and what runs will take."""

import time
from pathlib import Path

from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder
from automix.training.budget import measure_speed


class Clock:
    """Keeps the time of a search, over all its sessions.

    Args:
        minutes: Time for the whole search.
        spent: Seconds of earlier sessions.
    """

    def __init__(self, minutes: float, spent: float = 0.0) -> None:
        self.budget = 60 * minutes
        self.before = spent
        self.since = time.monotonic()
        self.per_epoch: dict[str, float] = {}
        self.overheads: list[float] = []

    @property
    def spent(self) -> float:
        """Seconds spent in all sessions."""
        return self.before + time.monotonic() - self.since

    @property
    def left(self) -> float:
        """Seconds left."""
        return self.budget - self.spent

    @property
    def overhead(self) -> float:
        """Seconds that a run takes before and after its training, on average."""
        return sum(self.overheads) / len(self.overheads) if self.overheads else 0.0

    def cheapest(self, epochs: int) -> float:
        """Estimate the time of a run of the fastest method that is known.

        Args:
            epochs: Its length.

        Returns:
            Seconds; 0 if no method is timed yet.
        """
        return self.overhead + epochs * min(self.per_epoch.values()) if self.per_epoch else 0.0

    def estimate(self, config: TrainConfig, name: str) -> float:
        """Estimate the time of a run: by runs of the same method, or by timing a few steps.

        Args:
            config: Its settings.
            name: The method.

        Returns:
            Seconds.
        """
        epochs = config.settings.epochs
        if name not in self.per_epoch:
            speed, mix_until = measure_speed(config)
            step = mix_until * speed.mixed_step + (1 - mix_until) * speed.clean_step
            self.per_epoch[name] = speed.steps_per_epoch * step + speed.evaluation / epochs
        return self.overhead + epochs * self.per_epoch[name]

    def learn(self, name: str, epochs: int, folder: Path, wall: float) -> None:
        """Learn from a finished run.

        Args:
            name: The method.
            epochs: Length of the run.
            folder: Its folder.
            wall: Seconds it took, start and end included.
        """
        seconds = float(RunFolder(folder).summary()["seconds"])
        self.per_epoch[name] = seconds / epochs
        self.overheads.append(max(0.0, wall - seconds))
