"""The state of a fine-tuning run."""

import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from automix.data.batch_plan import BatchPlan
from automix.runs.checkpoint import load_checkpoint, save_checkpoint
from automix.runs.folder import RunFolder
from automix.studies.detection.config import DetectConfig
from automix.studies.detection.data import DetectionSet
from automix.studies.detection.detector_file import DetectorCard
from automix.training.distributed import World


@dataclass
class DetectRun:
    """A fine-tuning run: its data, detector and optimizer, and how far it has come.

    Attributes:
        config: The settings.
        train: The training set.
        test: The test set.
        card: Describes the detector, for its file.
        device: Where the detector is trained.
        detector: The detector.
        optimizer: Its optimizer.
        network: The detector, or the detector under DistributedDataParallel.
        world: The processes that train together.
        step: Steps done.
        seconds_before: Training time of earlier sessions, in seconds.
        started: When this session started, by the monotonic clock.
    """

    config: DetectConfig
    train: DetectionSet
    test: DetectionSet
    card: DetectorCard
    device: torch.device
    detector: nn.Module
    optimizer: torch.optim.Optimizer
    network: nn.Module
    world: World = field(default_factory=World)
    step: int = 0
    seconds_before: float = 0.0
    started: float = field(default_factory=time.monotonic)
    _saved: float = field(default_factory=time.monotonic)

    @property
    def plan(self) -> BatchPlan:
        """The images of each step."""
        settings, config, world = self.config.settings, self.config, self.world
        processes: dict[str, Any] = {"rank": world.rank, "world_size": world.size, "accumulate": config.accumulate}
        return BatchPlan(len(self.train), settings.batch_size, config.seed, **processes)

    @property
    def seconds(self) -> float:
        """Training time of all sessions, in seconds."""
        return self.seconds_before + time.monotonic() - self.started

    def checkpoint_is_due(self) -> bool:
        """Tell whether it is time to save: after the last step, and every `checkpoint_minutes`."""
        minutes = (time.monotonic() - self._saved) / 60
        return self.step == self.config.settings.steps or minutes >= self.config.checkpoint_minutes

    def save_checkpoint(self) -> None:
        """Save the state for resuming."""
        detector: Any = self.detector  # typed as a task there, but any module has a state
        facts = {"step": self.step, "seconds": self.seconds}
        save_checkpoint(RunFolder(self.config.folder).checkpoint, detector, self.optimizer, _no_scaler(), facts)
        self._saved = time.monotonic()

    def load_checkpoint(self) -> None:
        """Restore the state of the last checkpoint."""
        detector: Any = self.detector
        facts = load_checkpoint(RunFolder(self.config.folder).checkpoint, detector, self.optimizer, _no_scaler())
        self.step, self.seconds_before = facts["step"], facts["seconds"]


def _no_scaler() -> torch.amp.GradScaler:
    """A disabled scaler: checkpoints have a field for it, but detectors train in float32 or bf16."""
    return torch.amp.GradScaler("cpu", enabled=False)
