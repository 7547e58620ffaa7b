"""The paper's tables, ablations and figures as experiments, and the grids of runs that give their numbers.

`find_experiment("table2").cell("automix", "r50-100ep").paper` is 77.91. `plan_jobs` lists runs, `collect` reads them.
"""

from automix.core.validation import unknown_name
from automix.studies.ablations import FIGURE9, FIGURE10, TABLE9, TABLE10, TABLE11
from automix.studies.cells import Cell, Column, Row, Source
from automix.studies.experiment import Experiment
from automix.studies.figures import FIGURE1, FIGURE3, FIGURE4, FIGURE6, FIGURE7, FIGURE8, FIGURE12
from automix.studies.finetune import FINETUNE
from automix.studies.imagenet import TABLE2, TABLE3, TABLE4
from automix.studies.label_noise import LABEL_NOISE
from automix.studies.plan import Grid, Job, plan_jobs, select
from automix.studies.replica import REPLICA, REPLICA_MIX_BLOCK, REPLICA_PIPELINE, REPLICA_REGIMES
from automix.studies.results import Result, ResultRow, ResultTable, collect
from automix.studies.small_images import CONTROL, TABLE1, TABLE6, TABLE13, TABLE14
from automix.studies.transfer import TABLE5, TABLE7, TABLE8

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        *(CONTROL, FINETUNE, LABEL_NOISE, REPLICA, REPLICA_REGIMES, REPLICA_MIX_BLOCK, REPLICA_PIPELINE),
        *(TABLE1, TABLE2, TABLE3, TABLE4, TABLE5, TABLE6, TABLE7, TABLE8, TABLE9, TABLE10, TABLE11, TABLE13, TABLE14),
        *(FIGURE1, FIGURE3, FIGURE4, FIGURE6, FIGURE7, FIGURE8, FIGURE9, FIGURE10, FIGURE12),
    )
}
"""All experiments by name."""

ALIASES = {"mix-block": "table9", "pipeline": "table10", "layers": "table11", "alphas": "figure9"}
"""Further names of experiments."""


def find_experiment(name: str) -> Experiment:
    """Look up an experiment.

    Args:
        name: Its name or alias, such as ``"table1"``; see `EXPERIMENTS` and `ALIASES`.

    Returns:
        The experiment.

    Raises:
        AutomixError: If there is no experiment of that name.
    """
    name = ALIASES.get(name, name)
    if name not in EXPERIMENTS:
        raise unknown_name("experiment", name, [*EXPERIMENTS, *ALIASES])
    return EXPERIMENTS[name]


__all__ = [
    "ALIASES",
    "EXPERIMENTS",
    "Cell",
    "Column",
    "Experiment",
    "Grid",
    "Job",
    "Result",
    "ResultRow",
    "ResultTable",
    "Row",
    "Source",
    "collect",
    "find_experiment",
    "plan_jobs",
    "select",
]
