"""The paper's figures, each as one picture: what its runs measured and kept, side by side.

Everything is read from the run folders, of the first trial where a figure shows images; no data and no training is
needed. Other experiments are drawn by `automix.studies.plots.draw_results`.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PIL import Image

from automix.studies.composites.cams import draw_cams
from automix.studies.composites.history import draw_collapse, draw_convergence
from automix.studies.composites.lines import draw_lines
from automix.studies.composites.reliability import draw_reliability_of_all
from automix.studies.composites.samples import draw_cost_and_samples, draw_lams_and_accuracy, draw_samples
from automix.studies.experiment import Experiment
from automix.studies.plots import draw_results
from automix.studies.results import ResultTable

Draw = Callable[[Experiment, Sequence[ResultTable], Path], Image.Image | None]

COMPOSITES: dict[str, Draw] = {
    "figure1": draw_cost_and_samples,
    "figure3": draw_cams,
    "figure4": draw_lams_and_accuracy,
    "figure6": draw_collapse,
    "figure7": draw_convergence,
    "figure8": draw_reliability_of_all,
    "figure9": partial(draw_lines, setting="alpha", logarithmic=True),
    "figure10": partial(draw_lines, setting="layer"),
    "figure12": draw_samples,
}
"""How each figure is drawn, by the name of its experiment."""


def draw_experiment(experiment: Experiment, tables: Sequence[ResultTable], out: Path) -> Image.Image | None:
    """Draw an experiment as one picture: a figure as the paper has it, a table as points with their spread.

    Args:
        experiment: The experiment.
        tables: Its results.
        out: The folder of the runs.

    Returns:
        The picture, or None if nothing is finished.
    """
    draw = COMPOSITES.get(experiment.name)
    return draw_results(tables) if draw is None else draw(experiment, tables, out)
