"""Methods and networks that many of the paper's tables share."""

from automix.studies.cells import Column, Row
from automix.studies.settings import Values

R18, R34, R50, R101 = "resnet18", "resnet34", "resnet50", "resnet101"
RX50, RX101 = "resnext50_32x4d", "resnext101_32x4d"
WRN = "wrn_28_8"

METHODS = {
    row.name: row
    for row in (
        Row("vanilla", "Vanilla", {"method": "vanilla"}),
        Row("mixup", "MixUp", {"method": "mixup"}),
        Row("cutmix", "CutMix", {"method": "cutmix"}),
        Row("mixup_or_cutmix", "MixUp or CutMix", {"method": "mixup_or_cutmix"}),
        Row("manifoldmix", "ManifoldMix", {"method": "manifoldmix"}),
        Row("attentivemix", "AttentiveMix", {"method": "attentivemix"}),
        Row("saliencymix", "SaliencyMix", {"method": "saliencymix"}),
        Row("fmix", "FMix", {"method": "fmix"}),
        Row("puzzlemix", "PuzzleMix", {"method": "puzzlemix"}),
        Row("comixup", "Co-Mixup", {"method": "comixup"}, official=True),
        Row("resizemix", "ResizeMix", {"method": "resizemix"}),
        Row("transmix", "TransMix", {"method": "transmix"}, official=True),
        Row("augmix", "AugMix", {"method": "augmix"}, official=True),
        Row("automix", "AutoMix", {"method": "automix"}),
    )
}


def method_rows(*names: str) -> tuple[Row, ...]:
    """Select rows of `METHODS`.

    Args:
        *names: Names of methods.

    Returns:
        Their rows.
    """
    return tuple(METHODS[name] for name in names)


def column(
    name: str, title: str, data: str, model: str, recipe: str, *, measure: str = "top1", **values: object
) -> Column:
    """Make a column from its settings.

    Args:
        name: Its name for ``--columns``.
        title: Its name in the table.
        data: The dataset.
        model: The network.
        recipe: The recipe.
        measure: See `Column`.
        **values: Further settings, in place of the recipe's.

    Returns:
        The column.
    """
    given: Values = {"data": data, "model": model, "recipe": recipe, **values}
    return Column(name, title, given, measure)
