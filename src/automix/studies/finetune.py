"""Fine-tuning on photographs: `automix bench finetune`.

A pretrained EfficientNet-Lite0 on birds (a folder `birds` below the data root: 40 species) and on the Oxford pets (37
breeds), with all training images and with 10 of each class, for about 600 and about 5,000 steps of 16 images of 96 px.
RegMixup's step costs two of plain training's, so that there is a column with twice the short length for equal time.
The recipe was chosen with held-out training images (docs/results/finetune.md).
"""

from automix.studies.ablations import automix_row
from automix.studies.cells import Column, Row
from automix.studies.experiment import make_experiment
from automix.studies.names import METHODS
from automix.studies.settings import Values

SETTING: Values = {
    "recipe": "finetune", "model": "tf_efficientnet_lite0", "batch_size": 16, "train_size": 96, "test_size": 96,
    "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "eval_last": 1, "workers": 0,
}  # fmt: skip

ZOO = "zoo:tf_efficientnet_lite0-birds"  # trained on the birds' training images
CLEAN_BESIDE: Values = {"aux_loss": "clean", "mix_share": 1.0}  # two passes of the student, as RegMixup has
FEW = 10  # images of a class
_EPOCHS: dict[tuple[str, str, str], int] = {
    # steps in an epoch: birds 74, pets 92; with 10 images of a class 25 and 23
    ("birds", "all", "short"): 8,
    ("birds", "all", "double"): 16,
    ("birds", "all", "long"): 68,
    ("birds", "few", "short"): 24,
    ("birds", "few", "long"): 200,
    ("pets", "all", "short"): 7,
    ("pets", "all", "double"): 14,
    ("pets", "all", "long"): 55,
    ("pets", "few", "short"): 26,
    ("pets", "few", "long"): 218,
}


def _column(data: str, images: str, length: str, measure: str = "last_top1", title: str = "top-1 %") -> Column:
    epochs = _EPOCHS[data, images, length]
    values = {**SETTING, "data": data, "epochs": epochs, "eval_every": epochs // 4 if length == "long" else epochs}
    if images == "few":
        values["per_class"] = FEW
    kind = measure.rpartition("/")[2] if measure != "last_top1" else ""
    name = "-".join([data, *(["few"] if images == "few" else []), length, *([kind] if kind else [])])
    count = "10 a class" if images == "few" else "all images"
    return Column(name, f"{data}, {count}, {length}: {title}", values, measure)


COLUMNS = (
    *(_column(data, images, length) for data, images, length in _EPOCHS),
    *(_column(data, "all", length, "calibration/ece", "ECE % (lower is better)")
      for data in ("birds", "pets") for length in ("short", "double", "long")),
    *(_column("pets", "all", length, "localization/max_box_acc", "MaxBoxAccV2 %") for length in ("short", "long")),
    *(_column(data, "all", "short", "attacks/fgsm_error", "FGSM error % (lower is better)")
      for data in ("birds", "pets")),
    _column("birds", "all", "short", "efficiency/step_ratio", "time of a step, a plain step's is 1"),
)  # fmt: skip


def _row(name: str, title: str, method: str, alpha: float | None = None, **options: object) -> Row:
    values: Values = {"method": method, "method_options": options}
    return Row(name, title, values if alpha is None else {**values, "alpha": alpha})


ROWS = (
    METHODS["vanilla"],
    _row("mixup", "MixUp, alpha 0.2", "mixup", 0.2),
    _row("mixup-clean-end", "MixUp, clean end", "mixup", 0.2, mix_until=0.7),
    _row("regmixup", "RegMixup (clean + MixUp, alpha 10)", "regmixup", 10.0),
    _row("mixup-half", "MixUp on half of the batch", "mixup", 2.0, mix_share=0.5),
    _row("cutmix", "CutMix", "cutmix", 1.0),
    _row("cutmix-objects", "CutMix, labels by visible object", "cutmix", 1.0, objects="teacher"),
    _row("resizemix", "ResizeMix", "resizemix", 1.0),
    _row("puzzlemix", "PuzzleMix", "puzzlemix", 1.0),
    automix_row("automix", "AutoMix (finetune)", preset="finetune"),
    automix_row("automix-clean", "AutoMix (finetune), clean images beside it", preset="finetune", **CLEAN_BESIDE),
    automix_row("automix-zoo", "AutoMix (finetune), trained block", preset="finetune", mix_block=ZOO, block_lr=0.0),
    automix_row("automix-tuned", "AutoMix (tuned)", preset="tuned"),
    automix_row("automix-fast", "AutoMix (fast)", preset="fast"),
    automix_row("automix-paper", "AutoMix (paper)", preset="paper"),
)

FINETUNE = make_experiment(
    name="finetune",
    title="fine-tuning on photographs: birds and pets",
    source="ours",
    rows=ROWS,
    columns=COLUMNS,
    trials=5,
    notes=(
        "short: about 600 steps, double: 1,200, long: 5,000; batches of 16 images of 96 px, EfficientNet-Lite0",
        "Vanilla's student is plain training, its teacher plain training with EMA",
    ),
)
