"""Figures 9 and 10: accuracy over a setting of AutoMix."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from automix.evaluation.plots import as_image, new_figure
from automix.studies.cells import NETWORKS, Network
from automix.studies.experiment import Experiment
from automix.studies.plots import COLORS, NETWORK_TITLES
from automix.studies.results import ResultTable

COLUMNS = 2


def draw_lines(
    experiment: Experiment, tables: Sequence[ResultTable], out: Path, *, setting: str, logarithmic: bool = False
) -> Image.Image | None:
    """Draw the accuracies of student and teacher over a setting, with a panel for each column.

    Args:
        experiment: An experiment whose rows differ in the setting.
        tables: Its results.
        out: The folder of the runs; nothing is read from it.
        setting: Name of the setting.
        logarithmic: Whether the setting is drawn on a logarithmic axis.

    Returns:
        The picture, or None if nothing is finished.
    """
    settings = {row.name: float(row.values[setting]) for row in experiment.rows}
    panels = [table for table in tables if any(result_points(table, network, settings) for network in NETWORKS)]
    if not panels:
        return None
    columns = min(COLUMNS, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = new_figure(4.6 * columns, 3.2 * rows + 0.4, nrows=rows, ncols=columns, squeeze=False)
    for axis in axes.flat[len(panels) :]:
        axis.set_axis_off()
    for axis, table in zip(axes.flat, panels, strict=False):
        for network in NETWORKS:
            points = result_points(table, network, settings)
            xs, means, stds = zip(*points, strict=True) if points else ((), (), ())
            axis.errorbar(xs, means, yerr=stds, marker="o", markersize=4, capsize=2, color=COLORS[network],
                          label=NETWORK_TITLES[network])  # fmt: skip
        if logarithmic:
            axis.set_xscale("log", base=2)
        axis.set_xticks(sorted(settings.values()), [f"{value:g}" for value in sorted(settings.values())])
        axis.minorticks_off()
        axis.set_title(table.column.title, fontsize=10)
        axis.set(xlabel=setting, ylabel="top-1 %")
        axis.grid(alpha=0.3)
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return as_image(figure)


def result_points(table: ResultTable, network: Network, settings: dict[str, float]) -> list[tuple[float, float, float]]:
    """List the finished results of a network.

    Args:
        table: The results of a column.
        network: ``"student"`` or ``"teacher"``.
        settings: The value of the setting, by row.

    Returns:
        Setting, mean and standard deviation over the trials (0 for one trial), by rising setting.
    """
    trials = ((settings[row.row], row.results[network].trials) for row in table.rows)
    return sorted((value, found.mean, found.std or 0.0) for value, found in trials if found is not None)
