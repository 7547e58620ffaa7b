"""The paper's figures that show runs: what is trained for them. `automix.studies.composites` draws them.

The text gives one number of a figure: AutoMix's ECE in Figure 8. Figures 2, 5 and 11 are diagrams. Figures 9 and 10 are
with the ablations.
"""

from automix.studies.ablations import PIPELINE, automix_row, pipeline_cell
from automix.studies.cells import Column, Row
from automix.studies.experiment import Experiment, make_experiment
from automix.studies.names import R18, R50, column, method_rows

_IN1K: dict[str, object] = {"data": "imagenet", "model": R50, "recipe": "pytorch100"}
_SHOWN = method_rows("mixup", "cutmix", "puzzlemix", "automix")

_COST_ROWS = method_rows(
    "vanilla", "mixup", "cutmix", "manifoldmix", "saliencymix", "fmix", "puzzlemix", "resizemix", "automix"
)
_COST_COLUMNS = (
    Column("top1", "ImageNet-1k, R-50, 100 epochs, top-1 %", _IN1K),
    Column("cost", "time of a step, vanilla's is 1 (lower is better)", _IN1K, "efficiency/step_ratio"),
)
FIGURE1 = make_experiment(
    name="figure1",
    title="accuracy against cost, ImageNet",
    source="fig:intro",
    rows=_COST_ROWS,
    columns=_COST_COLUMNS,
    trials=1,
    lams=(0.5,),
    notes=("the caption names no network: R-50 is our choice; accuracies are in Table 2",),
)

FIGURE3 = make_experiment(
    name="figure3",
    title="CAM panels of mixed samples",
    source="fig:CAM",
    rows=_SHOWN,
    columns=(Column("top1", "ImageNet-1k, R-50, 100 epochs, top-1 %", _IN1K),),
    trials=1,
    lams=(0.5,),
)

_MIXED = tuple(
    Column(name, f"mixed samples, {title} %", _IN1K, f"mixed/{{method}}_{name}")
    for name, title in (("top1", "top-1 is one of the two classes,"), ("top2", "top-2 are the two classes,"))
)
FIGURE4 = make_experiment(
    name="figure4",
    title="samples over lam, accuracy on mixed samples",
    source="fig:lambda_main",
    rows=_SHOWN,
    columns=_MIXED,
    trials=1,
    lams=(0.0, 0.3, 0.7, 1.0),
    series=("mixed",),
    notes=("each run is evaluated on samples of its own method, averaged over 0 < lam < 1",),
)

_COLLAPSE_ROWS = (Row("none", "AutoMix, no MP", {}), Row("mp-ce", "AutoMix", {}))
_COLLAPSE = column("tiny-r18", "Tiny-ImageNet, R-18, top-1 %", "tiny-imagenet", R18, "tiny", method="automix")
FIGURE6 = Experiment(
    name="figure6",
    title="collapse without the momentum pipeline",
    source="fig:collapse",
    rows=_COLLAPSE_ROWS,
    columns=(_COLLAPSE,),
    cells=tuple(pipeline_cell(row.name, _COLLAPSE, None) for row in _COLLAPSE_ROWS),
    trials=1,
    reference="mp-ce",
    lams=(0.5,),
    notes=(f"the runs are those of Table 10, rows {PIPELINE['none']} and {PIPELINE['mp-ce']}; mask_spread in "
           "metrics.jsonl shows when masks become flat",),
)  # fmt: skip

_CONVERGENCE_ROWS = (*_COLLAPSE_ROWS,)
_CONVERGENCE = Column("top1", "ImageNet-1k, R-50, 100 epochs, top-1 %", {**_IN1K, "method": "automix"})
FIGURE7 = Experiment(
    name="figure7",
    title="samples over the training",
    source="fig:convergence",
    rows=_CONVERGENCE_ROWS,
    columns=(_CONVERGENCE,),
    cells=tuple(pipeline_cell(row.name, _CONVERGENCE, None) for row in _CONVERGENCE_ROWS),
    trials=1,
    reference="mp-ce",
)

_CALIBRATED = method_rows(
    "vanilla", "mixup", "cutmix", "manifoldmix", "saliencymix", "fmix", "puzzlemix", "resizemix", "automix"
)
_ECE = column("ece", "CIFAR-100, R-18, ECE % (lower is better)", "cifar100", R18, "cifar", measure="calibration/ece")
FIGURE8_PAPER = {"automix": (2.3,)}
FIGURE8 = make_experiment(
    name="figure8",
    title="reliability diagrams and ECE, CIFAR-100",
    source="fig:calibration",
    rows=_CALIBRATED,
    columns=(_ECE,),
    paper=FIGURE8_PAPER,
    series=("calibration",),
)

_ALONE = (automix_row("automix", "AutoMix"),)
_SAMPLES = Column("top1", "ImageNet-1k, R-50, 100 epochs, top-1 %", _IN1K)
FIGURE12 = make_experiment(
    name="figure12",
    title="mixed samples, ImageNet (with Figure 13)",
    source="fig:Visualization_ImageNet_R50.",
    rows=_ALONE,
    columns=(_SAMPLES,),
    trials=1,
    lams=(0.1, 0.3, 0.5, 0.7, 0.9),
)
