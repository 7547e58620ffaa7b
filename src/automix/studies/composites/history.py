"""Figures of the training: 6 (collapse without the momentum pipeline) and 7 (samples at different times)."""

from collections.abc import Sequence
from pathlib import Path

from PIL import Image
from torch import Tensor

from automix.evaluation.plots import BLUE, ORANGE, as_image, new_figure
from automix.pictures.grid import image_grid, stack_pictures
from automix.pictures.mask_history import LAM
from automix.runs.metrics import top1_by_epoch
from automix.studies.composites.shown import ShownRun, shown_runs, with_samples
from automix.studies.experiment import Experiment
from automix.studies.results import ResultTable

SPREAD = "mask_spread_at_0.5"  # in the records of epochs
COLORS = (ORANGE, BLUE)


def draw_collapse(experiment: Experiment, tables: Sequence[ResultTable], out: Path) -> Image.Image | None:
    """Draw Figure 6: accuracy and spread of the masks over the epochs and, below, the samples of the trained blocks.

    Args:
        experiment: The experiment.
        tables: Its results.
        out: The folder of the runs.

    Returns:
        The picture, or None if nothing is finished.
    """
    runs = shown_runs(tables, out)
    if not runs:
        return None
    figure, (left, right) = new_figure(9, 3.6, ncols=2)
    for run, color in zip(runs, COLORS, strict=False):
        for axis, values in (
            (left, top1_by_epoch(run.folder.read_metrics(), run.network)),
            (right, spread_by_epoch(run)),
        ):
            axis.plot(list(values), list(values.values()), marker="o", markersize=3, color=color, label=run.title)
    left.set_title(tables[0].column.title, fontsize=10)
    right.set_title("spread of the masks at lam 0.5 (0: plain Mixup)", fontsize=10)
    right.set_ylim(0, max(0.1, right.get_ylim()[1]))
    for axis in (left, right):
        axis.set_xlabel("epoch")
        axis.xaxis.get_major_locator().set_params(integer=True)
        axis.grid(alpha=0.3)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    rows: dict[str, Tensor] = {}
    (lam,) = experiment.lams
    for run, samples in with_samples(runs, [lam]):
        rows = rows or {"image": samples.images, "partner": samples.partners}
        rows |= {f"{run.title}\nlam {lam:g}": samples.mixed[lam], f"mask of\n{run.title}": samples.masks[lam]}
    parts = [("", as_image(figure))]
    parts += [("", image_grid(rows, note="mask: white is the image, black its partner"))] if rows else []
    return stack_pictures(parts)


def spread_by_epoch(run: ShownRun) -> dict[int, float]:
    """Collect the standard deviations within the masks of test images at lam 0.5.

    Args:
        run: A run of AutoMix.

    Returns:
        The spread by epoch, for the epochs after which it was measured.
    """
    records = run.folder.read_metrics().of_kind("epoch")
    return {record["epoch"]: record[SPREAD] for record in records if SPREAD in record}


def draw_convergence(experiment: Experiment, tables: Sequence[ResultTable], out: Path) -> Image.Image | None:
    """Draw Figure 7: the same pairs at lam 0.5 at different times of the training, for each form.

    Args:
        experiment: The experiment.
        tables: Its results.
        out: The folder of the runs.

    Returns:
        The picture, or None if nothing is finished.
    """
    parts = []
    for run in shown_runs(tables, out):
        if run.folder.mask_history.is_file():
            with Image.open(run.folder.mask_history) as picture:
                parts.append((f"{run.title}, samples and masks at lam {LAM:g}", picture.convert("RGB")))
    return stack_pictures(parts) if parts else None
