"""Noisy labels: `automix bench label-noise`.

The settings of the short fine-tuning on birds and of the replica on CIFAR-100, with 0, 20 and 40 % of the training
labels replaced by another class. The same seed makes the same labels wrong for every method.
"""

from automix.studies.cells import Column, Row
from automix.studies.experiment import make_experiment
from automix.studies.finetune import FINETUNE
from automix.studies.names import METHODS
from automix.studies.replica import CIFAR_CUT
from automix.studies.settings import Values

NOISE = (0, 20, 40)  # percent of the training labels

_BIRDS = next(column for column in FINETUNE.columns if column.name == "birds-short")  # without noise, its runs are used

_DATA: dict[str, tuple[str, Values]] = {
    "birds": ("birds, fine-tuned", _BIRDS.values),
    "cifar": ("CIFAR-100, 20 classes x 100 images", CIFAR_CUT),
}


def _column(data: str, percent: int) -> Column:
    title, values = _DATA[data]
    return Column(
        f"{data}-{percent}",
        f"{title}, {percent} % wrong labels: top-1 %",
        {**values, "label_noise": percent / 100} if percent else values,
        "last_top1",
    )


ROWS = (
    METHODS["vanilla"],
    Row("mixup", "MixUp", {"method": "mixup", "alpha": 1.0}),
    Row("cutmix", "CutMix", {"method": "cutmix", "alpha": 1.0}),
    Row("regmixup", "RegMixup", {"method": "regmixup", "alpha": 10.0}),
    METHODS["automix"],
)

LABEL_NOISE = make_experiment(
    name="label-noise",
    title="wrong training labels: birds and CIFAR-100",
    source="ours",
    rows=ROWS,
    columns=tuple(_column(data, percent) for data in _DATA for percent in NOISE),
    trials=3,
    notes=(
        "the accuracy is that of the last epoch, on test images with right labels: the best epoch would be chosen by "
        "them, and wrong labels are learned late",
        "AutoMix ends on clean images on CIFAR-100 (preset tuned) and learns their wrong labels then; "
        "--methods automix --set method_options.mix_until=1 mixes until the end",
    ),
)
