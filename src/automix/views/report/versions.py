"""Versions of the packages that trained the runs and made the page."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from automix._version import __version__
from automix.views.report.groups import Group

PACKAGES = ("torch", "torchvision", "timm", "pillow")


def versions(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """The packages that each run was trained with, as far as its files tell, and those that made this page."""
    names_of: dict[str, list[str]] = {}
    for run in (run for group in groups for run in group.runs):
        text = ", ".join(f"{name} {value}" for name, value in sorted(run.versions.items())) or "not known"
        names_of.setdefault(text, []).append(run.name)
    rows = [("Trained with" if len(names_of) == 1 else ", ".join(names), text) for text, names in names_of.items()]
    here = [f"automix {__version__}", f"Python {platform.python_version()}", *_installed()]
    return [*rows, ("This page", ", ".join(here))]


def _installed() -> list[str]:
    installed = []
    for name in PACKAGES:
        try:
            installed.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return installed
