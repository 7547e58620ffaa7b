"""A run: what is trained, where it stands, and its folder.

config.yaml              all settings; `automix train --config` repeats the run
checkpoint.safetensors   everything --resume needs; checkpoint-previous.safetensors is there in case it is damaged
last.safetensors         the classifier after the last epoch, complete by itself
best.safetensors         the one with the highest test accuracy: chosen on test data, so never a result to report
metrics.jsonl            a line of numbers every so many steps and after every epoch; tensorboard/ has the same
skipped.json             the files left out with --bad-data skip, and why
pictures/                mixed samples and their masks, by epoch and over time
summary.json             the end of the story
"""

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

import automix
from automix.classifier import Card, save_classifier
from automix.config import TrainConfig, read_config
from automix.data import DATASETS, SKIPPED, Data, Progress, write_skipped
from automix.engine.build import build_data, build_model, build_optimizer, build_schedule, build_task, rehearse
from automix.engine.checkpoint import (
    DAMAGED,
    NAME,
    PREVIOUS,
    read_checkpoint,
    restore,
    save_checkpoint,
)
from automix.engine.folder import goes_on
from automix.engine.hardware import Precision, choose_device, choose_precision
from automix.engine.processes import Processes
from automix.learned.block_file import save_mix_block
from automix.learned.mix_block import MixBlock
from automix.task import Task


@dataclass
class Run:
    """The state of a training run."""

    config: TrainConfig
    among: Processes
    data: Data
    device: torch.device
    precision: Precision
    task: Task
    network: nn.Module  # the task, or the task under DistributedDataParallel
    optimizer: Optimizer
    schedule: Any
    scaler: torch.amp.GradScaler
    step: int = 0
    best: dict[str, float] = field(default_factory=lambda: {"top1": -1.0, "epoch": 0})
    seconds_before: float = 0.0  # of training in earlier sessions
    started: float = field(default_factory=time.monotonic)
    _saved: float = field(default_factory=time.monotonic)

    @property
    def folder(self) -> Path:
        return self.config.folder

    @property
    def steps_per_epoch(self) -> int:
        return len(self.data.loader)

    @property
    def total_steps(self) -> int:
        return self.config.settings.epochs * self.steps_per_epoch

    @property
    def epochs_between_pictures(self) -> int:
        """Ten or so pictures a run, and one before it."""
        return max(1, self.config.settings.epochs // 10)

    @property
    def trained(self) -> list[nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

    @property
    def deployed_metric(self) -> str:
        """The accuracy of what `deploy` returns."""
        return "student_top1" if self.task.teacher is None else "teacher_top1"

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def checkpoint_is_due(self) -> bool:
        """By this process's clock, and at the end."""
        minutes = (time.monotonic() - self._saved) / 60
        return self.step == self.total_steps or minutes >= self.config.checkpoint_minutes

    def save_checkpoint(self) -> None:
        """Written by the leading process; the others only note the time."""
        if self.among.leads:
            facts = {"step": self.step, "best": self.best, "seconds": self.seconds, "card": self.card({}).to_json()}
            save_checkpoint(self.folder / NAME, self.task, self.optimizer, self.scaler, facts, self.precision)
        self._saved = time.monotonic()

    def load_checkpoint(self) -> None:
        saved = read_checkpoint(self.folder / NAME)
        facts = saved.facts
        check_classes(saved.path, Card.from_json(facts["card"]).classes, self.data.classes)
        restore(saved, self.task, self.optimizer, self.scaler, self.precision)
        self.step, self.best, self.seconds_before = facts["step"], facts["best"], facts["seconds"]

    def save_classifier(self, name: str, accuracy: dict[str, float]) -> None:
        """The deployed classifier with all that is needed to use it, as NAME.safetensors."""
        if self.among.leads:
            save_classifier(self.folder / f"{name}.safetensors", self.task.classifier, self.card(accuracy))
            if isinstance(block := getattr(self.task, "mix_block", None), MixBlock):
                save_mix_block(self.folder / "mix_block.safetensors", block)  # to begin another training with

    def card(self, accuracy: dict[str, float]) -> Card:
        """What one must know to use the classifier."""
        loader, settings = self.data.loader, self.config.settings
        facts = {"automix": automix.__version__, "data": self.config.data, "method": self.config.method}
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
    """The head of a network knows its classes by their places: they must be the same, in the same order."""
    if len(before) != len(now):
        raise ValueError(f"checkpoint {path}: has {len(before)} classes, the data {len(now)}: accepted are the same")
    for then, today in zip(before, now, strict=True):
        if then != today:
            raise ValueError(
                f"checkpoint {path}: has class {then!r} where the data has {today!r}: accepted is the same"
            )


def _three(values: Tensor) -> tuple[float, float, float]:
    red, green, blue = values.tolist()
    return red, green, blue


def prepare(
    config: TrainConfig, among: Processes, *, resume: bool, overwrite: bool, progress: Progress | None = None
) -> Run:
    """Check what can be checked, then read the data and build everything; a resumed run stands where it was saved."""
    going_on = check_folder(config, resume=resume, overwrite=overwrite)
    device = choose_device(config.device, among.local)
    precision = choose_precision(config.precision, config.settings.mixed_precision, device)
    known = DATASETS.get(config.data)
    rehearse(config, config.settings.train_size or (known and known.image_size) or 224)
    data = build_data(config, among, remembered=going_on, progress=progress)
    torch.manual_seed(config.seed)
    task = build_task(config, build_model(config, len(data.classes), data.image_size))
    task.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
    optimizer = build_optimizer(config.settings, task)
    run = Run(
        config=config,
        among=among,
        data=data,
        device=device,
        precision=precision,
        task=task,
        network=_distribute(task, device, among),
        optimizer=optimizer,
        schedule=build_schedule(config.settings, optimizer, len(data.loader)),
        scaler=torch.amp.GradScaler(device.type, enabled=precision == "fp16"),
    )
    if going_on:
        run.load_checkpoint()
    elif among.leads:
        clear(run.folder)
        run.folder.mkdir(parents=True, exist_ok=True)
        config.save(run.folder / "config.yaml")
    if data.skipped is not None and among.leads:
        write_skipped(run.folder / SKIPPED, data.skipped, data.file_counts())
    return run


def clear(folder: Path) -> None:
    """Remove what an earlier run wrote; in a folder that is no run's, and of anything else, nothing."""
    if not (folder / "config.yaml").exists():
        return
    weights = (NAME, PREVIOUS, DAMAGED, "last.safetensors", "best.safetensors")
    for pattern in (
        *weights,
        "metrics.jsonl",
        "summary.json",
        SKIPPED,
        "pictures/epoch-*.png",
        "pictures/over-time.png",
        "tensorboard/events.*",
        "mix_block.safetensors",
        "report.html",
        "evaluation/*",
        "evaluation-student/*",
    ):
        for path in folder.glob(pattern):
            path.unlink()


def _distribute(task: Task, device: torch.device, among: Processes) -> nn.Module:
    if among.world == 1:
        return task
    return DistributedDataParallel(task, device_ids=[device.index] if device.type == "cuda" else None)


MAY_CHANGE = ("out", "workers", "device", "data_root", "checkpoint_minutes", "eval_every", "wandb")
"""Fields that may differ between a run and its continuation; none of them decides a batch or a weight."""

TRIALS_DIFFER_IN = {"seed", *MAY_CHANGE} - {"eval_every"}  # which decides how many epochs are in the median
"""Fields in which runs may differ and still be trials of one configuration."""


def check_folder(config: TrainConfig, *, resume: bool, overwrite: bool) -> bool:
    """Whether there is a checkpoint to go on from; see `goes_on` for what is refused."""
    folder = config.folder
    if config.out is None and folder.parent != Path("runs"):  # the name of a network may have a path in its tag
        raise ValueError(f"model={config.model}: would put the run into {folder}; accepted is that with --out")

    def before() -> dict[str, Any]:
        return TrainConfig.from_flat(read_config(folder / "config.yaml")).flat()

    return goes_on(folder, config.flat(), before, MAY_CHANGE, resume=resume, overwrite=overwrite)
