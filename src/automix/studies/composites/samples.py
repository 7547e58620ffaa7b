"""Figures of mixed samples: 1 (beside accuracy and cost), 4 (beside the accuracy on them) and 12."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor

from automix.evaluation.mixed import draw_accuracies
from automix.evaluation.plots import as_image, new_figure
from automix.evaluation.tiles import to_tile_size
from automix.pictures.grid import Tile, stack_pictures, tile_grid, to_image
from automix.studies.cells import ACCURACIES
from automix.studies.composites.shown import shown_runs, with_samples
from automix.studies.experiment import Experiment
from automix.studies.plots import draw_against_cost, step_costs
from automix.studies.results import ResultTable

SIDE = 96  # px, about
STRIP_PAIRS = 3  # of Figure 1
LAM_PAIRS = 2  # of Figure 4


def draw_cost_and_samples(experiment: Experiment, tables: Sequence[ResultTable], out: Path) -> Image.Image | None:
    """Draw Figure 1: accuracy against the time of a step and, below, the same pairs mixed by every method.

    Args:
        experiment: The experiment.
        tables: Its results.
        out: The folder of the runs.

    Returns:
        The picture, or None if nothing is finished.
    """
    parts = []
    if costs := step_costs(tables):
        panels = [table for table in tables if table.column.measure in ACCURACIES]
        figure, axes = new_figure(11, 4.4 * len(panels), nrows=len(panels), squeeze=False)
        for axis, table in zip(axes[:, 0], panels, strict=True):
            draw_against_cost(axis, table, costs)
            axis.set_title(f"{table.column.title}, teacher (EMA)", fontsize=10)
            axis.set_ylabel("top-1 %", fontsize=8)
        parts.append(("", as_image(figure)))
    kept = list(with_samples(shown_runs(tables, out), experiment.lams))
    if kept:
        first, (lam,) = kept[0][1], experiment.lams
        columns = {"image": first.images, "partner": first.partners}
        columns |= {run.title: samples.mixed[lam] for run, samples in kept}
        tiles = [_tiles(images[:STRIP_PAIRS], name) for name, images in columns.items()]
        parts.append(
            ("", tile_grid(list(zip(*tiles, strict=True)), note=f"mixed at lam {lam:g}, lam the share of the image"))
        )
    return stack_pictures(parts) if parts else None


def draw_lams_and_accuracy(experiment: Experiment, tables: Sequence[ResultTable], out: Path) -> Image.Image | None:
    """Draw Figure 4: samples of each method over lam and, below, the accuracies on such samples.

    Args:
        experiment: The experiment.
        tables: Its results.
        out: The folder of the runs.

    Returns:
        The picture, or None if nothing is finished.
    """
    runs = shown_runs(tables, out)
    rows = {}
    for run, samples in with_samples(runs, experiment.lams):
        apart = slice(0, 2 * LAM_PAIRS, 2)  # neighbors share an image
        by_lam = [_tiles(samples.mixed[lam][apart], f"lam {lam:g}") for lam in experiment.lams]
        rows[run.title] = [tile for pair in zip(*by_lam, strict=True) for tile in pair]
    lines = {}
    for run in runs:
        if entry := run.evaluation("mixed"):
            series = entry["series"]
            lines[run.title] = {
                "lams": series["lams"],
                **{which: series[f"{run.method}_{which}"] for which in ("top1", "top2")},
            }
    grid = tile_grid(list(rows.values()), list(rows), column_group=len(experiment.lams)) if rows else None
    parts = [("", grid)] if grid else []
    parts += [("", draw_accuracies(lines))] if lines else []
    return stack_pictures(parts) if parts else None


def draw_samples(experiment: Experiment, tables: Sequence[ResultTable], out: Path) -> Image.Image | None:
    """Draw Figure 12: pairs of images and their mixed samples over lam, for every row.

    Args:
        experiment: The experiment.
        tables: Its results.
        out: The folder of the runs.

    Returns:
        The picture, or None if nothing is finished.
    """
    parts = []
    for run, samples in with_samples(shown_runs(tables, out), experiment.lams):
        rows = {"image": samples.images, "partner": samples.partners}
        rows |= {f"lam {lam:g}": samples.mixed[lam] for lam in experiment.lams}
        parts.append((run.title, tile_grid([_tiles(images) for images in rows.values()], list(rows))))
    return stack_pictures(parts) if parts else None


def _tiles(images: Tensor, caption: str = "") -> list[Tile]:
    return [Tile(to_image(image), caption) for image in to_tile_size(images, SIDE)[0]]
