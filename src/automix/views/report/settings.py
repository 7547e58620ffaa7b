"""Configurations, first in what they differ, and versions."""

import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from automix._version import __version__
from automix.views.report.groups import Group, differences, show
from automix.views.report.markup import Markup, element, join

PACKAGES = ("torch", "torchvision", "timm", "pillow")


def configurations(groups: Sequence[Group]) -> Markup:
    """What differs, as a table; the whole files folded."""
    parts: list[str] = []
    columns = differences(groups)
    if columns:
        head = element("tr", *(element("th", name, scope="col") for name in ("", *columns)))
        rows = [
            element("tr", element("th", group.label, scope="row"),
                    *(element("td", show(values[place])) for values in columns.values()))
            for place, group in enumerate(groups)
        ]  # fmt: skip
        parts.append(element("h3", "What differs"))
        table = element("table", element("thead", head), element("tbody", *rows), class_="words")
        parts.append(element("div", table, class_="scroll"))
    elif len(groups) > 1:
        parts.append(element("p", "The configurations do not differ."))
    for group in groups:
        for run in group.runs:
            about = f"The whole configuration of {run.name}, seed {run.seed}"
            parts.append(element("details", element("summary", about), element("pre", run.config_text)))
    return join(parts)


def versions(groups: Sequence[Group]) -> Markup:
    """What each run was trained with, as far as its files say so, and what made this page."""
    runs = [run for group in groups for run in group.runs]
    told: dict[str, list[str]] = {}
    for run in runs:
        text = ", ".join(f"{name} {value}" for name, value in sorted(run.versions.items())) or "not known"
        told.setdefault(text, []).append(run.name)
    rows = []
    for text, names in told.items():
        who = "Trained with" if len(told) == 1 else ", ".join(names)
        rows.append(element("tr", element("th", who, scope="row"), element("td", text)))
    here = [f"automix {__version__}", f"Python {platform.python_version()}", *_packages()]
    rows.append(element("tr", element("th", "This page", scope="row"), element("td", ", ".join(here))))
    return element("div", element("table", element("tbody", *rows), class_="words"), class_="scroll")


def _packages() -> list[str]:
    found = []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return found
