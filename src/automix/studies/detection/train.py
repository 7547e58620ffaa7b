"""Fine-tuning a detector. A step reads top to bottom: batch -> losses -> optimizer.

All randomness is a function of (seed, step), so that the step number is all that resuming needs to know.

config.yaml              all settings
checkpoint.safetensors   everything --resume needs
detector.safetensors     the detector after the last step, complete by itself
metrics.jsonl            the losses, a line every so many steps
results.json             mAP, AP50 and AP75 on the test images
detections.png           what it finds on a few of them
"""

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.draws import step_seed
from automix.data.batch_plan import BatchPlan
from automix.evaluation.result import EvaluationResult
from automix.runs.checkpoint import DAMAGED, PREVIOUS, load_checkpoint, save_checkpoint
from automix.runs.checkpoint import NAME as CHECKPOINT
from automix.runs.folder import check_resumable
from automix.studies.detection.config import CONFIG, MAY_CHANGE, DetectConfig
from automix.studies.detection.data import Batch, DetectionSet, Objects, training_batches
from automix.studies.detection.evaluate import evaluate_detector, new_metric
from automix.studies.detection.network import trained_parameters
from automix.studies.detection.open import open_detection_data
from automix.studies.detection.progress import Report, Silent
from automix.studies.detection.saved import NAME, DetectorCard, load_backbone, save_detector
from automix.training.hardware import choose_device
from automix.training.loop import NotFiniteError
from automix.training.signals import Stop, Stopped, listening


@dataclass
class DetectRun:
    """The state of a fine-tuning."""

    config: DetectConfig
    train: DetectionSet
    test: DetectionSet
    card: DetectorCard
    device: torch.device
    detector: nn.Module
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds_before: float = 0.0  # in earlier sessions
    started: float = field(default_factory=time.monotonic)
    _saved: float = field(default_factory=time.monotonic)

    @property
    def plan(self) -> BatchPlan:
        settings, config = self.config.settings, self.config
        return BatchPlan(len(self.train), settings.batch_size, config.seed, accumulate=config.accumulate)

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.started

    def checkpoint_is_due(self) -> bool:
        minutes = (time.monotonic() - self._saved) / 60
        return self.step == self.config.settings.steps or minutes >= self.config.checkpoint_minutes

    def save_checkpoint(self) -> None:
        detector: Any = self.detector  # typed as a task there, but any module has a state
        facts = {"step": self.step, "seconds": self.seconds}
        save_checkpoint(self.config.folder / CHECKPOINT, detector, self.optimizer, _no_scaler(), facts)
        self._saved = time.monotonic()

    def load_checkpoint(self) -> None:
        detector: Any = self.detector
        facts = load_checkpoint(self.config.folder / CHECKPOINT, detector, self.optimizer, _no_scaler())
        self.step, self.seconds_before = facts["step"], facts["seconds"]


def train_detector(
    config: DetectConfig, *, resume: bool = False, overwrite: bool = False, report: Report | None = None
) -> dict[str, Any]:
    """Fine-tune as `config` says, evaluate, and return what results.json says; `resume` goes on from the checkpoint."""
    report = report or Silent()
    with listening() as stop:
        run = prepare(config, resume=resume, overwrite=overwrite)
        try:
            fit(run, report, stop)
            save_detector(config.folder / NAME, run.detector, run.card)
            about = {"steps": run.step, "seconds": round(run.seconds, 1)}
            evaluation = evaluate_detector(run.detector, run.test, track=report.track)
            results = write_results(config.folder, config, evaluation, {**about, "test_images": len(run.test)})
        finally:
            report.close()
    report.end(results, config.folder)
    return results


def prepare(config: DetectConfig, *, resume: bool, overwrite: bool) -> DetectRun:
    """Check what can be checked, then read the annotations and build everything."""
    folder = config.folder
    going_on = check_resumable(
        folder, config.flat(), lambda: DetectConfig.load(folder).flat(), MAY_CHANGE, resume=resume, overwrite=overwrite
    )
    new_metric()  # or the lack of it would be told after hours of training
    device = choose_device(config.device)
    backbone, described = load_backbone(config.backbone, None if config.weights is None else Path(config.weights))
    train, test = open_detection_data(config.data, config.root)
    facts = {"data": config.data, "backbone": config.backbone, "recipe": config.recipe}
    card = DetectorCard(described, config.kind, train.classes, config.settings, facts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        detector = card.build(backbone).to(device).train()
    settings = config.settings
    optimizer = torch.optim.SGD(
        trained_parameters(detector), settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    run = DetectRun(config, train.trainable(), test, card, device, detector, optimizer)
    _ = run.plan  # which checks the size of a batch
    if going_on:
        run.load_checkpoint()
    else:
        config.folder.mkdir(parents=True, exist_ok=True)
        for name in (CHECKPOINT, PREVIOUS, DAMAGED, NAME, "metrics.jsonl", "results.json", "detections.png"):
            if (config.folder / CONFIG).exists():  # of an earlier run; in other folders nothing is touched
                (config.folder / name).unlink(missing_ok=True)
        config.save()
    return run


def fit(run: DetectRun, report: Report, stop: Stop) -> None:
    """Train from the run's step to the end; save on the way."""
    config, steps = run.config, run.config.settings.steps
    batches = training_batches(run.train, run.plan, run.step, steps, config.workers)
    report.begin(run)
    while run.step < steps:
        losses = training_step(run, batches)
        report.step(run, losses)
        leaving = stop.asked and run.step < steps
        if leaving or run.checkpoint_is_due():
            run.save_checkpoint()
        if leaving:
            done = f"stopped after step {run.step} of {steps}"
            raise Stopped(f"{done}; to go on: automix detect train --resume --out {config.folder}", stop.signal)


def training_step(run: DetectRun, batches: Iterator[Batch]) -> dict[str, float]:
    """One step of the optimizer; returns the losses, and their sum as `loss`."""
    config, pieces = run.config, run.config.accumulate
    for group in run.optimizer.param_groups:
        group["lr"] = config.settings.lr_at(run.step)
    sums: dict[str, Tensor] = {}
    for piece in range(pieces):
        images, objects = next(batches)
        losses = _losses(run, images, objects, step_seed(config.seed, run.step, piece, stream="detector"))
        losses["loss"] = torch.stack(list(losses.values())).sum()
        (losses["loss"] / pieces).backward()
        sums = {name: sums.get(name, 0) + value.detach() / pieces for name, value in losses.items()}
    means = {name: float(value) for name, value in sums.items()}
    if not math.isfinite(means["loss"]):
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in means.items())
        raise NotFiniteError(f"step {run.step}: not finite ({numbers}); accepted may be a lower --lr")
    run.optimizer.step()
    run.optimizer.zero_grad()
    run.step += 1
    return means


def _losses(run: DetectRun, images: list[Tensor], objects: list[Objects], seed: int) -> dict[str, Tensor]:
    """FasterRCNN's four losses. It draws image sizes and regions from torch's own generator, which is put back."""
    pixels = [image.to(run.device) / 255 for image in images]
    targets = [to_target(found, run.device) for found in objects]
    with torch.random.fork_rng([run.device] if run.device.type == "cuda" else []):
        torch.manual_seed(seed)
        return dict(run.detector(pixels, targets))


def to_target(objects: Objects, device: torch.device) -> dict[str, Tensor]:
    """As FasterRCNN wants it: classes count from 1, and what is to be ignored is left out."""
    used = ~objects.ignored
    return {"boxes": objects.boxes[used].to(device), "labels": (objects.labels[used] + 1).to(device)}


def write_results(
    folder: Path, config: DetectConfig, evaluation: EvaluationResult, about: dict[str, Any]
) -> dict[str, Any]:
    """results.json and detections.png in the run folder; returns what the former says."""
    chosen = {name: getattr(config, name) for name in ("data", "backbone", "kind", "recipe", "seed")}
    results = {**chosen, **about, **evaluation.values}
    (folder / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    for name, draw in evaluation.pictures.items():
        draw().save(folder / f"{name}.png")
    return results


def _no_scaler() -> torch.amp.GradScaler:
    """The engine's checkpoints have a place for it; here all is computed in float32."""
    return torch.amp.GradScaler("cpu", enabled=False)
