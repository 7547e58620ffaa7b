"""The page: one HTML file that needs neither other files nor a network, and no script to be read."""

import base64
import hashlib
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from markupsafe import Markup

from automix.core.errors import AutomixError
from automix.views.html import render_template
from automix.views.report import summary
from automix.views.report.album import Album
from automix.views.report.comparison import compare
from automix.views.report.evaluations import error_plates, evaluation_sections, missing_evaluations
from automix.views.report.groups import Group, differences, group_runs, setting_text
from automix.views.report.panels import draw_panels
from automix.views.report.pictures import GroupPictures, choose_pictures
from automix.views.report.run_record import read_run
from automix.views.report.samples import sample_sections
from automix.views.report.versions import versions

PACKAGE = "automix.views.report"
PAGE_LIMIT = 4_900_000  # bytes of a page with its pictures
CAPTION = 1000  # bytes, more than the markup around a picture takes

SECTIONS = {
    "Comparison": "comparison.html.jinja",
    "Errors": "errors.html.jinja",
    "Mixed samples": "samples.html.jinja",
    "Curves": "curves.html.jinja",
    "Evaluations": "evaluations.html.jinja",
    "Configuration": "settings.html.jinja",
    "Versions": "versions.html.jinja",
}


def render_report(folders: Sequence[Path]) -> str:
    """Render an HTML page on one or more runs.

    Runs that differ in nothing but the seed are taken together. A file that is missing or damaged is left out, and the
    page names it.

    Args:
        folders: Run folders, at least one. A folder that is given twice counts once.

    Returns:
        The page, less than 5 MB. It needs no other file, no network and no script.

    Raises:
        AutomixError: One of the folders holds no run.
    """
    if not folders:
        raise AutomixError("folders must name one run or more, got none")
    distinct = {folder.resolve(): folder for folder in reversed(folders)}  # the first spelling of each is kept
    groups = group_runs([read_run(folder) for folder in reversed(distinct.values())])
    chosen = choose_pictures(groups)
    pictures = [picture for one in chosen for picture in one.all()]
    text_size = len(_render(groups, chosen, Album([], 0)).encode()) + CAPTION * len(pictures)
    return _render(groups, chosen, Album(pictures, max(PAGE_LIMIT - text_size, 0) * 3 // 4))  # base64: 3 bytes take 4


def _render(groups: Sequence[Group], chosen: Sequence[GroupPictures], album: Album) -> str:
    style, script = (Markup(_asset(name)) for name in ("style.css", "hover.js"))
    drawings = draw_panels(groups)
    page = render_template(
        PACKAGE,
        "page.html.jinja",
        style=style,
        script=script,
        hashes={"style": _hash(style), "script": _hash(script)},
        sections={name: file for name, file in SECTIONS.items() if name != _needless(groups)},
        groups=groups,
        runs=[run for group in groups for run in group.runs],
        **_header(groups, album.problems),
        comparison=compare(groups),
        drawings=drawings,
        shared_legend={name: style for drawing in drawings for name, style, _ in drawing.legend},
        samples=sample_sections(chosen, album),
        errors=error_plates(chosen, album),
        evaluate_command=f"automix evaluate {shlex.quote(str(groups[0].first.folder))}",
        evaluations=evaluation_sections(chosen, album),
        missing=missing_evaluations(groups),
        differences={name: [setting_text(value) for value in row] for name, row in differences(groups).items()},
        versions=versions(groups),
    )
    return str(page) + "\n"


def _needless(groups: Sequence[Group]) -> str:
    """The section that a page does not have: several configurations are compared, one has its errors shown."""
    return "Errors" if len(groups) > 1 else "Comparison"


def _header(groups: Sequence[Group], problems: Sequence[str]) -> dict[str, object]:
    ranked = summary.ranked(groups)
    return {
        "title": summary.title(groups),
        "ranked": ranked,
        "headline": summary.headline(groups),
        "furthest": summary.furthest_run(groups),
        "test_sets": summary.by_test_set(ranked),
        "notices": summary.notices(groups, problems),
        "facts": summary.facts(groups),
        "percent": summary.percent,
        "protocol": summary.protocol,
        "trial_count": summary.trial_count,
    }


def _asset(name: str) -> str:
    return files(PACKAGE).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """Name a script or style for the Content-Security-Policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
