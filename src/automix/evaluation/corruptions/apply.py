"""One corruption of a batch of images, by name and severity."""

from collections.abc import Callable

import torch
from torch import Tensor

from automix.core.errors import AutomixError
from automix.core.validation import unknown_name
from automix.evaluation.corruptions import blur, digital, noise, spatter, weather
from automix.evaluation.corruptions.severities import NAMES, STRONGEST, severity_table

SMALLEST = 8  # px: some corruptions use neighbors that smaller images do not have

CORRUPTIONS: dict[str, Callable[..., Tensor]] = {
    name: next(getattr(file, name) for file in (noise, blur, weather, digital, spatter) if hasattr(file, name))
    for name in NAMES
}


def corrupt(images: Tensor, name: str, severity: int, *, generator: torch.Generator) -> Tensor:
    """Corrupt a batch of images.

    The strengths are the published ones, of CIFAR-C below 64 px, of Tiny-ImageNet-C below 128 px, else of ImageNet-C
    (the shorter side counts). Results are clipped to 0 to 255 and rounded down, as in the original.

    Args:
        images: ``(N, 3, H, W)`` uint8, 8 px or more.
        name: One of `NAMES`.
        severity: From 1 to 5; 0 returns a copy.
        generator: Source of randomness.

    Returns:
        The corrupted images, in the shape of `images`.
    """
    check_names([name])
    check_severities([severity])
    if images.ndim != 4 or images.shape[1] != 3 or images.dtype != torch.uint8 or min(images.shape[2:]) < SMALLEST:
        raise AutomixError(
            f"images must be uint8 of shape (N, 3, H, W), {SMALLEST} px or more, got {images.dtype} of shape "
            f"{tuple(images.shape)}"
        )
    if severity == 0 or len(images) == 0:
        return images.clone()
    _, table = severity_table(min(images.shape[2:]))
    pixels = CORRUPTIONS[name](images / 255, generator, *table[name][severity - 1])
    return (pixels.clamp(0, 1) * 255 + 1e-3).floor().byte()  # a float may be a little below its whole number


def check_names(names: object) -> None:
    """Raise an AutomixError unless `names` are some of `NAMES`."""
    if not isinstance(names, list | tuple) or not names:
        raise AutomixError(f"names must be a list of names of corruptions, got {names!r}")
    for name in names:
        if name not in NAMES:
            raise unknown_name("corruption", str(name), NAMES)


def check_severities(severities: object, least: int = 0) -> None:
    """Raise an AutomixError unless `severities` are whole numbers from `least` to 5."""
    accepted = range(least, STRONGEST + 1)
    if not isinstance(severities, list | tuple) or not severities:
        raise AutomixError(f"severities must be a list of numbers in [{least}, {STRONGEST}], got {severities!r}")
    for severity in severities:
        if isinstance(severity, bool) or not isinstance(severity, int) or severity not in accepted:
            raise AutomixError(f"severity must be a whole number in [{least}, {STRONGEST}], got {severity!r}")
