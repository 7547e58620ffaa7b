"""The evaluations of the runs: values of all groups in one table per evaluator, with notes and pictures."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from automix.evaluation.suite import EVALUATORS
from automix.views.report.album import Album, Plate
from automix.views.report.groups import Group
from automix.views.report.numbers import mean_and_std
from automix.views.report.pictures import GroupPictures
from automix.views.report.run_record import strings

CAPTIONS = {
    "reliability": "Reliability diagram: accuracy over confidence, before and after temperature scaling",
    "corruptions": "Top-1 accuracy by corruption and severity",
    "attacks": "Images before and after FGSM and PGD, with the predicted classes",
    "cam-panels": "Class activation maps of the two most probable classes, on mixed samples",
    "accuracy-by-class": "Accuracy by class",
    "mixed": "Accuracy on mixed samples, over lam",
    "confusions": "The five pairs of classes that are confused most often, with the most confident errors",
    "confident-errors": "The test images that are wrong with the highest confidence",
    "confusion-matrix": "Confusion matrix, in percent of the images of the true class",
    "localization_curve": "Localization accuracy over the threshold of the class activation map",
    "localization_panel": "Boxes from class activation maps beside the annotated ones",
    "efficiency": "Step time and memory compared with plain training",
}
ERRORS = ("confusions", "confident-errors", "confusion-matrix")
"""Pictures of the evaluator `accuracy` that a page on one configuration has in a section of their own."""

WIDE = 700  # px: wider pictures scroll in their frames on a phone


@dataclass(frozen=True)
class EvaluationSection:
    """The results of one evaluator.

    Attributes:
        name: Name of the evaluator.
        description: What it measures.
        columns: Labels of the groups that were evaluated.
        rows: For each value, its name and the text of each column.
        notes: What was measured on which images, and the notes of the evaluator.
        plates: Its pictures.
    """

    name: str
    description: str
    columns: list[str]
    rows: list[tuple[str, list[str]]]
    notes: list[str]
    plates: list[Plate]


@dataclass(frozen=True)
class MissingEvaluations:
    """Evaluators that a group lacks, and the command that runs them."""

    names: list[str]
    command: str


def evaluation_sections(chosen: Sequence[GroupPictures], album: Album) -> list[EvaluationSection]:
    """One section for each evaluator that any run has, in the order of the suite."""
    present = {name for pictures in chosen for name in pictures.evaluations}
    names = [name for name in EVALUATORS if name in present] + sorted(present - EVALUATORS.keys())
    return [_section(name, chosen, album) for name in names]


def error_plates(chosen: Sequence[GroupPictures], album: Album) -> list[Plate]:
    """The pictures of what is wrong, of a page on one configuration."""
    if len(chosen) > 1 or "accuracy" not in chosen[0].evaluations:
        return []
    pictures = chosen[0].evaluations["accuracy"].pictures
    plates = [album.plate(pictures[stem], CAPTIONS[stem], wide_from=WIDE) for stem in ERRORS if stem in pictures]
    return [plate for plate in plates if plate is not None]


def missing_evaluations(groups: Sequence[Group]) -> list[MissingEvaluations]:
    """What has not been evaluated, by group."""
    missing = []
    for group in groups:
        done = {name for run in group.runs for name in run.evaluations}
        has_boxes = any(entry.get("has_boxes") is True for run in group.runs for entry in run.evaluations.values())
        possible = [name for name in EVALUATORS if has_boxes or name != "localization"]
        if names := [name for name in possible if name not in done]:
            arguments = "all" if not done else " ".join(names)
            command = f"automix evaluate {shlex.quote(str(group.first.folder))} --on {arguments}"
            missing.append(MissingEvaluations(names, command))
    return missing


def _section(name: str, chosen: Sequence[GroupPictures], album: Album) -> EvaluationSection:
    evaluated = [pictures for pictures in chosen if name in pictures.evaluations]
    groups = [pictures.group for pictures in evaluated]
    plates = []
    for pictures in evaluated:
        evaluation = pictures.evaluations[name]
        prefix = f"{pictures.group.label}, seed {evaluation.run.seed}: " if len(chosen) > 1 else ""
        elsewhere = ERRORS if len(chosen) == 1 else ()
        for stem, picture in evaluation.pictures.items():
            if stem in elsewhere:
                continue
            plates.append(album.plate(picture, prefix + CAPTIONS.get(stem, stem), wide_from=WIDE))
    return EvaluationSection(
        name=name,
        description=EVALUATORS[name].about if name in EVALUATORS else "",
        columns=[group.label for group in groups],
        rows=_rows(name, groups),
        notes=_notes(name, groups, [pictures.group for pictures in chosen]),
        plates=[plate for plate in plates if plate is not None],
    )


def _rows(name: str, groups: Sequence[Group]) -> list[tuple[str, list[str]]]:
    """Each value with its mean ± standard deviation over the seeds that were evaluated, for each group."""
    values = dict.fromkeys(value for group in groups for entry in _entries(name, group) for value in entry["values"])
    rows = []
    for value in values:
        by_group = [
            [entry["values"][value] for entry in _entries(name, group) if value in entry["values"]] for group in groups
        ]
        rows.append((value, [mean_and_std(results) or "-" for results in by_group]))
    return rows


def _notes(name: str, evaluated: Sequence[Group], groups: Sequence[Group]) -> list[str]:
    """Every note once, with the groups that it belongs to unless it belongs to all."""
    labels_of: dict[str, list[str]] = {}
    for group in evaluated:
        for entry in _entries(name, group):
            measured_on = f"{entry.get('images', '?')} test images of {entry.get('data', '?')}"
            for note in (measured_on, *strings(entry.get("notes"))):
                labels = labels_of.setdefault(note, [])
                if group.label not in labels:
                    labels.append(group.label)
    notes = [
        note if len(labels) == len(evaluated) else f"{', '.join(labels)}: {note}" for note, labels in labels_of.items()
    ]
    if 0 < len(evaluated) < len(groups):
        notes.append(f"Not measured: {', '.join(group.label for group in groups if group not in evaluated)}")
    return notes


def _entries(name: str, group: Group) -> list[dict[str, Any]]:
    return [run.evaluations[name] for run in group.runs if name in run.evaluations]
