"""A training that fits into given minutes: a few steps are timed, then the number of epochs follows.

Where even small images would leave too few steps, the images become smaller: the cost of a step falls with their area.
"""

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from automix.core.errors import AutomixError
from automix.core.validation import check_range
from automix.networks.create import SMALL_IMAGE
from automix.runs.config import TrainConfig
from automix.tasks.task import Task
from automix.training.build import build_data, build_model, build_optimizer, build_task
from automix.training.defaults import (
    EPOCHS_TO_MIX,
    EVALUATIONS,
    FINETUNE,
    SHORT_METHOD,
    SIZE_STEP,
    evaluations_for,
    warmup_for,
)
from automix.training.distributed import World
from automix.training.hardware import autocast, choose_device, choose_precision

ENOUGH_STEPS = 300  # with fewer, smaller images are tried
TIMED_STEPS = 3
USED = 0.95  # of the time; the rest is for files and pictures


@dataclass(frozen=True)
class Speed:
    """How long the parts of a training take, in seconds.

    Attributes:
        mixed_step: A step that mixes.
        clean_step: A step of plain training, at the end of methods with ``mix_until < 1``.
        evaluation: One pass over the test images.
        steps_per_epoch: Steps in an epoch.
    """

    mixed_step: float
    clean_step: float
    evaluation: float
    steps_per_epoch: int

    def epochs_in(self, seconds: float, mix_until: float) -> int:
        """Compute how many epochs fit.

        Args:
            seconds: The time there is.
            mix_until: Part of the training that mixes.

        Returns:
            The number, at least 1.
        """
        step = mix_until * self.mixed_step + (1 - mix_until) * self.clean_step
        left = seconds - EVALUATIONS * self.evaluation
        return max(1, int(left / (self.steps_per_epoch * step)))


def fit_into(config: TrainConfig, minutes: float, *, fixed: Sequence[str] = ()) -> TrainConfig:
    """Choose the number of epochs, and the size of large images, so that a training takes the given time.

    Args:
        config: The settings.
        minutes: Time for the training on this machine, > 0.
        fixed: Names of settings that were given and must stay.

    Returns:
        The settings with `epochs`, `warmup_epochs` and `eval_every`, and maybe smaller images. The recipe finetune
        chooses the method, too, if none was given: AutoMix, or plain training if fewer than 15 epochs of AutoMix fit.
    """
    check_range("minutes", minutes, 0, bounds="()")
    if "epochs" in fixed:
        raise AutomixError("epochs and minutes exclude each other, got both")
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise AutomixError("minutes can only be given for a single process; give --epochs")
    if config.recipe != FINETUNE or "method" in fixed:
        return _fit(config, minutes, fixed)
    fitted = _fit(replace(config, method=TrainConfig.method), minutes, fixed)
    enough = fitted.settings.epochs >= EPOCHS_TO_MIX
    return fitted if enough else _fit(replace(config, method=SHORT_METHOD), minutes, fixed)


def _fit(config: TrainConfig, minutes: float, fixed: Sequence[str]) -> TrainConfig:
    sizes = [config.settings.train_size] if "train_size" in fixed else smaller_sizes(config.settings.train_size)
    for size in sizes:
        tried = config if size is None else with_size(config, size)
        speed, mix_until = measure_speed(tried)
        epochs = speed.epochs_in(USED * 60 * minutes, mix_until)
        if epochs * speed.steps_per_epoch >= ENOUGH_STEPS:
            break
    warmup = warmup_for(epochs) if config.settings.warmup_epochs else 0
    settings = replace(tried.settings, epochs=epochs, warmup_epochs=warmup, freeze=min(config.settings.freeze, epochs))
    return replace(tried, settings=settings, eval_every=evaluations_for(epochs), eval_last=1)


def smaller_sizes(size: int | None) -> list[int | None]:
    """List the sizes to try: the given one, then two thirds and about half of it, as far as networks accept them.

    Args:
        size: Side of the training images in pixels; None if the data decides.

    Returns:
        The sizes, the largest first.
    """
    if size is None:
        return [None]
    steps = [round(size * share / SIZE_STEP) * SIZE_STEP for share in (2 / 3, 1 / 2)]
    return [size, *dict.fromkeys(step for step in steps if SMALL_IMAGE + SIZE_STEP <= step < size)]


def with_size(config: TrainConfig, size: int) -> TrainConfig:
    """Change the size of the images.

    Args:
        config: The settings.
        size: Side of training and test images in pixels.

    Returns:
        The settings.
    """
    return replace(config, settings=replace(config.settings, train_size=size, test_size=size))


def measure_speed(config: TrainConfig) -> tuple[Speed, float]:
    """Time a few steps and a few test images on this machine; nothing is written.

    Args:
        config: The settings.

    Returns:
        The times, and the part of the training that mixes.
    """
    data = build_data(config, World(), use_skip_list=False)
    device = choose_device(config.device, 0)
    with torch.random.fork_rng(devices=[]):
        model = build_model(config, len(data.classes), data.image_size, load=False)
        task = build_task(config, model, normalization=data.normalization)
    precision = choose_precision(config.precision, config.settings.mixed_precision, device, model)
    task.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
    optimizer = build_optimizer(config.settings, task)
    batches = data.loader.batches(0, 2 * (TIMED_STEPS + 1))

    def step() -> None:
        for _ in range(config.accumulate):
            x, y = (tensor.to(device) for tensor in next(batches))
            with autocast(precision, device):
                out = task(x, y)
            out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        _wait_for(device)

    mixed = _median_time(step)
    if clean_end := 0 < task.mixed_share < 1:
        task.progress = 1.0
    clean = _median_time(step) if clean_end else mixed
    test = next(iter(data.loader.test_batches()))[0][: config.settings.batch_size].to(device)
    return Speed(mixed, clean, _evaluation_time(task, test, data.test_count, lambda: autocast(precision, device)),
                 len(data.loader)), task.mixed_share  # fmt: skip


def _evaluation_time(task: Task, x: torch.Tensor, count: int, context: Callable[[], object]) -> float:
    """The time to run student and teacher on all test images, from one batch."""
    task.eval()
    networks = [network for network in (task.student, task.teacher) if network is not None]

    def run() -> None:
        with torch.no_grad(), context():  # type: ignore[attr-defined]
            for network in networks:
                network(x)
        _wait_for(x.device)

    return _median_time(run) * count / len(x)


def _median_time(run: Callable[[], None]) -> float:
    times = []
    for _ in range(TIMED_STEPS + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return sorted(times[1:])[TIMED_STEPS // 2]  # without the first, which allocates


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
