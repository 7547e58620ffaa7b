"""The evaluators by name, as `automix evaluate` runs them, and the folder in which their results are kept."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from automix._version import __version__
from automix.core.files import write_atomically, write_text
from automix.core.validation import unknown_name
from automix.evaluation.accuracy import evaluate_accuracy
from automix.evaluation.attacks import evaluate_attacks
from automix.evaluation.calibration import evaluate_calibration
from automix.evaluation.cam import cam
from automix.evaluation.cam_panels import cam_panels
from automix.evaluation.corruptions.accuracy import evaluate_corruptions
from automix.evaluation.efficiency import evaluate_efficiency
from automix.evaluation.inputs import EvaluationInputs
from automix.evaluation.localization import evaluate_localization
from automix.evaluation.mixed import evaluate_mixed
from automix.evaluation.mixers import Mixer, method_mixer, task_mixer
from automix.evaluation.plots import NoPlotsError
from automix.evaluation.predictions import predict_logits
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.runs.folder import RunFolder
from automix.training.build import method_options

RESULTS = "results.json"
ALL = "all"
TRIPLES = ("vanilla", "comixup", "supermix")  # do not mix pairs
COMPARED = ("mixup", "cutmix")  # the mixers beside the run's own


@dataclass
class Session:
    """What the evaluators of one call share."""

    subject: EvaluationInputs
    batch_size: int = 100
    corrupted: Path | None = None  # a folder in the layout of CIFAR-C or ImageNet-C
    track: Track = no_progress

    @property
    def given(self) -> tuple[Any, Any]:
        return self.subject.classifier, self.subject.samples

    @property
    def common(self) -> dict[str, Any]:
        return {"batch_size": self.batch_size, "track": self.track}

    @cached_property
    def predictions(self) -> tuple[Tensor, Tensor]:
        """Logits and labels, for the evaluators that need nothing else."""
        return predict_logits(*self.given, **self.common)

    @cached_property
    def mixers(self) -> dict[str, Mixer]:
        """Mixup, CutMix, and the run's own where it learned one."""
        mixers = {name: method_mixer(name) for name in COMPARED}
        if self.subject.folder is not None and RunFolder(self.subject.folder).has_checkpoint:
            from automix.training.load import load_task

            task, card, config = load_task(self.subject.folder)
            if config.method not in TRIPLES:
                mixers[config.method] = task_mixer(task.to(self.subject.device), card.mean, card.std)
        return mixers


def _no_boxes_or_maps(session: Session) -> str:
    if not session.subject.samples.has_boxes:
        return "the data has no boxes"
    return "" if _has_cam(session) else "the network has no class activation maps"


def _has_cam(session: Session) -> bool:
    """Whether the network ends in pooling and a linear layer, tried on one image."""
    classifier, samples = session.given
    x, y = next(samples.batches(1, session.subject.device))
    try:
        cam(classifier, x, y.unsqueeze(1))
    except ValueError:
        return False
    return True


def _accuracy(session: Session) -> EvaluationResult:
    return evaluate_accuracy(*session.given, predictions=session.predictions)


def _calibration(session: Session) -> EvaluationResult:
    return evaluate_calibration(*session.given, predictions=session.predictions)


def _corruptions(session: Session) -> EvaluationResult:
    return evaluate_corruptions(*session.given, folder=session.corrupted, **session.common)


def _attacks(session: Session) -> EvaluationResult:
    return evaluate_attacks(*session.given, **session.common)


def _mixed(session: Session) -> EvaluationResult:
    found = evaluate_mixed(*session.given, session.mixers, **session.common)
    panels = {"cam-panels": lambda: cam_panels(*session.given, session.mixers)} if _has_cam(session) else {}
    return EvaluationResult(found.values, {**found.pictures, **panels}, found.notes)


def _localization(session: Session) -> EvaluationResult:
    return evaluate_localization(*session.given, **session.common)


def _efficiency(session: Session) -> EvaluationResult:
    """Of the run's method on the run's network; of AutoMix on any other network."""
    config = session.subject.config
    method, options = ("automix", {}) if config is None else (config.method, method_options(config))
    return evaluate_efficiency(
        session.subject.classifier.model,
        method=method,
        method_options=options,
        num_classes=len(session.subject.card.classes),
        image_size=session.subject.card.train_size,
        track=session.track,
    )


@dataclass(frozen=True)
class Evaluator:
    """`of` evaluates; `needs` says in a few words what the subject lacks for it, or nothing."""

    about: str
    of: Callable[[Session], EvaluationResult]
    needs: Callable[[Session], str] = lambda session: ""


EVALUATORS = {
    "accuracy": Evaluator("top-1, top-5, the worst classes", _accuracy),
    "calibration": Evaluator("ECE and reliability, temperature scaling, Brier, NLL", _calibration),
    "corruptions": Evaluator("19 corruptions x 5 severities, made or read from a folder", _corruptions),
    "attacks": Evaluator("FGSM and PGD-20 at 8/255", _attacks),
    "mixed": Evaluator("are both images of a mixed sample recognized, over lam", _mixed),
    "localization": Evaluator("MaxBoxAccV2 of class activation maps", _localization, _no_boxes_or_maps),
    "efficiency": Evaluator("parameters, MACs, step time and memory beside vanilla's", _efficiency),
}


def choose(names: Sequence[str]) -> list[str]:
    """The evaluators named, each once, in the order of EVALUATORS; "all" stands for every one."""
    for name in names:
        if name != ALL and name not in EVALUATORS:
            raise unknown_name("evaluation", name, [*EVALUATORS, ALL])
    return [name for name in EVALUATORS if ALL in names or name in names]


def evaluate(session: Session, names: Sequence[str]) -> Iterator[tuple[str, EvaluationResult | str]]:
    """Each evaluation with its name, one after the other.

    With "all", those that the subject is not made for are passed over, with a line that says why in place of values.
    """
    for name in choose(names):
        evaluator = EVALUATORS[name]
        if ALL in names and (lacking := evaluator.needs(session)):
            yield name, lacking
        else:
            yield name, evaluator.of(session)


def write(folder: Path, session: Session, name: str, found: EvaluationResult) -> tuple[str, ...]:
    """The pictures into `folder`, and the values into its results.json beside those of other evaluators.

    Each entry says on what it was measured, since a later call may use other images or weights. Returns the notes, with
    a word on the pictures that could not be drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures, notes = [], list(found.notes)
    try:
        for stem, draw in found.pictures.items():
            write_atomically(folder / f"{stem}.png", draw().save)
            pictures.append(f"{stem}.png")
    except NoPlotsError as error:
        notes.append(f"not all pictures are drawn: {error}")
    entry = {
        "values": found.values,
        "notes": notes,
        "pictures": pictures,
        "subject": session.subject.name,
        "data": session.subject.data,
        "images": len(session.subject.samples),
        "automix": __version__,
    }
    results = {**read_results(folder), name: entry}
    write_text(folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    return tuple(notes)


def read_results(folder: Path) -> dict[str, Any]:
    """What earlier calls left, by evaluator; nothing where there is no file."""
    path = folder / RESULTS
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); accepted is a file of automix evaluate, or none") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: no results in it; accepted is a file of automix evaluate, or none")
    return found
