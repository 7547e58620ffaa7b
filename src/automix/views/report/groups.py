"""Groups of runs that differ only in the seed, and their labels."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from automix.runs.config import RESOLVED, TRIALS_DIFFER_IN, TrainConfig
from automix.runs.protocol import Trials, over_trials
from automix.runs.recipes import RECIPES, find_recipe
from automix.views.report.run_record import Points, RunRecord

MAX_LABEL = 44  # characters


@dataclass
class Group:
    """Runs of one configuration with different seeds.

    Attributes:
        runs: The runs.
        label: What the report calls the group.
    """

    runs: list[RunRecord]
    label: str = ""

    @property
    def first(self) -> RunRecord:
        return self.runs[0]

    @property
    def seeds(self) -> str:
        return ("seed " if len(self.runs) == 1 else "seeds ") + ", ".join(str(run.seed) for run in self.runs)

    @property
    def trials(self) -> Trials | None:
        """Mean and standard deviation over the finished runs; None before the first is finished."""
        done = [run for run in self.runs if run.result is not None]
        results = [run.result for run in done if run.result is not None]
        return over_trials(results, epochs=done[0].epochs_in_result) if done else None

    def curves(self, metric: str) -> list[Points]:
        """The curve of each run that has the metric."""
        return [points for run in self.runs if (points := run.curve(metric))]


def group_runs(runs: Sequence[RunRecord]) -> list[Group]:
    """Group runs, in their order. A second run with the same seed starts another group."""
    groups: dict[str, Group] = {}
    for run in runs:
        settings = {name: value for name, value in settings_of(run).items() if name not in TRIALS_DIFFER_IN}
        key = json.dumps(settings, sort_keys=True, default=str)
        while key in groups and run.seed in [other.seed for other in groups[key].runs]:
            key += " again"
        groups.setdefault(key, Group([])).runs.append(run)
    result = list(groups.values())
    _set_labels(result)
    return result


def settings_of(run: RunRecord) -> dict[str, Any]:
    """The configuration without nesting. A setting that did not exist when the run was trained has its default."""
    defaults = {item.name: item.default for item in fields(TrainConfig) if isinstance(item.default, _PLAIN)}
    if run.config.get("recipe") in RECIPES:
        recipe = find_recipe(run.config["recipe"])
        defaults |= {item.name: getattr(recipe, item.name) for item in fields(recipe)}
    flat: dict[str, Any] = {}
    for name, value in {**defaults, **run.config}.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{option}": chosen for option, chosen in value.items()}
        else:
            flat[str(name)] = value
    return flat


_PLAIN = (bool, int, float, str, type(None))


def differences(groups: Sequence[Group]) -> dict[str, list[Any]]:
    """The settings in which groups differ, with the value of each group; None for an option that it lacks.

    The recorded settings of a method's preset count only if groups that have them differ: other methods have none.
    """
    settings = [settings_of(group.first) for group in groups]
    names = dict.fromkeys(name for one in settings for name in one if name not in TRIALS_DIFFER_IN)
    differing = {}
    for name in names:
        of_preset = name.startswith(f"{RESOLVED}.")
        values = [one[name] for one in settings if name in one] if of_preset else [one.get(name) for one in settings]
        if any(value != values[0] for value in values):
            differing[name] = [one.get(name) for one in settings]
    return differing


def _set_labels(groups: Sequence[Group]) -> None:
    """Label groups by their method and the settings in which groups of this method differ.

    The label is the folder if that would be too long or not unique.
    """
    for group in groups:
        same_method = [other for other in groups if other.first.config["method"] == group.first.config["method"]]
        own = {name: values[same_method.index(group)] for name, values in differences(same_method).items()}
        parts = [f"{name.split('.')[-1]} {setting_text(value)}" for name, value in own.items() if value is not None]
        group.label = ", ".join([group.first.config["method"], *parts])
    count = Counter(group.label for group in groups)
    for group in groups:
        if count[group.label] > 1 or len(group.label) > MAX_LABEL:
            group.label = group.first.name.removesuffix(f"-{group.first.seed}") if len(groups) > 1 else group.first.name
    count = Counter(group.label for group in groups)
    for group in groups:
        if count[group.label] > 1:
            group.label = str(group.first.folder)


def setting_text(value: Any) -> str:
    """Write the value of a setting as YAML has it; "-" for none."""
    if value is None:
        return "-"
    return str(value).lower() if isinstance(value, bool) else str(value)
