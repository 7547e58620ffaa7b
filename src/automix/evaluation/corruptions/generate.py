"""Corrupted test images generated from a test set, in memory or as files."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from automix.core.draws import step_generator
from automix.core.errors import AutomixError
from automix.core.files import write_atomically
from automix.evaluation.corruptions.apply import SMALLEST, check_names, corrupt
from automix.evaluation.corruptions.severities import NAMES, STRONGEST
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.samples import Samples

PART = 100  # images that share a generator, whatever the batch size


def corrupt_part(images: Tensor, part: int, name: str, severity: int) -> Tensor:
    """Corrupt part number 0, 1, ... of a test set, PART images in each, with the same random numbers in every call."""
    generator = step_generator(0, part, severity, stream=f"corruption {name}")
    return corrupt(images, name, severity, generator=generator)


def check_samples(samples: Samples) -> None:
    """Raise an AutomixError unless there are images, and large enough ones."""
    if len(samples) == 0:
        raise AutomixError("samples must have at least 1 image, got 0")
    if samples.image_size < SMALLEST:
        raise AutomixError(f"samples must have images of {SMALLEST} px or more, got {samples.image_size} px")


def write_cifar_c(
    samples: Samples, folder: Path | str, names: Sequence[str] | None = None, *, track: Track = no_progress
) -> Path:
    """Write corrupted test images in the layout of CIFAR-10-C.

    There is a file <name>.npy for each corruption, (5 N, S, S, 3) uint8, severity 1 first, and labels.npy with 5 N
    numbers. These are the images that `evaluate_corruptions` generates.

    Args:
        samples: The test images.
        folder: New or empty.
        names: Names of the corruptions; all 19 if not given.
        track: Progress display, such as `progress_bar`.

    Returns:
        The folder.
    """
    names = NAMES if names is None else names
    check_names(names)
    check_samples(samples)
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise AutomixError(f"{folder}: not an empty folder; give a new or an empty one")
    folder.mkdir(parents=True, exist_ok=True)
    labels = torch.cat([part.labels for part in samples.parts(PART)]).numpy()
    kind = np.uint8 if len(samples.classes) <= 256 else np.int64
    stacked = np.tile(labels.astype(kind), STRONGEST)
    write_atomically(folder / "labels.npy", lambda path: np.save(path, stacked))
    for name in track(names, len(names), "writing corruptions"):
        write_atomically(folder / f"{name}.npy", partial(_write, samples=samples, name=name))
    return folder


def _write(path: Path, samples: Samples, name: str) -> None:
    count, size = len(samples), samples.image_size
    stored = np.lib.format.open_memmap(path, "w+", np.uint8, (STRONGEST * count, size, size, 3))
    for number, part in enumerate(samples.parts(PART)):
        for severity in range(1, STRONGEST + 1):
            start = (severity - 1) * count + number * PART
            corrupted = corrupt_part(part.images, number, name, severity)
            stored[start : start + len(corrupted)] = corrupted.permute(0, 2, 3, 1).numpy()
    stored.flush()
