"""The evaluations of RUN/evaluation: values of all groups in a table, notes, pictures."""

import shlex
from collections.abc import Sequence
from typing import Any

from automix.evaluation.suite import EVALUATORS
from automix.views.report.content import Content
from automix.views.report.gather import words
from automix.views.report.groups import Group
from automix.views.report.images import Album
from automix.views.report.markup import Markup, element, join
from automix.views.report.results import spread
from automix.views.report.samples import plate

CAPTIONS = {
    "reliability": "Reliability diagram: accuracy over confidence, as it is and after temperature scaling",
    "corruptions": "Top-1 accuracy by corruption and severity",
    "cam-panels": "Class activation maps of the two most probable classes, on mixed samples",
    "accuracy-by-class": "Accuracy by class",
    "mixed": "Recognized in mixed samples, over lam",
    "localization_curve": "Localization over the threshold of the map",
    "localization_panel": "Boxes of class activation maps beside the true ones",
    "efficiency": "Step time and memory beside plain training",
}
WIDE = 700  # px: wider pictures scroll in their frames on a phone


def evaluations(contents: Sequence[Content], album: Album) -> Markup:
    """One part for each evaluator that any run has, in the order in which the suite has them."""
    present = {name for content in contents for name in content.evaluations}
    names = [name for name in EVALUATORS if name in present] + sorted(present - EVALUATORS.keys())
    return join([*(_part(name, contents, album) for name in names), missing([content.group for content in contents])])


def missing(groups: Sequence[Group]) -> Markup:
    """The commands that would add what is not there."""
    lines = []
    for group in groups:
        done = {name for run in group.runs for name in run.evaluations}
        lacking = [name for name in EVALUATORS if name not in done]
        if lacking:
            on = "all" if not done else " ".join(lacking)
            command = element("code", f"automix evaluate {shlex.quote(str(group.first.folder))} --on {on}")
            lines.append(element("p", "Not evaluated: " if done else "No evaluation yet: ", command,
                                 f" adds {', '.join(lacking)}.", class_="quiet"))  # fmt: skip
    if len(lines) > 3:
        return element("details", element("summary", "Commands that would add what is missing"), *lines)
    return join(lines)


def _part(name: str, contents: Sequence[Content], album: Album) -> Markup:
    having = [content for content in contents if name in content.evaluations]
    about = EVALUATORS[name].about if name in EVALUATORS else ""
    plates = []
    for content in having:
        found = content.evaluations[name]
        whose = f"{content.group.label}, seed {found.run.seed}: " if len(contents) > 1 else ""
        for stem, picture in found.pictures.items():
            shown = album[picture]
            wide = shown is not None and shown.width > WIDE
            plates.append(plate(album, picture, whose + CAPTIONS.get(stem, stem), wide=wide))
    table = element("div", _table(name, [content.group for content in having]), *_notes(name, having, contents))
    body = element("div", table, element("div", *plates, class_="plates"),
                   class_="evaluation beside" if len(having) == 1 else "evaluation")  # fmt: skip
    heading = element("h3", name.capitalize(), " ", element("span", about, class_="quiet"))
    return element("section", heading, body, id=f"evaluation-{name}")


def _table(name: str, groups: Sequence[Group]) -> Markup:
    """A row for each value, a column for each group; mean +- std over the seeds that were evaluated."""
    values = list(
        dict.fromkeys(value for group in groups for entry in _entries(name, group) for value in entry["values"])
    )
    rows = []
    for value in values:
        cells = []
        for group in groups:
            found = [entry["values"][value] for entry in _entries(name, group) if value in entry["values"]]
            cells.append(element("td", spread(found) or "-"))
        rows.append(element("tr", element("th", value, scope="row"), *cells))
    labels = ["", *(group.label for group in groups)] if len(groups) > 1 else ["value", ""]
    head = element("thead", element("tr", *(element("th", label, scope="col") for label in labels)))
    return element("div", element("table", head, element("tbody", *rows)), class_="scroll")


def _notes(name: str, having: Sequence[Content], contents: Sequence[Content]) -> list[str]:
    """What was measured on what, and the evaluator's notes; each once, with whose it is where they differ."""
    whose: dict[str, list[str]] = {}
    for content in having:
        for entry in _entries(name, content.group):
            measured = f"{entry.get('images', '?')} test images of {entry.get('data', '?')}"
            for note in (measured, *words(entry.get("notes"))):
                labels = whose.setdefault(note, [])
                if content.group.label not in labels:
                    labels.append(content.group.label)
    notes: list[str] = []
    for note, labels in whose.items():
        prefix = "" if len(labels) == len(having) else f"{', '.join(labels)}: "
        notes.append(element("p", prefix, note, class_="note"))
    if 0 < len(having) < len(contents):
        absent = [content.group.label for content in contents if content not in having]
        notes.append(element("p", f"Not measured: {', '.join(absent)}", class_="note"))
    return notes


def _entries(name: str, group: Group) -> list[dict[str, Any]]:
    return [run.evaluations[name] for run in group.runs if name in run.evaluations]
