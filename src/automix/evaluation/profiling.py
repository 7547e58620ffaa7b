"""Costs of networks and of training steps: parameters, multiply-adds, time and peak memory."""

import copy
import os
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from automix.core.draws import step_generator
from automix.evaluation.predictions import check_predictions
from automix.evaluation.progress import Track, no_progress
from automix.methods import create_task
from automix.networks.modes import eval_mode
from automix.tasks.task import Task

WARM_UP = 2  # rounds that are not timed

Step = Callable[[Tensor, Tensor], object]
"""One training step on a batch of images and labels."""


def count_parameters(parameters: Iterable[Tensor]) -> int:
    """Count the numbers in some tensors."""
    return sum(parameter.numel() for parameter in parameters)


def count_macs(network: nn.Module, num_classes: int, image_size: int) -> float:
    """Count the multiply-adds of a forward pass of one image.

    Args:
        network: Classifier of `num_classes` classes.
        num_classes: Checked against the network's logits.
        image_size: Side of the image in pixels.

    Returns:
        Multiply-adds of convolutions, matrix products and attention.
    """
    image = next(network.parameters()).new_zeros(1, 3, image_size, image_size)
    # Attention as plain matrix products: the counter does not know the fused form that CPUs use.
    with eval_mode(network), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = network(image)
    check_predictions((logits.float().cpu(), torch.zeros(1, dtype=torch.int64)), num_classes)
    return counter.get_total_flops() / 2  # it counts the multiplication and the addition


def new_task(method: str, network: nn.Module, **options: Any) -> Task:
    """Create the task of a method around a copy of a network, set up as in training.

    Args:
        method: Name of the method.
        network: Stays as it is.
        **options: Options of `create_task`.

    Returns:
        The task in training mode, on the network's device.
    """
    task = create_task(method, copy.deepcopy(network).requires_grad_(True), **options)
    device = next(network.parameters()).device
    return task.to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]


def extra_parameters(task: Task) -> int:
    """Count the parameters that are trained besides the student's."""
    trained = (parameter for group in task.param_groups(lr=0.0) for parameter in group["params"])
    return count_parameters(trained) - count_parameters(task.student.parameters())


def training_step(task: Task, progress: float = 0.0) -> Step:
    """Create a function that trains a task on a batch, with SGD and momentum.

    Args:
        task: What is trained.
        progress: Part of the training that is over, from the second step on.

    Returns:
        The function, of images and labels.
    """
    optimizer = torch.optim.SGD(task.param_groups(lr=0.01), momentum=0.9)

    def step(x: Tensor, y: Tensor) -> None:
        task(x, y).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        task.update(progress)

    return step


def noise(network: nn.Module, num_classes: int, image_size: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Draw `count` images of noise and labels, on the device and in the type of the network."""
    generator = step_generator(seed, 0, stream="efficiency")
    x = torch.randn(count, 3, image_size, image_size, generator=generator)
    y = torch.randint(num_classes, (count,), generator=generator)
    weight = next(network.parameters())
    return x.to(weight).contiguous(memory_format=torch.channels_last), y.to(weight.device)


def time_interleaved(
    steps: Mapping[str, Step], x: Tensor, y: Tensor, *, rounds: int, track: Track = no_progress
) -> dict[str, list[float]]:
    """Time several training steps in turns, so that a busy moment of the machine slows all of them.

    Args:
        steps: The functions to time, by name.
        x: Images, passed to each.
        y: Labels, passed to each.
        rounds: How often each is timed; WARM_UP more rounds come first.
        track: Progress display.

    Returns:
        Seconds by name and round.
    """
    clock = device_clock(x.device)
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for turn in track(range(-WARM_UP, rounds), WARM_UP + rounds, "timing training steps"):
        for name, step in steps.items():
            start = clock()
            step(x, y)
            taken = clock() - start
            if turn >= 0:
                seconds[name].append(taken)
    return seconds


def ratios(seconds: list[float], plain: list[float]) -> list[float]:
    """Divide the times of each round by those of the plain step."""
    return [ours / theirs for ours, theirs in zip(seconds, plain, strict=True)]


def device_clock(device: torch.device) -> Callable[[], float]:
    """Return a clock in seconds that waits for the work that was sent to the device."""

    def cuda_clock() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return cuda_clock if device.type == "cuda" else time.perf_counter


def two_steps(task: Callable[[], Task], batch: Callable[[], tuple[Tensor, Tensor]]) -> None:
    """Create a task and train it for two steps: in the second the optimizer has its momentum."""
    step = training_step(task())
    x, y = batch()
    for _ in range(2):
        step(x, y)


def peak_memory(run: Callable[[], object], device: torch.device) -> int | None:
    """Measure the most bytes that tensors created by `run` hold at any moment.

    Args:
        run: Called once.
        device: Where the tensors are.

    Returns:
        Bytes; None on devices other than CUDA and the CPU, which do not count them.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu":
        return None
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # otherwise the profiler prints when it starts and stops
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        run()
    events = (event for event in profile.kineto_results.events() if event.name() == "[memory]")
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]  # negative: freed
    return max(accumulate(changes), default=0)
