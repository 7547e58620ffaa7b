"""Efficiency: what the classifier costs, and what a training step of a method costs beside a plain one.

The columns of the paper's Table 9 (parameters and training time) and what else one pays:

parameters_m
    Parameters of the classifier, in millions. All that is left after training, whatever the method.
extra_parameters_m
    Parameters that are trained besides, in millions: AutoMix's Mix Block. The paper's column is the sum of the two. The
    momentum teacher is a copy that nobody trains and is not counted.
gmacs
    Multiply-adds of a forward pass of one image, in 10^9, by torch's FlopCounterMode (convolutions, matrix products and
    attention; nothing for activations, norms and pooling). Papers call this FLOPs; counted in full it is twice as many.
step_ratio
    The time of a training step (loss, gradients, SGD with momentum, teacher) as a multiple of a plain step of the same
    network on the same batch. They take turns in one process, so that a busy moment of the machine hits all; this is
    the median over the rounds of the ratio within a round. Where a method mixes only up to some point of the training
    (AutoMix does), it is the mean over a training: steps before and after that point by their shares. Reading images is
    no part of it.
memory_ratio
    The peak memory of such training as a multiple of plain training's: the most bytes that the task, its optimizer, the
    batch and everything computed hold together at any moment of the first two steps. On CUDA by the allocator's count,
    on the CPU by the allocations that torch's profiler records; neither sees what libraries allocate for themselves.

All of it on noise, on the model's device and in its type. A ratio depends on the network, the image size and the batch:
on a small network a method looks dearer than on a large one.
"""

import copy
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from automix.core.draws import step_generator
from automix.core.validation import check_whole
from automix.evaluation.plots import BLUE, GRAY, as_image, new_figure
from automix.evaluation.predictions import check_predictions
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.methods import check_method, create_task
from automix.networks.modes import eval_mode
from automix.runs.classifier import WithNormalization
from automix.tasks.task import Task

PLAIN = "vanilla"
WARM_UP = 2  # rounds that are not timed

Step = Callable[[Tensor, Tensor], object]


def evaluate_efficiency(
    model: nn.Module,
    *,
    num_classes: int,
    image_size: int,
    method: str = "automix",
    method_options: Mapping[str, Any] | None = None,
    batch_size: int = 100,
    steps: int = 10,
    seed: int = 0,
    track: Track = no_progress,
) -> EvaluationResult:
    """The cost of `model`, and of training it by `method` as a multiple of training it plainly; `steps` are timed.

    Training happens on copies: the model stays as it is.
    """
    numbers = {"num_classes": num_classes, "image_size": image_size, "batch_size": batch_size, "steps": steps}
    for name, value in numbers.items():
        check_whole(name, value, 1)
    check_method(method)
    network = model.model if isinstance(model, WithNormalization) else model  # methods look into it
    device = next(network.parameters()).device
    with _own_randomness(device, seed):
        macs = count_macs(network, num_classes, image_size)
        plain = partial(new_task, PLAIN, network, seed=seed)
        mixing = partial(new_task, method, network, seed=seed, **(method_options or {}))
        batch = partial(noise, network, num_classes, image_size, batch_size, seed)
        task = mixing()
        extra, share = extra_parameters(task), task.mix_until
        turns = {"plain": training_step(plain()), "mixing": training_step(task)}
        if share < 1:
            turns["ending"] = training_step(mixing(), progress=1.0)
        seconds = time_interleaved(turns, *batch(), rounds=steps, track=track)
        del turns, task
        plain_bytes, mixing_bytes = (peak_memory(partial(two_steps, new, batch), device) for new in (plain, mixing))
    against_plain = {turn: statistics.median(ratios(times, seconds["plain"])) for turn, times in seconds.items()}
    step_ratio = share * against_plain["mixing"] + (1 - share) * against_plain.get("ending", 0.0)
    values = {
        "parameters_m": count_parameters(network.parameters()) / 1e6,
        "extra_parameters_m": extra / 1e6,
        "gmacs": macs / 1e9,
        "step_ratio": step_ratio,
    }
    notes = [f"{method} beside {PLAIN}: batches of {batch_size} at {image_size} px, {steps} steps, on {device.type}"]
    notes += [f"a plain step took {1000 * statistics.median(seconds['plain']):.0f} ms"]
    if share < 1:
        notes += [f"{against_plain['mixing']:.2f} while it mixes, for {share:.0%} of a training"]
    if plain_bytes is None or mixing_bytes is None:
        notes += [f"the peak memory on {device.type} is not known: accepted are cuda and cpu"]
    else:
        values["memory_ratio"] = mixing_bytes / plain_bytes
        notes += [f"plain training held up to {plain_bytes / 1e6:.0f} MB"]
    return EvaluationResult(values, {"efficiency": partial(draw_ratios, values, method)}, tuple(notes))


# --- the classifier


def count_parameters(parameters: Iterable[Tensor]) -> int:
    return sum(parameter.numel() for parameter in parameters)


def count_macs(network: nn.Module, num_classes: int, image_size: int) -> float:
    """Multiply-adds of a forward pass of one image, which must give `num_classes` numbers."""
    image = next(network.parameters()).new_zeros(1, 3, image_size, image_size)
    # Attention as plain matrix products: the counter does not know the fused form that CPUs use.
    with eval_mode(network), torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        logits = network(image)
    check_predictions((logits.float().cpu(), torch.zeros(1, dtype=torch.int64)), num_classes)
    return counter.get_total_flops() / 2  # it counts the multiplication and the addition


# --- a training step


def new_task(method: str, network: nn.Module, **options: Any) -> Task:
    """The task of a method around a copy of the network, set up as the engine does it."""
    task = create_task(method, copy.deepcopy(network).requires_grad_(True), **options)
    device = next(network.parameters()).device
    return task.to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]


def extra_parameters(task: Task) -> int:
    """How many numbers are trained besides the student's."""
    trained = (parameter for group in task.param_groups(lr=0.0) for parameter in group["params"])
    return count_parameters(trained) - count_parameters(task.student.parameters())


def training_step(task: Task, progress: float = 0.0) -> Step:
    """What the engine does with a batch, with SGD and momentum; from the second on at `progress` of a training."""
    optimizer = torch.optim.SGD(task.param_groups(lr=0.01), momentum=0.9)

    def step(x: Tensor, y: Tensor) -> None:
        task(x, y).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        task.update(progress)

    return step


def noise(network: nn.Module, num_classes: int, image_size: int, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Images and labels for the network, drawn by `seed`."""
    generator = step_generator(seed, 0, stream="efficiency")
    x = torch.randn(count, 3, image_size, image_size, generator=generator)
    y = torch.randint(num_classes, (count,), generator=generator)
    weight = next(network.parameters())
    return x.to(weight).contiguous(memory_format=torch.channels_last), y.to(weight.device)


# --- time


def time_interleaved(
    steps: Mapping[str, Step], x: Tensor, y: Tensor, *, rounds: int, track: Track = no_progress
) -> dict[str, list[float]]:
    """Seconds of each step by round: in every round all of them take their turn, so that they share busy moments."""
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
    """Round by round, how many times as long as the plain step."""
    return [ours / theirs for ours, theirs in zip(seconds, plain, strict=True)]


def device_clock(device: torch.device) -> Callable[[], float]:
    """The time in seconds at which everything asked of the device so far is done."""

    def cuda_clock() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return cuda_clock if device.type == "cuda" else time.perf_counter


# --- memory


def two_steps(task: Callable[[], Task], batch: Callable[[], tuple[Tensor, Tensor]]) -> None:
    """From nothing to the second step, in which the optimizer has its momentum already."""
    step = training_step(task())
    x, y = batch()
    for _ in range(2):
        step(x, y)


def peak_memory(run: Callable[[], object], device: torch.device) -> int | None:
    """The most bytes of the device that tensors made by `run` hold at any moment; None where nobody counts them."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return torch.cuda.max_memory_allocated(device) - before
    if device.type != "cpu":
        return None
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler tells that it starts and stops, otherwise
    with torch.autograd.profiler.profile(profile_memory=True) as profile:
        run()
    events = (event for event in profile.kineto_results.events() if event.name() == "[memory]")
    changes = [event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())]  # below 0: given back
    return max(accumulate(changes), default=0)


@contextmanager
def _own_randomness(device: torch.device, seed: int) -> Iterator[None]:
    """New layers and dropout draw from torch's global generators: nobody else's numbers are to change."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def draw_ratios(values: dict[str, float], method: str) -> Image.Image:
    """Time and memory of a training step beside a plain one."""
    names = {"step_ratio": "time of a step", "memory_ratio": "peak memory"}
    shown = {words: values[name] for name, words in names.items() if name in values}
    figure, axes = new_figure(6, 1.9)
    bars = axes.barh(list(shown), list(shown.values()), color=BLUE, height=0.6)
    axes.bar_label(bars, fmt="%.2f", padding=4)
    axes.axvline(1, color=GRAY, linestyle="--")
    axes.set(xlim=(0, 1.15 * max(1, *shown.values())), xlabel="multiple of plain training (dashed)")
    axes.invert_yaxis()
    axes.set_title(f"Training by {method}", fontsize=11)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return as_image(figure)
