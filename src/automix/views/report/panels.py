"""Which metrics of a run are drawn in which chart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from automix.views.report.chart import Chart, lay_out_chart
from automix.views.report.groups import Group
from automix.views.report.numbers import number
from automix.views.report.run_record import DEPLOYED
from automix.views.report.series import Series, over_seeds, thin

MAX_POINTS = 12_000  # in all curves of a page together, to keep it small
EXACT = 1e-4  # a gap between lam and the mask's mean that is rounding
CURVE_POINTS = (30, 200)  # least and most points of one curve


@dataclass(frozen=True)
class Panel:
    """A chart of one run.

    Attributes:
        title: What stands above it.
        metrics: Metrics of the log, with their names in the legend.
        note: What the values mean.
        log: Whether the axis may be logarithmic.
        first: In a comparison, whether it is shown at once instead of under "more curves".
    """

    title: str
    metrics: dict[str, str]
    note: str = ""
    log: bool = False
    first: bool = True


MIXERS = {"mixed": "the method itself", "mixup": "Mixup", "cutmix": "CutMix"}

PANELS = (
    Panel(
        "Test accuracy",
        {"teacher_top1": "teacher", "student_top1": "student"},
        "top-1, %",
    ),
    Panel("Loss", {"loss": "training"}, "mean over each epoch, on mixed training batches"),
    Panel(
        "Mask spread",
        {
            "mask_spread": "training",
            "mask_spread_at_0.2": "test, lam 0.2",
            "mask_spread_at_0.5": "test, lam 0.5",
            "mask_spread_at_0.8": "test, lam 0.8",
        },
        "0: the same value everywhere, as in Mixup; 0.5: black and white",
    ),
    Panel(
        "Mask mean",
        {f"mask_mean_at_{lam}": f"lam {lam}" for lam in ("0.2", "0.5", "0.8")},
        "on test images; the target is lam",
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
        {f"top2_on_{metric}": name for metric, name in MIXERS.items()},
        "both classes among the top 2 at lam 0.5, % of test pairs",
        first=False,
    ),
    Panel(
        "One image of a mixed sample recognized",
        {f"top1_on_{metric}": name for metric, name in MIXERS.items()},
        "one of the classes is the top 1 at lam 0.5, % of test pairs",
        first=False,
    ),
    Panel("Accuracy on mixed batches", {"mixed_accuracy": "training"}, "from 0 to 1, low is normal", first=False),
    Panel("Learning rate", {"lr": "learning rate"}, first=False),
    Panel("Speed", {"images_per_second": "images per second"}, first=False),
)  # fmt: skip


@dataclass(frozen=True)
class Drawing:
    """A chart with its title, note and legend: name, CSS classes and last value of each curve."""

    title: str
    note: str
    chart: Chart
    legend: list[tuple[str, str, str]]
    first: bool


def draw_panels(groups: Sequence[Group]) -> list[Drawing]:
    """Lay out all charts: of one group, several metrics in each; of several, one metric with a curve per group."""
    contents = _panels_of_one(groups[0]) if len(groups) == 1 else _panels_of_several(groups)
    curves = sum(len(series) for _, series in contents)
    limit = max(CURVE_POINTS[0], min(CURVE_POINTS[1], MAX_POINTS // max(curves, 1)))
    return [_draw(panel, [thin(one, limit) for one in series]) for panel, series in contents]


def _draw(panel: Panel, series: list[Series]) -> Drawing:
    legend = [(one.name, one.style, number(one.points[-1][1])) for one in series]
    return Drawing(panel.title, panel.note, lay_out_chart(series, panel.title, log=panel.log), legend, panel.first)


def _panels_of_one(group: Group) -> list[tuple[Panel, list[Series]]]:
    contents = []
    for panel in _panels([group]):
        curves = {name: group.curves(metric) for metric, name in panel.metrics.items()}
        series = [over_seeds(name, drawn, place) for place, (name, drawn) in enumerate(curves.items()) if drawn]
        contents.append((replace(panel, first=True), _with_points(series)))
    return [content for content in contents if content[1]]


def _panels_of_several(groups: Sequence[Group]) -> list[tuple[Panel, list[Series]]]:
    contents = []
    for panel in _panels(groups):
        for metric, name in panel.metrics.items():
            curves = [group.curves(metric) for group in groups]
            series = [over_seeds(groups[n].label, drawn, n) for n, drawn in enumerate(curves) if drawn]
            title = panel.title if len(panel.metrics) == 1 else f"{panel.title}: {name}"
            first = panel.first and not metric.endswith(("_at_0.2", "_at_0.8"))
            contents.append((replace(panel, title=title, first=first), _with_points(series)))
    return [content for content in contents if content[1]]


def _means_are_exact(groups: Sequence[Group]) -> bool:
    """Whether the mean of every mask is lam by construction, so that its charts would be constant."""
    gaps = [gap for group in groups for curve in group.curves("lam_gap") for _, gap in curve]
    return all(gap < EXACT for gap in gaps)


def _with_points(series: list[Series]) -> list[Series]:
    """Leave out series of seeds that share no step."""
    return [one for one in series if one.points]


def _panels(groups: Sequence[Group]) -> list[Panel]:
    """The panels, with the loss terms that the method has, and without those that repeat another."""
    metrics = {metric for group in groups for run in group.runs for record in run.epochs for metric in record}
    terms = sorted(metric for metric in metrics if metric.startswith("loss_"))
    needless = {"Gradient norm"} if len(groups) == 1 and "gradient_norm_student" in metrics else set()
    needless |= {"Mask mean", "Lam gap"} if _means_are_exact(groups) else set()
    panels = []
    for panel in PANELS:
        if panel.title == "Loss" and len(terms) > 1:
            names = {term: term.removeprefix("loss_").replace("_", " ") for term in terms}
            note = "means over each epoch; clean: where mixing has ended, or beside it"
            panel = replace(
                panel, title="Loss terms", metrics=names, note=note if "loss_clean" in terms else panel.note
            )
        elif panel.title == "Test accuracy" and len(groups) > 1 and "teacher_top1" in metrics:
            panel = replace(panel, metrics={DEPLOYED: "teacher, else student", "student_top1": "student"})
        if panel.title not in needless:
            panels.append(panel)
    return panels
