"""The methods, networks and datasets of the paper's tables, in our names."""

from automix.studies.cells import Column, Row, Values

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


def rows(*names: str) -> tuple[Row, ...]:
    return tuple(METHODS[name] for name in names)


def column(
    name: str, title: str, data: str, model: str, recipe: str, *, measure: str = "top1", **values: object
) -> Column:
    """A column from the settings that decide it; further `values` are settings that differ from the recipe's."""
    given: Values = {"data": data, "model": model, "recipe": recipe, **values}
    return Column(name, title, given, measure)
