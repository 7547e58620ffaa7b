"""The page: one HTML file that needs nothing else, neither a network nor a script."""

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

from automix.views.report.content import Content, choose_pictures
from automix.views.report.curves import chart, number
from automix.views.report.evaluations import evaluations
from automix.views.report.gather import RunRecord
from automix.views.report.groups import Group, group_runs
from automix.views.report.images import Album
from automix.views.report.markup import Markup, element, join
from automix.views.report.panels import Drawing, drawings
from automix.views.report.results import comparison, facts, headline, notices, swatch, title
from automix.views.report.samples import mixed_samples
from automix.views.report.settings import configurations, versions

LIMIT = 4_900_000  # bytes of a page with its pictures
CAPTION = 1000  # bytes, more than a picture's words have


def render(runs: Sequence[RunRecord]) -> str:
    """The page on `runs`, one or more."""
    groups = group_runs(runs)
    contents = choose_pictures(groups)
    pictures = [picture for content in contents for picture in content.pictures()]
    words = len(_page(groups, contents, Album([], 0)).encode()) + CAPTION * len(pictures)
    return _page(groups, contents, Album(pictures, max(LIMIT - words, 0) * 3 // 4))  # base64 makes four of three


def _page(groups: Sequence[Group], contents: Sequence[Content], album: Album) -> str:
    sections = {
        "Comparison": comparison(groups) if len(groups) > 1 else Markup(),
        "Curves": _curves(groups),
        "Mixed samples": mixed_samples(contents, album),
        "Evaluations": evaluations(contents, album),
        "Configuration": configurations(groups),
        "Versions": versions(groups),
    }
    sections = {name: content for name, content in sections.items() if content}
    heading = title(groups)
    links = [element("a", name, href=f"#{_anchor(name)}") for name in sections]
    body = [
        element("header", element("h1", heading), headline(groups), notices(groups, album.problems), facts(groups)),
        element("nav", *links),
        element("main", *(_section(name, content) for name, content in sections.items())),
        element("footer", "Made by automix report from ", join(_folders(groups), ", "), class_="quiet"),
    ]
    return _document(heading, body)


def _folders(groups: Sequence[Group]) -> list[str]:
    return [element("code", str(run.folder)) for group in groups for run in group.runs]


def _anchor(name: str) -> str:
    return name.lower().replace(" ", "-")


def _section(name: str, content: Markup) -> Markup:
    return element("section", element("h2", name), content, id=_anchor(name))


def _curves(groups: Sequence[Group]) -> Markup:
    drawn = drawings(groups)
    if not drawn:
        command = " ".join(str(run.folder) for group in groups for run in group.runs)
        return element("p", "No epoch is finished yet; later, ", element("code", f"automix report {command}"),
                       " draws the curves.", class_="quiet")  # fmt: skip
    compared = len(groups) > 1
    parts: list[str] = []
    if compared:
        styles = {series.name: series.style for drawing in drawn for series in drawing.series}
        parts.append(element("ul", *(element("li", swatch(s), n) for n, s in styles.items()), class_="legend shared"))
    if any(len(group.runs) > 1 for group in groups):
        parts.append(element("p", "Lines are means over the seeds, bands mean ± standard deviation (n - 1), up to "
                             "where the shortest run has come.", class_="quiet"))  # fmt: skip
    shown, folded = ([_figure(one, compared) for one in drawn if one.first == first] for first in (True, False))
    parts.append(element("div", *shown, class_="charts"))
    if folded:
        more = element("div", *folded, class_="charts")
        parts.append(element("details", element("summary", f"{len(folded)} more curves"), more))
    return join(parts)


def _figure(drawing: Drawing, compared: bool) -> Markup:
    """A chart with its names and last values below it; in a comparison the section has them all."""
    caption = element("h4", drawing.title), element("div", drawing.note, class_="note")
    plot = element("div", chart(drawing.series, drawing.title, log=drawing.log), class_="plot")
    lines = [
        element("li", swatch(series.style), series.name, " ", element("b", number(series.points[-1][1])))
        for series in drawing.series
        if not compared
    ]
    return element("figure", *caption, plot, element("ul", *lines, class_="legend"))


def _document(heading: str, body: list[Markup]) -> str:
    """The frame. The policy lets nothing be fetched, and no script run but the one that is named by its hash."""
    style, script = (Markup(_asset(name)) for name in ("style.css", "hover.js"))
    policy = f"default-src 'none'; img-src data:; style-src {_hash(style)}; script-src {_hash(script)}"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{heading} - automix report"),
        element("style", style),
    )
    return (
        "<!doctype html>\n" + element("html", head, element("body", *body, element("script", script)), lang="en") + "\n"
    )


def _asset(name: str) -> str:
    return files("automix.views.report").joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
