"""Fine-tuning a detector. A step reads top to bottom: batch -> losses -> optimizer.

All randomness is a function of (seed, step), so resuming needs no state beyond the step number. The run folder has

config.yaml              all settings
checkpoint.safetensors   the state for --resume
detector.safetensors     the detector after the last step, complete by itself
metrics.jsonl            the losses, a line every 20 steps
results.json             mAP, AP50 and AP75 on the test images
detections.png           detections on a few test images
"""

import json
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from automix.core.draws import step_seed
from automix.core.errors import AutomixError
from automix.core.files import write_atomically, write_text
from automix.evaluation.result import EvaluationResult
from automix.runs.folder import RunFolder
from automix.studies.detection.config import MAY_CHANGE, DetectConfig
from automix.studies.detection.data import Batch, Objects, training_batches
from automix.studies.detection.detector_file import DETECTOR, DetectorCard, load_backbone, save_detector
from automix.studies.detection.evaluate import create_metric, evaluate_detector
from automix.studies.detection.mixing import mix_scenes
from automix.studies.detection.network import synchronize_batch_norms, trained_parameters
from automix.studies.detection.open import open_detection_data
from automix.studies.detection.progress import Report, Silent
from automix.studies.detection.run import DetectRun
from automix.training.distributed import World, process_group
from automix.training.hardware import autocast, choose_device
from automix.training.loop import NotFiniteError
from automix.training.signals import Stopped, StopRequest, catch_signals

RESULTS = "results.json"


def train_detector(
    config: DetectConfig, *, resume: bool = False, overwrite: bool = False, report: Report | None = None
) -> dict[str, Any]:
    """Fine-tune a detector, save it, and evaluate it.

    Args:
        config: The settings.
        resume: Continue from the checkpoint in the run folder, if there is one.
        overwrite: Start anew in the folder of an earlier run.
        report: Shows the progress; nothing is shown if not given.

    Returns:
        The content of results.json: average precisions in percent, and what was trained. Empty in all processes but
        the main one, if torchrun started several.

    Raises:
        AutomixError: If the settings, the data or the run folder do not fit, or another process trains in the folder.
        Stopped: If the process was asked to stop; the state is saved.
    """
    report = report or Silent()
    with catch_signals() as stop, process_group(config.device) as world, _lock(config, world):
        results = _train(config, world, stop, report, resume=resume, overwrite=overwrite)
    if world.is_main_process:
        report.end(results, config.folder)
    return results


def _train(
    config: DetectConfig, world: World, stop: StopRequest, report: Report, *, resume: bool, overwrite: bool
) -> dict[str, Any]:
    """Train in one of the processes; a function of its own, so that the network is gone before the process group."""
    run = prepare(config, resume=resume, overwrite=overwrite, world=world)
    try:
        fit(run, report, stop)
        if not world.is_main_process:
            return {}
        save_detector(config.folder / DETECTOR, run.detector, run.card)
        about = {"steps": run.step, "seconds": round(run.seconds, 1)}
        evaluation = evaluate_detector(run.detector, run.test, track=report.track)
        return write_results(config.folder, config, evaluation, {**about, "test_images": len(run.test)})
    finally:
        report.close()


def _lock(config: DetectConfig, world: World) -> AbstractContextManager[None]:
    """Let no other run write into the folder; the processes of one run write through the main one."""
    return RunFolder(config.folder).lock() if world.is_main_process else nullcontext()


def prepare(config: DetectConfig, *, resume: bool, overwrite: bool, world: World | None = None) -> DetectRun:
    """Check the settings, read the annotations, and build the detector.

    Args:
        config: The settings.
        resume: Continue from the checkpoint in the run folder, if there is one.
        overwrite: Start anew in the folder of an earlier run.
        world: The processes that train together; this one alone if not given.

    Returns:
        The run, at its first step or at that of the checkpoint.
    """
    folder, world = config.folder, world or World()
    resumed = RunFolder(folder).check_resumable(
        config.flat(), lambda: DetectConfig.load(folder).flat(), MAY_CHANGE, resume=resume, overwrite=overwrite
    )
    create_metric()  # a missing package must not show up after hours of training
    device = choose_device(config.device, world.local_rank)
    backbone, described = load_backbone(config.backbone, None if config.weights is None else Path(config.weights))
    train, test = open_detection_data(config.data, config.root)
    facts = {"data": config.data, "backbone": config.backbone, "recipe": config.recipe}
    card = DetectorCard(described, config.kind, train.classes, config.settings, facts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.seed)
        detector = card.build(backbone).to(device).train()
    if config.settings.batch_norm == "trained" and world.size > 1 and device.type == "cuda":
        detector = synchronize_batch_norms(detector)
    settings = config.settings
    optimizer = torch.optim.SGD(
        trained_parameters(detector), settings.lr, momentum=settings.momentum, weight_decay=settings.weight_decay
    )
    network = _distribute(detector, device) if world.size > 1 else detector
    run = DetectRun(config, train.trainable(), test, card, device, detector, optimizer, network, world)
    images = settings.batch_size // run.plan.num_micro_batches  # the plan checks the batch size
    if settings.mix != "none" and images < 2:
        raise AutomixError(f"mix must be none where a process computes one image at a time, got {settings.mix!r}")
    world.wait()  # until all have looked at the folder
    if resumed:
        run.load_checkpoint()
    elif world.is_main_process:
        _start_folder(config)
    return run


def _distribute(detector: nn.Module, device: torch.device) -> nn.Module:
    return DistributedDataParallel(detector, device_ids=[device.index] if device.type == "cuda" else None)


def _start_folder(config: DetectConfig) -> None:
    """Create the run folder; in that of an earlier run, remove what that run wrote."""
    folder = RunFolder(config.folder)
    folder.path.mkdir(parents=True, exist_ok=True)
    if folder.is_run:
        own = [folder.path / name for name in (DETECTOR, RESULTS, "detections.png")]
        for path in (*folder.checkpoints, folder.metrics, *own):
            path.unlink(missing_ok=True)
    config.save()


def fit(run: DetectRun, report: Report, stop: StopRequest) -> None:
    """Train from the run's step to the end, with checkpoints on the way.

    Args:
        run: The run.
        report: Shows the progress.
        stop: Whether the process was asked to stop.
    """
    config, steps, is_main = run.config, run.config.settings.steps, run.world.is_main_process
    batches = training_batches(run.train, run.plan, run.step, steps, config.workers)
    if is_main:
        report.begin(run)
    while run.step < steps:
        losses = training_step(run, batches)
        if is_main:
            report.step(run, losses)
        asked = run.world.total(torch.tensor(float(stop.poll()), device=run.device))  # all stop together
        stopping = bool(asked) and run.step < steps
        if is_main and (stopping or run.checkpoint_is_due()):
            run.save_checkpoint()
        if stopping:
            done = f"stopped after step {run.step} of {steps}"
            raise Stopped(f"{done}; to go on: automix detect train --resume --out {config.folder}", stop.signal)


def training_step(run: DetectRun, batches: Iterator[Batch]) -> dict[str, float]:
    """Do one step of the optimizer.

    Args:
        run: The run; its step is advanced.
        batches: The training batches, micro-batch by micro-batch.

    Returns:
        FasterRCNN's four losses, and their sum as ``loss``.
    """
    config, accumulate = run.config, run.config.accumulate
    for group in run.optimizer.param_groups:
        group["lr"] = config.settings.lr_at(run.step)
    sums: dict[str, Tensor] = {}
    for micro_batch in range(accumulate):
        images, objects = next(batches)
        seed = step_seed(config.seed, run.step, run.plan.micro_batch_index(micro_batch), stream="detector")
        with _no_sync_until_last(run, micro_batch):
            losses = _losses(run, images, objects, seed)
            losses["loss"] = torch.stack(list(losses.values())).sum()
            (losses["loss"] / accumulate).backward()
        sums = {name: sums.get(name, 0) + value.detach() / accumulate for name, value in losses.items()}
    averaged = run.world.mean(torch.stack([value.float() for value in sums.values()]))
    means = dict(zip(sums, averaged.tolist(), strict=True))
    if not math.isfinite(means["loss"]):
        numbers = ", ".join(f"{name} {value:.4g}" for name, value in means.items())
        raise NotFiniteError(f"step {run.step}: loss is not finite ({numbers}); try a lower --lr")
    run.optimizer.step()
    run.optimizer.zero_grad()
    run.step += 1
    return means


def _no_sync_until_last(run: DetectRun, micro_batch: int) -> AbstractContextManager[None]:
    """Exchange gradients once in a step, with the last micro-batch."""
    if isinstance(run.network, DistributedDataParallel) and micro_batch + 1 < run.config.accumulate:
        return run.network.no_sync()
    return nullcontext()


def _losses(run: DetectRun, images: list[Tensor], objects: list[Objects], seed: int) -> dict[str, Tensor]:
    """FasterRCNN's four losses. It draws sizes and regions from torch's global generator, which is restored."""
    pixels = [image.to(run.device) / 255 for image in images]
    settings, draws = run.config.settings, torch.Generator().manual_seed(seed)
    pixels, objects = mix_scenes(pixels, objects, settings.mix, settings.mix_alpha, draws)
    targets = [to_target(annotated, run.device) for annotated in objects]
    cuda = [run.device] if run.device.type == "cuda" else []
    with torch.random.fork_rng(cuda), autocast(run.config.precision, run.device):
        torch.manual_seed(seed)
        return dict(run.network(pixels, targets))


def to_target(objects: Objects, device: torch.device) -> dict[str, Tensor]:
    """Convert objects to FasterRCNN's targets: labels count from 1, and ignored objects are left out.

    Args:
        objects: The objects of an image.
        device: Where the target is used.

    Returns:
        ``boxes`` and ``labels``.
    """
    used = ~objects.ignored
    return {"boxes": objects.boxes[used].to(device), "labels": (objects.labels[used] + 1).to(device)}


def write_results(
    folder: Path, config: DetectConfig, evaluation: EvaluationResult, about: dict[str, Any]
) -> dict[str, Any]:
    """Write results.json and detections.png.

    Args:
        folder: The run folder.
        config: The settings of the run.
        evaluation: From `evaluate_detector`.
        about: Further entries of results.json.

    Returns:
        The content of results.json.
    """
    chosen = {name: getattr(config, name) for name in ("data", "backbone", "kind", "recipe", "seed")}
    results = {**chosen, **about, **evaluation.values}
    for name, draw in evaluation.pictures.items():
        write_atomically(folder / f"{name}.png", draw().save)
    write_text(folder / RESULTS, json.dumps(results, indent=2) + "\n")
    return results
