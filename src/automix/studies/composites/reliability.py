"""Figure 8: the reliability diagrams of all methods side by side."""

import math
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from automix.evaluation.calibration import Reliability, draw_bins
from automix.evaluation.plots import GRAY, as_image, new_figure
from automix.studies.composites.shown import shown_runs
from automix.studies.experiment import Experiment
from automix.studies.results import ResultTable

COLUMNS = 3


def draw_reliability_of_all(experiment: Experiment, tables: Sequence[ResultTable], out: Path) -> Image.Image | None:
    """Draw the reliability diagram of each row: of the network that the paper compares.

    Args:
        experiment: The experiment.
        tables: Its results.
        out: The folder of the runs.

    Returns:
        The picture, or None if nothing is finished.
    """
    runs = [(run, entry) for run in shown_runs(tables, out) if (entry := run.evaluation("calibration"))]
    if not runs:
        return None
    columns = min(COLUMNS, len(runs))
    rows = math.ceil(len(runs) / columns)
    figure, axes = new_figure(3 * columns + 0.4, 3 * rows + 1, nrows=rows, ncols=columns, squeeze=False,
                              sharex=True, sharey=True)  # fmt: skip
    for axis in axes.flat[len(runs) :]:
        axis.set_axis_off()
    for axis, (run, entry) in zip(axes.flat, runs, strict=False):
        draw_bins(axis, Reliability.from_series(entry["series"]))
        axis.set_title(f"{run.title} ({run.network})", fontsize=10)
        text = f"ECE {entry['values']['ece']:.1f} %"
        axis.text(0.96, 0.05, text, ha="right", bbox={"facecolor": "white", "edgecolor": GRAY})
    for axis in axes[:, 0]:
        axis.set_ylabel("accuracy")
    for axis in axes.flat[max(0, len(runs) - columns) : len(runs)]:  # the lowest of each column
        axis.set_xlabel("confidence")
        axis.tick_params(labelbottom=True)
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=min(4, 2 * columns), frameon=False
    )
    return as_image(figure)
