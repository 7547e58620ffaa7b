"""Which numbers of a run are drawn, in which chart."""

from collections.abc import Sequence
from dataclasses import dataclass

from automix.views.report.curves import Series, over_seeds, thin
from automix.views.report.gather import DEPLOYED
from automix.views.report.groups import Group

POINTS = 12_000  # in all curves of a page together, or it would not stay small
LEAST_POINTS, MOST_POINTS = 30, 200  # in a curve


@dataclass(frozen=True)
class Panel:
    """A chart of one run: `metrics` with their names in it."""

    title: str
    metrics: dict[str, str]
    note: str = ""
    log: bool = False
    first: bool = True  # in a comparison: shown at once, not among "more curves"


PANELS = (
    Panel(
        "Test accuracy",
        {"teacher_top1": "teacher", "student_top1": "student"},
        "top-1, %",
    ),
    Panel("Loss", {"loss": "total"}, "means of the epochs, on mixed training batches"),
    Panel(
        "Mask spread",
        {
            "mask_spread": "training",
            "mask_spread_at_0.2": "test, lam 0.2",
            "mask_spread_at_0.5": "test, lam 0.5",
            "mask_spread_at_0.8": "test, lam 0.8",
        },
        "0: one number for the whole image, as Mixup; 0.5: black and white",
    ),
    Panel(
        "Mask mean",
        {f"mask_mean_at_{lam}": f"lam {lam}" for lam in ("0.2", "0.5", "0.8")},
        "on test images; as it should be, the mean is lam",
        first=False,
    ),
    Panel("Lam gap", {"lam_gap": "|lam - mask mean|"}, "mean over training batches", log=True),
    Panel(
        "Gradient norms",
        {"gradient_norm_student": "student", "gradient_norm_mix_block": "mix block"},
        log=True,
    ),
    Panel("Gradient norm", {"gradient_norm": "all parameters"}, log=True, first=False),
    Panel(
        "Both images of a mixed sample recognized",
        {f"top2_on_{name}": told for name, told in
         (("mixed", "own mixing"), ("mixup", "Mixup"), ("cutmix", "CutMix"))},
        "top-2 at lam 0.5, % of test pairs",
        first=False,
    ),
    Panel(
        "One image of a mixed sample recognized",
        {f"top1_on_{name}": told for name, told in
         (("mixed", "own mixing"), ("mixup", "Mixup"), ("cutmix", "CutMix"))},
        "top-1 at lam 0.5, % of test pairs",
        first=False,
    ),
    Panel("Accuracy on mixed batches", {"mixed_accuracy": "training"}, "from 0 to 1, low by design", first=False),
    Panel("Learning rate", {"lr": "learning rate"}, first=False),
    Panel("Speed", {"images_per_second": "images per second"}, first=False),
)  # fmt: skip


@dataclass(frozen=True)
class Drawing:
    """A chart's content."""

    title: str
    note: str
    series: list[Series]
    log: bool
    first: bool


def drawings(groups: Sequence[Group]) -> list[Drawing]:
    """For one group, charts of several metrics; for several groups, a chart for each metric with a curve per group."""
    found = _of_one(groups[0]) if len(groups) == 1 else _compared(groups)
    curves = sum(len(drawing.series) for drawing in found)
    most = max(LEAST_POINTS, min(MOST_POINTS, POINTS // max(curves, 1)))
    for drawing in found:
        drawing.series[:] = [thin(series, most) for series in drawing.series]
    return found


def _of_one(group: Group) -> list[Drawing]:
    found = []
    for panel in _panels([group]):
        curves = {name: group.curves(metric) for metric, name in panel.metrics.items()}
        series = [over_seeds(name, drawn, number) for number, (name, drawn) in enumerate(curves.items()) if drawn]
        found.append(Drawing(panel.title, panel.note, _with_points(series), panel.log, True))
    return [drawing for drawing in found if drawing.series]


def _compared(groups: Sequence[Group]) -> list[Drawing]:
    found = []
    for panel in _panels(groups):
        for metric, name in panel.metrics.items():
            curves = [group.curves(metric) for group in groups]
            series = [over_seeds(groups[n].label, drawn, n) for n, drawn in enumerate(curves) if drawn]
            title = panel.title if len(panel.metrics) == 1 else f"{panel.title}: {name}"
            first = panel.first and not metric.endswith(("_at_0.2", "_at_0.8"))
            found.append(Drawing(title, panel.note, _with_points(series), panel.log, first))
    return [drawing for drawing in found if drawing.series]


def _with_points(series: list[Series]) -> list[Series]:
    """Without those of trials that share no step."""
    return [one for one in series if one.points]


def _panels(groups: Sequence[Group]) -> list[Panel]:
    """With the terms of the loss as the method has them, and what is left out where something else says the same."""
    metrics = {metric for group in groups for run in group.runs for record in run.epochs for metric in record}
    terms = sorted(metric for metric in metrics if metric.startswith("loss_"))
    found = []
    for panel in PANELS:
        if panel.title == "Loss" and len(terms) > 1:
            named = {"loss": "total", **{term: term.removeprefix("loss_").replace("_", " ") for term in terms}}
            panel = Panel("Loss terms", named, panel.note)
        elif panel.title == "Test accuracy" and len(groups) > 1 and "teacher_top1" in metrics:
            panel = Panel(panel.title, {DEPLOYED: "teacher, else student", "student_top1": "student"}, panel.note)
        elif panel.title == "Gradient norm" and len(groups) == 1 and "gradient_norm_student" in metrics:
            continue
        found.append(panel)
    return found
