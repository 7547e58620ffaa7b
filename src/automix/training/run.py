"""A run: what is trained and how far it has come."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from automix._version import __version__
from automix.core.errors import AutomixError
from automix.data import Data
from automix.methods.automix.block_file import save_mix_block
from automix.methods.automix.mix_block import MixBlock
from automix.runs.checkpoint import restore, save_checkpoint
from automix.runs.classifier import Card, save_classifier
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder, Which
from automix.tasks.task import Task
from automix.training.distributed import World
from automix.training.hardware import Precision


@dataclass
class Run:
    """A training run: what is trained, and how far it has come.

    Attributes:
        config: The settings.
        world: The processes that train together.
        data: The dataset and its batches.
        device: Where the task is.
        precision: Precision of the forward pass.
        task: The method around the network.
        network: The task, or the task under DistributedDataParallel.
        optimizer: Its optimizer.
        schedule: The learning rate by step.
        scaler: Scales gradients in fp16; disabled otherwise.
        weights: Where the first weights come from, for people.
        step: Steps done.
        best: The highest test accuracy of the deployed network (`top1`) and its `epoch`.
        open_epoch: The log of an epoch whose evaluation a signal ended; empty otherwise.
        seconds_before: Training time of earlier sessions, in seconds.
        started: When this session started, by the monotonic clock.
    """

    config: TrainConfig
    world: World
    data: Data
    device: torch.device
    precision: Precision
    task: Task
    network: nn.Module
    optimizer: Optimizer
    schedule: Any
    scaler: torch.amp.GradScaler
    weights: str = "from scratch"
    step: int = 0
    best: dict[str, float] = field(default_factory=lambda: {"top1": -1.0, "epoch": 0})
    open_epoch: dict[str, Any] = field(default_factory=dict)
    seconds_before: float = 0.0
    started: float = field(default_factory=time.monotonic)
    _saved: float = field(default_factory=time.monotonic)

    @property
    def folder(self) -> RunFolder:
        """The run folder."""
        return RunFolder(self.config.folder)

    @property
    def steps_per_epoch(self) -> int:
        """Steps in an epoch."""
        return len(self.data.loader)

    @property
    def total_steps(self) -> int:
        """Steps of the whole training."""
        return self.config.settings.epochs * self.steps_per_epoch

    @property
    def epochs_between_pictures(self) -> int:
        """Epochs from one picture of mixed samples to the next: ten or so pictures a run."""
        return max(1, self.config.settings.epochs // 10)

    @property
    def trains_head_only(self) -> bool:
        """Whether the body of the network rests in this step."""
        return self.step < self.config.settings.freeze * self.steps_per_epoch

    @property
    def trained_parameters(self) -> list[nn.Parameter]:
        """All parameters of the optimizer."""
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    @property
    def seconds(self) -> float:
        """Training time of all sessions, in seconds."""
        return self.seconds_before + time.monotonic() - self.started

    def checkpoint_is_due(self) -> bool:
        """Tell whether it is time to save: after the last step, and every `checkpoint_minutes` by this process's clock.

        Returns:
            Whether it is.
        """
        minutes = (time.monotonic() - self._saved) / 60
        return self.step == self.total_steps or minutes >= self.config.checkpoint_minutes

    def save_checkpoint(self) -> None:
        """Save the state for resuming; the main process writes, the others note the time."""
        if self.world.is_main_process:
            facts = {"step": self.step, "best": self.best, "seconds": self.seconds, "card": self.card({}).to_json()}
            facts["images"] = self.data.file_counts()
            if self.open_epoch:
                facts["open_epoch"] = self.open_epoch
            save_checkpoint(self.folder.checkpoint, self.task, self.optimizer, self.scaler, facts, self.precision)
        self._saved = time.monotonic()

    def load_checkpoint(self) -> None:
        """Restore the state of the last checkpoint, after checking that the data is the same."""
        saved = self.folder.read_checkpoint()
        facts = saved.facts
        check_classes(saved.path, Card.from_json(facts["card"]).classes, self.data.classes)
        check_counts(saved.path, facts.get("images", {}), self.data.file_counts())
        restore(saved, self.task, self.optimizer, self.scaler, self.precision)
        self.step, self.best, self.seconds_before = facts["step"], facts["best"], facts["seconds"]
        self.open_epoch = facts.get("open_epoch", {})

    def save_classifier(self, which: Which, accuracy: dict[str, float]) -> None:
        """Write the deployed classifier, and the Mix Block if the method has one; the main process writes.

        Args:
            which: The classifier after the last epoch, or that with the highest test accuracy.
            accuracy: Accuracies in percent by name, for the card.
        """
        if self.world.is_main_process:
            save_classifier(self.folder.classifier(which), self.task.classifier, self.card(accuracy))
            self.save_mix_block()

    def save_mix_block(self) -> None:
        """Write the Mix Block, if the method has one, for other trainings to start from."""
        if isinstance(block := getattr(self.task, "mix_block", None), MixBlock):
            save_mix_block(self.folder.mix_block, block)

    def card(self, accuracy: dict[str, float]) -> Card:
        """Make the card of the classifier as it is now.

        Args:
            accuracy: Accuracies in percent by name.

        Returns:
            The card.
        """
        loader, settings = self.data.loader, self.config.settings
        facts = {"automix": __version__, "data": self.config.data, "method": self.config.method}
        return Card(
            model=self.config.model,
            model_options=dict(self.config.model_options),
            classes=self.data.classes,
            train_size=self.data.image_size,
            image_size=settings.test_size or self.data.image_size,
            crop=settings.test_crop,
            mean=_three(loader.mean),
            std=_three(loader.std),
            facts={**facts, "epoch": self.step // self.steps_per_epoch, **accuracy},
        )


def check_classes(path: Path, before: tuple[str, ...], now: tuple[str, ...]) -> None:
    """Refuse to continue with other classes, or in another order: the logits would mean others."""
    if len(before) != len(now):
        raise AutomixError(f"{path}: has {len(before)} classes, the data {len(now)}; resume it on the same classes")
    for then, today in zip(before, now, strict=True):
        if then != today:
            raise AutomixError(
                f"{path}: has class {then!r} where the data has {today!r}; resume it on the same classes"
            )


def check_counts(path: Path, before: Mapping[str, int], now: Mapping[str, int]) -> None:
    """Refuse to continue on another number of images: the batches would be others."""
    for use, count in before.items():
        if now[use] != count:
            raise AutomixError(
                f"{path}: the run has {count} images for {use}, the data {now[use]}; resume it on the same images"
            )


def _three(values: Tensor) -> tuple[float, float, float]:
    red, green, blue = values.tolist()
    return red, green, blue
