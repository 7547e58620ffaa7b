"""From a configuration to a run that is ready to train."""

import importlib.util
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from automix.core.errors import AutomixError
from automix.data import DATASETS, Data, Progress, check_data, write_skipped
from automix.methods.automix import DEFAULT_LAYER
from automix.methods.automix.zoo import check_zoo, is_from_zoo, list_zoo
from automix.networks.weights import find_pretrained
from automix.runs.config import MAY_CHANGE, RESOLVED, TrainConfig, read_config
from automix.runs.folder import RunFolder
from automix.tasks.task import Task
from automix.training.build import build_data, build_model, build_optimizer, build_schedule, build_task, check_buildable
from automix.training.distributed import World
from automix.training.hardware import choose_device, choose_precision
from automix.training.run import Run


def prepare(
    config: TrainConfig, world: World, *, resume: bool, overwrite: bool, progress: Progress | None = None
) -> Run:
    """Check the settings and the environment, read the data, and build everything.

    Args:
        config: The settings.
        world: The processes that train together.
        resume: Continue from the checkpoint in the run folder, if there is one.
        overwrite: Start over in the folder of an earlier run.
        progress: Called with the numbers of images checked and of all, while bad files are searched.

    Returns:
        The run, at its first step or at that of the checkpoint.
    """
    resumed = check_folder(config, resume=resume, overwrite=overwrite)
    check_environment(config, resumed=resumed)
    device = choose_device(config.device, world.local_rank)
    known = DATASETS.get(config.data)
    blank = check_buildable(config, config.settings.train_size or (known and known.image_size) or 224)
    choose_precision(config.precision, config.settings.mixed_precision, device, blank)  # refused before data is read
    run = assemble(config, world, build_data(config, world, use_skip_list=resumed, progress=progress), resumed=resumed)
    if resumed:
        run.load_checkpoint()
    if world.is_main_process:
        _write_start(run, resumed=resumed)
    return run


def assemble(config: TrainConfig, world: World, data: Data, *, resumed: bool = False) -> Run:
    """Build network, task, optimizer and schedule for data that is open already.

    Args:
        config: The settings.
        world: The processes that train together.
        data: The dataset and its batches.
        resumed: Whether the state comes from a checkpoint afterwards.

    Returns:
        The run, at its first step; nothing is written.
    """
    device = choose_device(config.device, world.local_rank)
    torch.manual_seed(config.seed)
    model = build_model(config, len(data.classes), data.image_size, load=not resumed)
    precision = choose_precision(config.precision, config.settings.mixed_precision, device, model)
    task = build_task(config, model, resumed=resumed, class_counts=data.class_counts, normalization=data.normalization)
    task.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
    if config.compile:
        task.compile()
    optimizer = build_optimizer(config.settings, task)
    return Run(
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
        weights=describe_weights(config, resumed=resumed),
    )


def describe_weights(config: TrainConfig, *, resumed: bool) -> str:
    """Say where the first weights of a run come from.

    Args:
        config: The settings.
        resumed: Whether the run continues from a checkpoint.

    Returns:
        A few words.
    """
    if resumed:
        return "from the checkpoint"
    if not (config.settings.pretrained or config.weights):
        return "from scratch"
    return find_pretrained(config.model, config.weights).source


def check_folder(config: TrainConfig, *, resume: bool, overwrite: bool) -> bool:
    """Refuse to write over a run, or to continue one with other settings.

    Args:
        config: The settings.
        resume: Continue a run in the folder.
        overwrite: Start over in the folder of a run.

    Returns:
        Whether there is a checkpoint to continue from.
    """
    folder = RunFolder(config.folder)

    def read_before() -> dict[str, Any]:
        before = folder.read_config()
        # as recorded, not as the preset resolves today
        return {**before.flat(), RESOLVED: read_config(folder.config).get(RESOLVED, before.method_settings)}

    now = {**config.flat(), RESOLVED: config.method_settings}
    resumed = folder.check_resumable(now, read_before, MAY_CHANGE, resume=resume, overwrite=overwrite)
    if resumed and folder.read_config().effective_options != config.effective_options:
        before = folder.read_config()  # the paper's alphas go by the name of the dataset
        raise AutomixError(
            f"{config.data}: {config.method} has other options than on {before.data}: {config.effective_options}, "
            f"not {before.effective_options}; resume on a folder of the same name"
        )
    return resumed


def check_environment(config: TrainConfig, *, resumed: bool = False) -> None:
    """Check that what the run needs is on this machine, before anything is built.

    Args:
        config: The settings.
        resumed: Whether the run continues from a checkpoint, which has all weights.
    """
    if not resumed and (config.weights is not None or config.settings.pretrained):
        find_pretrained(config.model, config.weights)  # an error if there are none
    block = config.method_options.get("mix_block")
    if not resumed and is_from_zoo(block):
        check_zoo(str(block), config.model.partition(".")[0], config.effective_options.get("layer", DEFAULT_LAYER))
        if not config.settings.pretrained and config.weights is None:
            raise AutomixError(f"mix_block {block} needs a pretrained network; use --pretrained")
    elif not resumed and block is not None and not Path(str(block)).exists():
        raise AutomixError(
            f"{block}: no such file; give mix_block the file of a Mix Block, a run folder, or zoo:NAME "
            f"({', '.join(list_zoo())})"
        )
    for tracker, used in (("wandb", config.wandb), ("mlflow", config.mlflow)):
        if used and importlib.util.find_spec(tracker) is None:
            raise AutomixError(f"{tracker} is not installed; run pip install {tracker}, or leave out --{tracker}")
    check_data(config.data, config.root)


def check_place(config: TrainConfig) -> None:
    """Refuse a run folder outside of runs/ that was not given as such: a network's name may have a path in its tag."""
    if config.out is None and config.folder.parent != Path("runs"):
        raise AutomixError(f"out must be given with model {config.model!r}, or the run would be in {config.folder}")


@contextmanager
def hold_folder(config: TrainConfig, world: World) -> Iterator[None]:
    """Lock the run folder while a run trains in it; all processes of the run are refused together.

    Args:
        config: The settings.
        world: The processes that train together; the main one takes the lock.

    Yields:
        Nothing; the folder is locked inside the `with` block.
    """
    check_place(config)
    with ExitStack() as stack:
        refusal = None
        if world.is_main_process:
            try:
                stack.enter_context(RunFolder(config.folder).lock())
            except AutomixError as error:
                refusal = error
        refused = world.total(torch.tensor([float(refusal is not None)])).item() > 0
        if refused:
            raise refusal or AutomixError(f"{config.folder}: the main process of this run was refused the folder")
        yield


def _write_start(run: Run, *, resumed: bool) -> None:
    """Write what a run folder has from the start: the settings, and the list of skipped files."""
    if not resumed:
        run.folder.clear()
        run.folder.path.mkdir(parents=True, exist_ok=True)
    if not resumed or run.folder.read_config() != run.config:  # the data may lie elsewhere now
        run.config.save(run.folder.config)
    if run.data.skipped is not None:
        write_skipped(run.folder.skipped, run.data.skipped, run.data.file_counts())
    if not resumed and "mix_block" in run.config.method_options:
        run.save_mix_block()  # the run can be opened when the file it started from is gone


def _distribute(task: Task, device: torch.device, world: World) -> nn.Module:
    if world.size == 1:
        return task
    return DistributedDataParallel(task, device_ids=[device.index] if device.type == "cuda" else None)
