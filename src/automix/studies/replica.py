"""The paper's comparison and its two ablations, small enough for two cores: `automix bench replica`.

The datasets are small and the training is long enough that plain training over-fits: 20 classes of 100 images of
CIFAR-100 for 5,022 steps, and 12 drawn shapes of 25 images for 2,400 steps. The network is a narrow ResNet with the
stem for small images. The batches are small: with as many images of CIFAR, Mixup reaches 55.9 % in batches of 32 and
49.1 % in batches of 100.
"""

from automix.methods import has_own_teacher
from automix.methods.automix.settings import AutoMixSettings
from automix.runs.recipes.alphas import paper_alpha
from automix.studies.ablations import MIX_BLOCK_ROWS, PIPELINE_METHODS, PIPELINE_ROWS, automix_row, pipeline_cell
from automix.studies.cells import Column, Row
from automix.studies.experiment import Experiment, make_experiment
from automix.studies.names import METHODS
from automix.studies.settings import Values

NARROW: Values = {"model": "resnet18", "model_options": {"layers": [1, 1, 1, 1], "channels": [16, 32, 64, 128]}}
CIFAR_CUT: Values = {
    **NARROW, "data": "cifar100", "classes": 20, "per_class": 100, "recipe": "quick", "epochs": 81, "batch_size": 32,
    "eval_every": 10,
}  # fmt: skip
SHAPES: Values = {
    **NARROW, "data": "shapes", "per_class": 25, "recipe": "quick", "epochs": 400, "batch_size": 50,
    "train_size": 24, "test_size": 24, "eval_every": 40,
}  # fmt: skip

COLUMNS = (
    Column("cifar", "CIFAR-100, 20 classes x 100 images, top-1 %", CIFAR_CUT),
    Column("shapes", "shapes, 12 classes x 25 images, top-1 %", SHAPES),
    Column("cost", "time of a step, vanilla's is 1 (lower is better)", CIFAR_CUT, "efficiency/step_ratio"),
)


AS_RUN: dict[str, Values] = {"manifoldmix": {"layers": [0, 1, 2, 3]}, "puzzlemix": {"levels": 2}}
"""Options with which the kept runs were made; the defaults have since become those of the methods' authors."""


def _with_paper_alpha(*methods: str) -> tuple[Row, ...]:
    """Rows with the alpha that the paper gives each method on CIFAR, for both datasets."""
    rows = []
    for name in methods:
        values: Values = {"method": name, "alpha": paper_alpha("cifar", name, "resnet18")}
        if name in AS_RUN:
            values["method_options"] = AS_RUN[name]
        rows.append(Row(name, METHODS[name].title, values))
    return tuple(rows)


def _with_clean_end(row: Row) -> Row:
    """A row that stops mixing when AutoMix does."""
    options = {"mix_until": AutoMixSettings().mix_until}
    return Row(f"{row.name}-clean-end", f"{row.title}, clean end", {**row.values, "method_options": options})


ALGORITHM1: Values = {"aux_loss": "clean", "block_share": 1.0, "mix_until": 1.0}
"""Options of AutoMix for the training of the paper's Algorithm 1."""

NO_CLASS_VECTORS: Values = {"class_vectors": False, "smooth": False, "upsampling": "nearest", "block_lr": 1.0}
"""Options of AutoMix for a Mix Block that does not know the labels. The parts of AutoMix were compared with it."""

ROWS = (
    METHODS["vanilla"],
    *_with_paper_alpha("mixup", "cutmix"),
    Row("cutmix-alpha-1", "CutMix, alpha 1", {"method": "cutmix", "alpha": 1.0}),  # its authors'
    *_with_paper_alpha("manifoldmix", "resizemix", "fmix", "puzzlemix"),
    # AutoMix trains on clean images at the end: these rows show the effect of that alone
    *(_with_clean_end(row) for row in _with_paper_alpha("mixup", "cutmix")),
    METHODS["automix"],
    automix_row("automix-fast", "AutoMix (fast)", preset="fast"),
    automix_row("automix-paper", "AutoMix (paper)", preset="paper"),
    automix_row("automix-no-vectors", "AutoMix, no vectors", **NO_CLASS_VECTORS),
    automix_row("automix-no-vectors-mixed-end", "AutoMix, no vectors, mixed end", mix_until=1.0, **NO_CLASS_VECTORS),
    automix_row("automix-no-vectors-algorithm1", "AutoMix, no vectors, Algorithm 1", **ALGORITHM1, **NO_CLASS_VECTORS),
    automix_row("automix-no-vectors-fast", "AutoMix (fast), no vectors", preset="fast", **NO_CLASS_VECTORS),
    # flat masks mix as Mixup does: the effect of everything but the masks
    automix_row("automix-flat", "AutoMix, flat masks", lam_margin=0.5, block_share=0.03),
)
REPLICA = make_experiment(
    name="replica",
    title="the comparison, for two cores",
    source="ours",
    rows=ROWS,
    columns=COLUMNS,
)

# More images, more classes, longer training, a wider network, larger batches. In the first two an image is seen only 19
# and 32 times, so that accuracy still rises over the last ten epochs.
WIDE: Values = {**CIFAR_CUT, "model_options": {**NARROW["model_options"], "channels": [32, 64, 128, 256]}}
MORE_IMAGES: Values = {**CIFAR_CUT, "per_class": 500, "epochs": 19}
LONG: Values = {**CIFAR_CUT, "epochs": 250, "batch_size": 100, "eval_every": 25}
_REGIMES = (
    Column("images", "CIFAR-100, 20 classes x 500 images, 5,928 steps, top-1 % after the last epoch",
           MORE_IMAGES, "last_top1"),
    Column("classes", "CIFAR-100, 100 classes x 100 images, 9,984 steps, top-1 % after the last epoch",
           {**CIFAR_CUT, "classes": 100, "epochs": 32}, "last_top1"),
    Column("long", "CIFAR-100, 20 classes x 100 images, 5,000 steps of 100, top-1 %", LONG),
    Column("images-long", "CIFAR-100, 20 classes x 500 images, 6,000 steps of 100, top-1 %",
           {**CIFAR_CUT, "per_class": 500, "epochs": 60, "batch_size": 100}),
    Column("wide", "CIFAR-100, 20 classes x 100 images, twice the channels, top-1 %", WIDE),
    Column("shapes-lr", "shapes, twice the learning rate (0.2), top-1 %", {**SHAPES, "lr": 0.2}),
)  # fmt: skip
_IN_REGIMES = ("vanilla", "mixup", "cutmix", "mixup-clean-end", "cutmix-clean-end", "automix",
               "automix-no-vectors", "automix-no-vectors-mixed-end")  # fmt: skip
_REGIME_ROWS = tuple(row for row in ROWS if row.name in _IN_REGIMES)
REPLICA_REGIMES = make_experiment(
    name="replica-regimes",
    title="other budgets, a wider network",
    source="ours",
    rows=_REGIME_ROWS,
    columns=_REGIMES,
)

_ON_SHAPES = (Column("shapes", "shapes, parts of the Mix Block, top-1 %", SHAPES),)
_BLOCK_ROWS = (*MIX_BLOCK_ROWS, METHODS["automix"])
REPLICA_MIX_BLOCK = make_experiment(
    name="replica-mix-block",
    title="Table 9 for two cores, on shapes",
    source="ours",
    rows=_BLOCK_ROWS,
    columns=_ON_SHAPES,
)

_PIPELINE_COLUMNS = tuple(
    Column(f"shapes-{method}", f"shapes, {title}, top-1 %",
           {**SHAPES, "method": method, **({} if has_own_teacher(method) else {"alpha": 1.0})})
    for method, title in PIPELINE_METHODS.items()
)  # fmt: skip
REPLICA_PIPELINE = Experiment(
    name="replica-pipeline",
    title="Table 10 for two cores, on shapes",
    source="ours",
    rows=PIPELINE_ROWS,
    columns=_PIPELINE_COLUMNS,
    cells=tuple(
        pipeline_cell(row.name, column, None, block_options={**ALGORITHM1, **NO_CLASS_VECTORS})
        for row in PIPELINE_ROWS
        for column in _PIPELINE_COLUMNS
    ),
    reference="mp-ce",
)
