"""What evaluators will cost: passes over the test images, counted, and seconds, estimated from a few of the images."""

import time
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from automix.core.errors import AutomixError
from automix.evaluation.session import Session
from automix.evaluation.suite import EVALUATORS, Passes, Skipped, choose_evaluators

PREDICTIONS = "predictions"
FEW = 4  # timed images on a CPU; a GPU takes a whole batch in the time of a few images
SHARE = 12  # at most 1 in so many images is timed

Plan: TypeAlias = Mapping[str, Passes | Skipped]
"""By name of the evaluator what it will run, or why it is skipped; the shared predictions come first."""


def plan_evaluators(session: Session, names: Sequence[str]) -> dict[str, Passes | Skipped]:
    """Count what evaluators will run, without running them.

    Args:
        session: What they share.
        names: Names of EVALUATORS, or ``"all"``.

    Returns:
        The plan; evaluators that only use the predictions have no passes of their own.
    """
    chosen = choose_evaluators(session, names)
    plan = {name: skipped or EVALUATORS[name].passes(session) for name, skipped in chosen.items()}
    users = [name for name, skipped in chosen.items() if skipped is None and EVALUATORS[name].uses_predictions]
    return {PREDICTIONS: Passes(1, detail=f"for {', '.join(users)}"), **plan} if users else plan


def estimate_seconds(session: Session, plan: Plan) -> dict[str, float]:
    """Estimate the seconds of a plan: everything runs twice on a few images, and the second time is taken.

    Args:
        session: What the evaluators share.
        plan: Result of `plan_evaluators`.

    Returns:
        Seconds by name, without those that are not known; empty if there are too few images to time some of them.
    """
    images = len(session.inputs.samples)
    few = min(FEW if session.inputs.device.type == "cpu" else session.batch_size, images // SHARE)
    if few < 2:
        return {}
    for _ in range(2):
        small = session.with_images(few)
        start = time.perf_counter()
        _ = small.predictions
        seconds = {PREDICTIONS: time.perf_counter() - start}
        for name, passes in plan.items():
            if name != PREDICTIONS and isinstance(passes, Passes) and passes.of_samples and passes.count:
                start = time.perf_counter()
                try:
                    EVALUATORS[name].run(small)
                except AutomixError:  # these few images do not suffice, such as without a box
                    continue
                seconds[name] = time.perf_counter() - start
    seconds = {name: value * images / few for name, value in seconds.items()}
    for name, passes in plan.items():
        if isinstance(passes, Passes) and passes.count and not passes.of_samples:
            seconds[name] = passes.count * seconds[PREDICTIONS]
    return {name: seconds[name] for name in plan if name in seconds}
