"""Efficiency: what a classifier costs, and what a training step of a method costs beside a plain one.

The columns of the paper's Table 11 (parameters and training time), and more:

parameters_m
    Parameters of the classifier, in millions. No method leaves more of them after training.
extra_parameters_m
    Parameters that are trained besides, in millions: AutoMix's Mix Block and its second head. The paper's column is the
    sum of the two. The momentum teacher is a copy without training and does not count.
gmacs
    Multiply-adds of a forward pass of one image, in 10^9, by torch's FlopCounterMode (convolutions, matrix products and
    attention; not activations, norms and pooling). Papers call this FLOPs; counted in full it is twice as many.
step_ratio
    Time of a training step (loss, gradients, SGD with momentum, teacher) as a multiple of a plain step of the same
    network on the same batch. Both take turns in one process, and the value is the median over the rounds of the ratio
    within a round. If a method mixes only up to some point of the training (AutoMix does), it is the mean over a
    training: steps before and after that point by their shares. Reading images is not part of it.
memory_ratio
    Peak memory of such training as a multiple of plain training's: the most bytes that the task, its optimizer, the
    batch and everything computed hold together at any moment of the first two steps. On CUDA by the allocator's count,
    on the CPU by the allocations that torch's profiler records; neither includes what libraries allocate themselves.

All of it on noise, on the model's device and in its type. A ratio depends on the network, the image size and the batch:
a method looks more expensive on a small network.
"""

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from PIL import Image
from torch import nn

from automix.core.validation import check_whole
from automix.evaluation.plots import BLUE, GRAY, as_image, new_figure
from automix.evaluation.profiling import (
    count_macs,
    count_parameters,
    extra_parameters,
    new_task,
    noise,
    peak_memory,
    ratios,
    time_interleaved,
    training_step,
    two_steps,
)
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.methods import check_method
from automix.runs.classifier import WithNormalization

PLAIN = "vanilla"


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
    """Measure the cost of a classifier, and of training it by a method as a multiple of plain training.

    Args:
        model: Classifier; training happens on copies of it.
        num_classes: Its number of classes.
        image_size: Side of the images in pixels.
        method: Name of the method.
        method_options: Options of the method.
        batch_size: Images per training step.
        steps: How many steps are timed.
        seed: Seed of the noise, of new layers and of dropout.
        track: Progress display, such as `progress_bar`.

    Returns:
        ``parameters_m``, ``extra_parameters_m``, ``gmacs``, ``step_ratio`` and, on CUDA and the CPU, ``memory_ratio``.
    """
    numbers = {"num_classes": num_classes, "image_size": image_size, "batch_size": batch_size, "steps": steps}
    for name, value in numbers.items():
        check_whole(name, value, 1)
    check_method(method)
    network = model.model if isinstance(model, WithNormalization) else model  # methods use its layers
    device = next(network.parameters()).device
    with _own_randomness(device, seed):
        macs = count_macs(network, num_classes, image_size)
        plain = partial(new_task, PLAIN, network, seed=seed)
        mixing = partial(new_task, method, network, seed=seed, **(method_options or {}))
        batch = partial(noise, network, num_classes, image_size, batch_size, seed)
        task = mixing()
        extra, share = extra_parameters(task), task.mixed_share
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
        notes += [f"the peak memory on {device.type} is not known; it is measured on cuda and cpu"]
    else:
        values["memory_ratio"] = mixing_bytes / plain_bytes
        notes += [f"plain training held up to {plain_bytes / 1e6:.0f} MB"]
    return EvaluationResult(values, {"efficiency": partial(draw_ratios, values, method)}, tuple(notes))


@contextmanager
def _own_randomness(device: torch.device, seed: int) -> Iterator[None]:
    """Keep torch's global generators as they are: new layers and dropout draw from them."""
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        yield


def draw_ratios(values: dict[str, float], method: str) -> Image.Image:
    """Draw time and memory of a training step as multiples of a plain one."""
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
