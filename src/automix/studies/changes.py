"""NAME=VALUE words of the command line: settings to change in every run of a grid, and options of a launcher."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

from automix.core.errors import AutomixError
from automix.core.validation import unknown_name
from automix.runs.config import TrainConfig
from automix.studies.settings import Values, merge_values

GRID_SETTINGS = ("seed", "out", "data_root", "recipe", "method")  # --set cannot change them

EXPONENT = re.compile(r"[+-]?\d+(\.\d*)?e[+-]?\d+", re.IGNORECASE)


def read_changes(words: Iterable[str]) -> Values:
    """Parse the words of ``--set``.

    Args:
        words: NAME=VALUE for settings of `automix train`, or model_options.NAME=VALUE.

    Returns:
        The settings.

    Raises:
        AutomixError: If a name is unknown or not free to change.
    """
    changes: Values = {}
    for name, value in read_pairs(words, "--set").items():
        first, _, option = name.partition(".")
        if first not in TrainConfig.flat_names():
            raise unknown_name("setting", first, TrainConfig.flat_names())
        if first in GRID_SETTINGS:
            raise AutomixError(f"--set {name}: the grid decides {', '.join(GRID_SETTINGS)}; set something else")
        if bool(option) != first.endswith("_options"):
            raise AutomixError(f"--set {name}: write NAME=VALUE, and for options model_options.NAME=VALUE")
        changes = merge_values(changes, {first: {option: value}} if option else {first: value})
    return changes


def read_pairs(words: Iterable[str], flag: str) -> dict[str, Any]:
    """Parse NAME=VALUE words; values are YAML, as in a config file.

    Args:
        words: The words.
        flag: The flag they belong to, for messages.

    Returns:
        The values by name.
    """
    pairs = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (name and equals):
            raise AutomixError(f"{flag} {word}: write NAME=VALUE")
        try:
            # YAML reads 1e-3 as a string
            pairs[name.replace("-", "_")] = float(text) if EXPONENT.fullmatch(text) else yaml.safe_load(text)
        except yaml.YAMLError:
            raise AutomixError(f"{flag} {word}: the value must be YAML, such as 2 or [1, 2]") from None
    return pairs
