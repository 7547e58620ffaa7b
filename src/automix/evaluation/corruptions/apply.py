"""One corruption of a batch of images, by name and severity."""

from collections.abc import Callable

import torch
from torch import Tensor

from automix.core.validation import unknown_name
from automix.evaluation.corruptions import blur, digital, noise, spatter, weather
from automix.evaluation.corruptions.severities import NAMES, STRONGEST, severity_table

SMALLEST = 8  # px: smaller images have no room for the neighbors that some corruptions look at

CORRUPTIONS: dict[str, Callable[..., Tensor]] = {
    name: next(getattr(file, name) for file in (noise, blur, weather, digital, spatter) if hasattr(file, name))
    for name in NAMES
}


def corrupt(images: Tensor, name: str, severity: int, *, generator: torch.Generator) -> Tensor:
    """`images` (N, 3, H, W) uint8 after corruption `name` (see `NAMES`) at `severity` 1 to 5; 0 leaves them.

    The strengths are the published ones, of CIFAR-C below 64 px, of Tiny-ImageNet-C below 128 px, else of ImageNet-C
    (the shorter side counts). Results are cut to 0 to 255 and rounded down to whole numbers, as in the original.
    """
    check_names([name])
    check_severities([severity])
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.uint8 or min(images.shape[2:]) < SMALLEST:
        raise ValueError(
            f"images of shape {tuple(images.shape)} and type {images.dtype}: accepted is uint8 of shape (N, 3, H, W), "
            f"{SMALLEST} px or more"
        )
    if severity == 0 or len(images) == 0:
        return images.clone()
    _, table = severity_table(min(images.shape[2:]))
    pixels = CORRUPTIONS[name](images / 255, generator, *table[name][severity - 1])
    return (pixels.clamp(0, 1) * 255 + 1e-3).floor().byte()  # a float may be a little below its whole number


def check_names(names: object) -> None:
    """Raise a one-line ValueError unless `names` are some of `NAMES`."""
    if not isinstance(names, list | tuple) or not names:
        raise ValueError(f"names={names!r}: accepted is a list of names of corruptions")
    for name in names:
        if name not in NAMES:
            raise unknown_name("corruption", str(name), NAMES)


def check_severities(severities: object, least: int = 0) -> None:
    """Raise a one-line ValueError unless `severities` are whole numbers up to 5."""
    accepted = range(least, STRONGEST + 1)
    if not isinstance(severities, list | tuple) or not severities:
        raise ValueError(f"severities={severities!r}: accepted is a list of numbers {least} to {STRONGEST}")
    for severity in severities:
        if isinstance(severity, bool) or not isinstance(severity, int) or severity not in accepted:
            raise ValueError(f"severity={severity!r}: accepted are whole numbers {least} to {STRONGEST}")
