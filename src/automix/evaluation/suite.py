"""The evaluators by name, as `automix evaluate` and `automix.evaluate` run them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from automix.core.validation import unknown_name
from automix.evaluation.accuracy import evaluate_accuracy
from automix.evaluation.attacks import STEPS, evaluate_attacks
from automix.evaluation.calibration import evaluate_calibration
from automix.evaluation.cam_panels import cam_panels
from automix.evaluation.corruptions.accuracy import SEVERITIES, evaluate_corruptions
from automix.evaluation.corruptions.folders import open_corrupted
from automix.evaluation.corruptions.severities import NAMES
from automix.evaluation.efficiency import evaluate_efficiency
from automix.evaluation.inputs import open_inputs
from automix.evaluation.localization import evaluate_localization
from automix.evaluation.mixed import LAMS, evaluate_mixed
from automix.evaluation.progress import Track, no_progress
from automix.evaluation.result import EvaluationResult
from automix.evaluation.results_file import write_result
from automix.evaluation.samples import BATCH
from automix.evaluation.session import Session
from automix.runs.folder import Which

ALL = "all"
DEFAULT = ("accuracy", "calibration")


@dataclass(frozen=True)
class Skipped:
    """An evaluator that the classifier or its data does not allow.

    Attributes:
        reason: What is missing.
    """

    reason: str


@dataclass(frozen=True)
class Passes:
    """What an evaluator runs.

    Attributes:
        count: Passes of the classifier over all test images, at most.
        with_gradients: How many of them have a backward pass.
        detail: What the passes are, in a few words.
        of_samples: Whether the images are the session's, so that fewer of them take less time.
    """

    count: int
    with_gradients: int = 0
    detail: str = ""
    of_samples: bool = True


@dataclass(frozen=True)
class Evaluator:
    """An evaluator of the suite.

    Attributes:
        about: What it measures, in a few words.
        run: Evaluates.
        passes: Counts the passes over the test images, those of the shared predictions apart.
        missing: Says what the classifier or its data lacks for it; empty if nothing.
        in_all: Whether ``"all"`` includes it.
        uses_predictions: Whether it uses the shared predictions.
    """

    about: str
    run: Callable[[Session], EvaluationResult]
    passes: Callable[[Session], Passes] = lambda session: Passes(0)
    missing: Callable[[Session], str] = lambda session: ""
    in_all: bool = True
    uses_predictions: bool = True


def evaluate(
    run: str | Path,
    on: str | Sequence[str] = DEFAULT,
    *,
    data: str | None = None,
    data_root: str | None = None,
    which: Which = "last",
    weights: str | None = None,
    images: int | None = None,
    corrupted: str | Path | None = None,
    severities: Sequence[int] | None = None,
    squeeze: bool = False,
    batch_size: int = BATCH,
    device: torch.device | str = "auto",
    out: str | Path | None = None,
    track: Track = no_progress,
) -> dict[str, EvaluationResult]:
    """Evaluate a trained run, a classifier's file, or a network of timm's.

    Args:
        run: A run folder, a classifier's file, or the name of a network of timm's.
        on: Names of evaluators: accuracy, calibration, corruptions, attacks, mixed, localization, efficiency; or
            ``"all"``, which leaves out efficiency and those that the run and its data do not allow.
        data: Name or folder of a dataset; the one that the classifier was trained on if not given.
        data_root: Where named datasets are.
        which: The weights of a run after the last epoch, or those with the highest test accuracy.
        weights: A file or folder of weights for a network given by name; pretrained weights if not given.
        images: Use this many test images only, of as many classes as possible.
        corrupted: A folder in the layout of CIFAR-C or ImageNet-C; corrupted images are generated if not given.
        severities: Severities of the corruptions, from 1 to 5. If not given, all of them on a named dataset, and 3
            alone on a folder.
        squeeze: Squeeze images into a square for the localization, as Choe et al. do, instead of cropping the center.
        batch_size: Images per forward pass.
        device: Where the classifier runs; ``"auto"`` for the first accelerator there is.
        out: Write values and pictures into this folder; nothing is written if not given.
        track: Progress display, such as `progress_bar`.

    Returns:
        Results by evaluator.
    """
    from automix.training.hardware import choose_device

    names = [on] if isinstance(on, str) else list(on)
    select_evaluators(names)  # an unknown name is refused before a network is built
    device = choose_device(device) if isinstance(device, str) else device
    inputs = open_inputs(
        run, data=data, data_root=data_root, weights=weights, which=which, images=images, device=device
    )
    session = Session(
        inputs,
        batch_size,
        None if corrupted is None else Path(corrupted),
        squeeze=squeeze,
        track=track,
        severities=None if severities is None else tuple(severities),
    )
    results = {}
    for name, result in run_evaluators(session, names):
        if isinstance(result, EvaluationResult):
            results[name] = result
            if out is not None:
                write_result(Path(out), inputs, name, result)
    return results


def select_evaluators(names: Sequence[str]) -> list[str]:
    """Put names of evaluators in order.

    Args:
        names: Names of EVALUATORS, or ``"all"``.

    Returns:
        Each name once, in the order of EVALUATORS; with ``"all"`` also those that it does not include.
    """
    for name in names:
        if name != ALL and name not in EVALUATORS:
            raise unknown_name("evaluation", name, [*EVALUATORS, ALL])
    return [name for name in EVALUATORS if ALL in names or name in names]


def run_evaluators(session: Session, names: Sequence[str]) -> Iterator[tuple[str, EvaluationResult | Skipped]]:
    """Run evaluators one after the other.

    Args:
        session: What they share.
        names: Names of EVALUATORS. With ``"all"``, those that the session does not allow are skipped, and those that
            it does not include unless they are named beside it.

    Yields:
        The name of each evaluator, and its result or why it was skipped.
    """
    for name, skipped in choose_evaluators(session, names).items():
        yield name, skipped or EVALUATORS[name].run(session)


def choose_evaluators(session: Session, names: Sequence[str]) -> dict[str, Skipped | None]:
    """Decide which evaluators run.

    Args:
        session: What they share.
        names: As `run_evaluators` takes them.

    Returns:
        By name why an evaluator is skipped; None if it runs.
    """
    chosen: dict[str, Skipped | None] = {}
    for name in select_evaluators(names):
        evaluator = EVALUATORS[name]
        chosen[name] = None
        if ALL in names and not evaluator.in_all and name not in names:
            chosen[name] = Skipped(f"it is not part of {ALL!r}; --on {ALL} {name} adds it")
        elif ALL in names and (missing := evaluator.missing(session)):
            chosen[name] = Skipped(missing)
    return chosen


def _accuracy(session: Session) -> EvaluationResult:
    return evaluate_accuracy(*session.classifier_and_samples, predictions=session.predictions)


def _calibration(session: Session) -> EvaluationResult:
    return evaluate_calibration(*session.classifier_and_samples, predictions=session.predictions)


def _corruptions(session: Session) -> EvaluationResult:
    chosen = session.chosen_severities
    result = evaluate_corruptions(
        *session.classifier_and_samples,
        folder=session.corrupted,
        severities=chosen,
        predictions=session.predictions,
        **session.options,
    )
    if session.severities is not None or chosen == SEVERITIES:
        return result
    every = " ".join(map(str, SEVERITIES))
    return replace(result, notes=(*result.notes, f"one severity of five; --severities {every} measures all of them"))


def _corruption_passes(session: Session) -> Passes:
    severities = session.chosen_severities
    names: Sequence[str] = NAMES
    if session.corrupted is not None:
        names = open_corrupted(session.corrupted, None, severities, session.inputs.samples.classes).names
    detail = f"{_counted(len(names), 'corruption')} x {_counted(len(severities), 'severity', 'severities')}"
    return Passes(len(names) * len(severities), detail=detail, of_samples=session.corrupted is None)


def _attacks(session: Session) -> EvaluationResult:
    return evaluate_attacks(*session.classifier_and_samples, predictions=session.predictions, **session.options)


def _attack_passes(session: Session) -> Passes:
    """A gradient for FGSM and for every step of PGD, and a prediction after each of the two."""
    return Passes(STEPS + 3, with_gradients=STEPS + 1, detail=f"FGSM, PGD-{STEPS}")


def _mixed(session: Session) -> EvaluationResult:
    mixers = session.mixers.by_name
    result = evaluate_mixed(*session.classifier_and_samples, mixers, predictions=session.predictions, **session.options)
    pictures = dict(result.pictures)
    if session.has_cam:
        pictures["cam-panels"] = lambda: cam_panels(*session.classifier_and_samples, mixers)
    return EvaluationResult(result.values, pictures, (*result.notes, *session.mixers.notes), result.series)


def _mixed_passes(session: Session) -> Passes:
    """At most: where a mixer returns the images unchanged, at lam 0 and 1, the predictions are known."""
    mixers = session.mixers.by_name
    return Passes(len(mixers) * len(LAMS), detail=f"{', '.join(mixers)} at {len(LAMS)} lam")


def _localization(session: Session) -> EvaluationResult:
    return evaluate_localization(*session.classifier_and_samples, squeeze=session.squeeze, **session.options)


def _no_boxes_or_maps(session: Session) -> str:
    if not session.inputs.samples.has_boxes:
        return "the data has no boxes"
    return "" if session.has_cam else "the network has no class activation maps"


def _efficiency(session: Session) -> EvaluationResult:
    """Of the run's method on the run's network; of AutoMix on any other network."""
    config = session.inputs.config
    method, options = ("automix", {}) if config is None else (config.method, config.effective_options)
    return evaluate_efficiency(
        session.inputs.classifier.model,
        method=method,
        method_options=options,
        num_classes=len(session.inputs.card.classes),
        image_size=session.inputs.card.train_size,
        track=session.track,
    )


def _counted(count: int, one: str, many: str = "") -> str:
    return f"{count} {one if count == 1 else many or one + 's'}"


EVALUATORS = {
    "accuracy": Evaluator("top-1, top-5, the worst classes", _accuracy),
    "calibration": Evaluator("ECE and reliability, temperature scaling, Brier, NLL", _calibration),
    "corruptions": Evaluator(
        "19 corruptions x 5 severities, generated or read from a folder", _corruptions, _corruption_passes
    ),
    "attacks": Evaluator("FGSM and PGD-20 at 8/255", _attacks, _attack_passes),
    "mixed": Evaluator("are both images of a mixed sample recognized, over lam", _mixed, _mixed_passes),
    "localization": Evaluator(
        "MaxBoxAccV2 of class activation maps",
        _localization,
        lambda session: Passes(1, detail="class activation maps"),
        _no_boxes_or_maps,
        uses_predictions=False,
    ),
    "efficiency": Evaluator(
        "parameters, MACs, step time and memory beside vanilla's", _efficiency, in_all=False, uses_predictions=False
    ),
}
"""The evaluators by name, in the order in which they run."""
