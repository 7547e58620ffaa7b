"""Predictions as a table (CSV) or as JSON, for other programs."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from automix.core.errors import AutomixError
from automix.core.files import write_atomically
from automix.deploy.prediction import Prediction

ENDINGS = (".csv", ".json")


def check_ending(path: Path) -> None:
    """Raise an error unless a file's name ends in .csv or .json.

    Args:
        path: The file to write.
    """
    if path.suffix.lower() not in ENDINGS:
        raise AutomixError(f"out must end in {' or '.join(ENDINGS)}, got {str(path)!r}")


def write_predictions(path: Path, predictions: Sequence[Prediction]) -> None:
    """Write predictions into a file; its ending decides the format.

    A CSV file has one line per image: ``image,class,probability,class_2,probability_2,...,error``. A JSON file has a
    list of objects ``{"image": ..., "classes": [{"class": ..., "probability": ...}, ...], "error": null}``.

    Args:
        path: The file, .csv or .json. Its folder is made if it is missing.
        predictions: One for each image, as `predict` returns them.
    """
    check_ending(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write = _write_csv if path.suffix.lower() == ".csv" else _write_json
    write_atomically(path, lambda temporary: write(temporary, predictions))


def _write_csv(path: Path, predictions: Sequence[Prediction]) -> None:
    most = max((len(one.classes) for one in predictions), default=0)
    ends = ["", *(f"_{place}" for place in range(2, most + 1))][:most]
    names = [name + end for end in ends for name in ("class", "probability")]
    # names of files may have bytes that are no text
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", *names, "error"])
        for one in predictions:
            pairs = zip(one.classes, one.probabilities, strict=True)
            cells = [cell for name, share in pairs for cell in (name, f"{share:.6f}")]
            table.writerow([str(one.path), *cells, *[""] * (2 * most - len(cells)), one.error or ""])


def _write_json(path: Path, predictions: Sequence[Prediction]) -> None:
    answers = [
        {
            "image": str(one.path),
            "classes": [
                {"class": name, "probability": share}
                for name, share in zip(one.classes, one.probabilities, strict=True)
            ],
            "error": one.error,
        }
        for one in predictions
    ]
    path.write_text(json.dumps(answers, indent=1) + "\n", encoding="utf-8")
