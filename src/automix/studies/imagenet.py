"""The paper's tables on ImageNet-1k: Table 2 (PyTorch's setting), Table 3 (RSB) and Table 4 (DeiT)."""

from dataclasses import replace

from automix.studies.cells import Row
from automix.studies.experiment import make_experiment
from automix.studies.names import R18, R34, R50, R101, RX101, column, method_rows

_NETWORKS = {"r18": ("R-18", R18), "r34": ("R-34", R34), "r50": ("R-50", R50), "r101": ("R-101", R101)}
TABLE2_COLUMNS = (
    *(column(f"{name}-100ep", f"{title}, 100 epochs", "imagenet", model, "pytorch100")
      for name, (title, model) in {**_NETWORKS, "rx101": ("RX-101", RX101)}.items()),
    *(column(f"{name}-300ep", f"{title}, 300 epochs", "imagenet", model, "pytorch300")
      for name, (title, model) in _NETWORKS.items()),
)  # fmt: skip
TABLE2_PAPER = {
    "vanilla": (70.04, 73.85, 76.83, 78.18, 78.71, 71.83, 75.29, 77.35, 78.91),
    "mixup": (69.98, 73.97, 77.12, 78.97, 79.98, 71.72, 75.73, 78.44, 80.60),
    "cutmix": (68.95, 73.58, 77.17, 78.96, 80.42, 71.01, 75.16, 78.69, 80.59),
    "manifoldmix": (69.98, 73.98, 77.01, 79.02, 79.93, 71.73, 75.44, 78.21, 80.64),
    "saliencymix": (69.16, 73.56, 77.14, 79.32, 80.27, 70.21, 75.01, 78.46, 80.45),
    "fmix": (69.96, 74.08, 77.19, 79.09, 80.06, 70.30, 75.12, 78.51, 80.20),
    "puzzlemix": (70.12, 74.26, 77.54, 79.43, 80.53, 71.64, 75.84, 78.86, 80.67),
    "resizemix": (69.50, 73.88, 77.42, 79.27, 80.55, 71.32, 75.64, 78.91, 80.52),
    "automix": (70.50, 74.52, 77.91, 79.87, 80.89, 72.05, 76.10, 79.25, 80.98),
}
TABLE2 = make_experiment(
    name="table2",
    title="top-1 on ImageNet, ResNets, 100 and 300 epochs",
    source="tab:cls_in_torch",
    rows=method_rows(*TABLE2_PAPER),
    columns=TABLE2_COLUMNS,
    paper=TABLE2_PAPER,
)

TABLE3_COLUMNS = (
    column("r50-a3", "R-50, RSB A3", "imagenet", R50, "rsb-a3"),
    column("efficientnet-a2", "EfficientNet B0, RSB A2", "imagenet", "efficientnet_b0", "rsb-a2"),
    column("efficientnet-a3", "EfficientNet B0, RSB A3", "imagenet", "efficientnet_b0", "rsb-a3"),
    column("mobilenet-a2", "MobileNet.V2, RSB A2", "imagenet", "mobilenetv2_100", "rsb-a2"),
    column("mobilenet-a3", "MobileNet.V2, RSB A3", "imagenet", "mobilenetv2_100", "rsb-a3"),
)
TABLE3_PAPER = {
    "mixup_or_cutmix": (78.08, 77.26, 74.02, 72.87, 69.86),
    "mixup": (77.66, 77.19, 73.87, 72.78, 70.17),
    "cutmix": (77.62, 77.24, 73.46, 72.23, 69.62),
    "manifoldmix": (77.78, 77.22, 73.83, 72.34, 70.05),
    "saliencymix": (77.93, 77.67, 73.42, 72.07, 69.69),
    "fmix": (77.76, 77.33, 73.71, 72.79, 70.10),
    "puzzlemix": (78.02, 77.35, 74.10, 72.85, 70.04),
    "resizemix": (77.85, 77.27, 73.67, 72.50, 69.94),
    "automix": (78.44, 77.58, 74.61, 73.19, 71.16),
}


def _titled(title: str, rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Give mixup_or_cutmix the name of the recipe, as in the paper."""
    return tuple(replace(row, title=title) if row.name == "mixup_or_cutmix" else row for row in rows)


TABLE3_ROWS = _titled("RSB", method_rows(*TABLE3_PAPER))
TABLE3 = make_experiment(
    name="table3",
    title="top-1 on ImageNet, RSB A2/A3, light ConvNets",
    source="tab:cls_in_rsb",
    rows=TABLE3_ROWS,
    columns=TABLE3_COLUMNS,
    paper=TABLE3_PAPER,
    notes=(
        "RSB mixes each batch by MixUp or by CutMix, at random (method mixup_or_cutmix)",
        "on EfficientNet B0 by A2 the paper has SaliencyMix above AutoMix, and counts the gain over PuzzleMix",
    ),
)

TABLE4_COLUMNS = (
    column("deit-s", "DeiT-S", "imagenet", "deit_small_patch16_224", "deit"),
    column("swin-t", "Swin-T", "imagenet", "swin_tiny_patch4_window7_224", "deit"),
    column("convnext-t", "ConvNeXt-T", "imagenet", "convnext_tiny", "deit"),
)
TABLE4_PAPER = {
    "mixup_or_cutmix": (79.80, 81.28, 82.10),
    "mixup": (79.65, 81.01, 80.88),
    "cutmix": (79.78, 81.20, 81.57),
    "attentivemix": (77.63, 77.27, 78.19),
    "saliencymix": (79.88, 81.37, 81.33),
    "fmix": (77.37, 79.60, 81.04),
    "puzzlemix": (80.45, 81.47, 81.48),
    "resizemix": (78.61, 81.36, 81.64),
    "transmix": (80.70, 81.80, None),
    "automix": (80.78, 81.80, 82.28),
}
_NO_ATTENTION = "TransMix needs attention, which this network does not have"
TABLE4_ROWS = _titled("DeiT", method_rows(*TABLE4_PAPER))
TABLE4 = make_experiment(
    name="table4",
    title="top-1 on ImageNet, DeiT's setting, ViTs",
    source="tab:cls_in_vits",
    rows=TABLE4_ROWS,
    columns=TABLE4_COLUMNS,
    paper=TABLE4_PAPER,
    impossible={("transmix", "convnext-t"): _NO_ATTENTION},
    notes=(
        "DeiT mixes each batch by MixUp or by CutMix, at random (method mixup_or_cutmix); its setting has EMA, so the "
        "paper's numbers stand beside our teachers",
        "AttentiveMix takes its attention from the trained network itself; "
        "--set method_options.helper=resnet50 gives it a pretrained one",
    ),
)
