"""From a configuration to a run that is ready to train."""

from pathlib import Path

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from automix.data import DATASETS, Progress, write_skipped
from automix.runs.config import MAY_CHANGE, TrainConfig
from automix.runs.folder import RunFolder
from automix.tasks.task import Task
from automix.training.build import build_data, build_model, build_optimizer, build_schedule, build_task, rehearse
from automix.training.distributed import World
from automix.training.hardware import choose_device, choose_precision
from automix.training.run import Run


def prepare(
    config: TrainConfig, world: World, *, resume: bool, overwrite: bool, progress: Progress | None = None
) -> Run:
    """Check what can be checked, then read the data and build everything; a resumed run stands where it was saved."""
    going_on = check_folder(config, resume=resume, overwrite=overwrite)
    device = choose_device(config.device, world.local_rank)
    precision = choose_precision(config.precision, config.settings.mixed_precision, device)
    known = DATASETS.get(config.data)
    rehearse(config, config.settings.train_size or (known and known.image_size) or 224)
    data = build_data(config, world, remembered=going_on, progress=progress)
    torch.manual_seed(config.seed)
    task = build_task(config, build_model(config, len(data.classes), data.image_size))
    task.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
    optimizer = build_optimizer(config.settings, task)
    run = Run(
        config=config,
        world=world,
        data=data,
        device=device,
        precision=precision,
        task=task,
        network=_distribute(task, device, world),
        optimizer=optimizer,
        schedule=build_schedule(config.settings, optimizer, len(data.loader)),
        scaler=torch.amp.GradScaler(device.type, enabled=precision == "fp16"),
    )
    if going_on:
        run.load_checkpoint()
    elif world.is_main_process:
        run.folder.clear()
        run.folder.path.mkdir(parents=True, exist_ok=True)
        config.save(run.folder.config)
    if data.skipped is not None and world.is_main_process:
        write_skipped(run.folder.skipped, data.skipped, data.file_counts())
    return run


def _distribute(task: Task, device: torch.device, world: World) -> nn.Module:
    if world.size == 1:
        return task
    return DistributedDataParallel(task, device_ids=[device.index] if device.type == "cuda" else None)


def check_folder(config: TrainConfig, *, resume: bool, overwrite: bool) -> bool:
    """Whether there is a checkpoint to go on from; see `check_resumable` for what is refused."""
    if config.out is None and config.folder.parent != Path("runs"):  # the name of a network may have a path in its tag
        raise ValueError(f"model={config.model}: would put the run into {config.folder}; accepted is that with --out")
    folder = RunFolder(config.folder)
    return folder.check_resumable(
        config.flat(), lambda: folder.read_config().flat(), MAY_CHANGE, resume=resume, overwrite=overwrite
    )
