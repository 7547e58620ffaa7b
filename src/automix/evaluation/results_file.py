"""The folder of an evaluation: results.json with the values of all evaluators, and their pictures."""

import json
from pathlib import Path
from typing import Any

from automix._version import __version__
from automix.core.errors import AutomixError, one_line
from automix.core.files import exclusive, write_atomically, write_text
from automix.evaluation.inputs import EvaluationInputs
from automix.evaluation.plots import NoPlotsError
from automix.evaluation.result import EvaluationResult

RESULTS = "results.json"


def write_result(folder: Path, inputs: EvaluationInputs, name: str, result: EvaluationResult) -> tuple[str, ...]:
    """Add the result of an evaluator to a folder; those of other evaluators stay.

    Every entry records its source, weights and test images, since a later call may use others.

    Args:
        folder: Created if it does not exist.
        inputs: What was evaluated.
        name: Name of the evaluator.
        result: Its result.

    Returns:
        The notes of the result, and a note if pictures could not be drawn.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures, notes = [], list(result.notes)
    try:
        for stem, draw in result.pictures.items():
            write_atomically(folder / f"{stem}.png", draw().save)
            pictures.append(f"{stem}.png")
    except NoPlotsError as error:
        notes.append(f"not all pictures are drawn: {error}")
    entry = {
        "values": result.values,
        **({"series": result.series} if result.series else {}),
        "notes": notes,
        "pictures": pictures,
        "source": inputs.source,
        "which": inputs.which,
        "data": inputs.data,
        "images": len(inputs.samples),
        "automix": __version__,
    }
    with exclusive(folder / RESULTS):
        results = {**read_results(folder), name: entry}
        write_text(folder / RESULTS, json.dumps(results, indent=2, ensure_ascii=False) + "\n")
    return tuple(notes)


def read_results(folder: Path) -> dict[str, Any]:
    """Read the results of earlier calls.

    Args:
        folder: The folder of an evaluation.

    Returns:
        Entries by evaluator, with ``values``, ``series`` (if the evaluator has any), ``notes``, ``pictures``,
        ``source``, ``which``, ``data`` and ``images``; empty if there is no file.
    """
    path = folder / RESULTS
    if not path.exists():
        return {}
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AutomixError(f"{path}: cannot be read ({one_line(error)}); delete it and evaluate again") from None
    if not isinstance(results, dict):
        raise AutomixError(f"{path}: not the results of an evaluation; delete it and evaluate again")
    return results
