"""Detection data by name: VOC's and COCO's files, or drawn scenes."""

from pathlib import Path

from automix.data.datasets import data_root
from automix.studies.detection.data import DetectionSet
from automix.studies.detection.layouts import coco, voc
from automix.studies.detection.scenes import draw_scenes


def open_detection_data(name: str, root: Path | None = None) -> tuple[DetectionSet, DetectionSet]:
    """The training and the test set: `shapes`, `voc`, `coco`, or a folder in the layout of one of the latter two.

    `voc` is the folder VOCdevkit and `coco` the folder coco below `root` (else AUTOMIX_DATA, else ./data).
    """
    if name == "shapes":
        return draw_scenes(1200, seed=0), draw_scenes(240, seed=1)
    if name == "voc":
        return voc(data_root(root) / "VOCdevkit")
    if name == "coco":
        return coco(data_root(root) / "coco")
    folder = Path(name)
    if (folder / "annotations").is_dir():
        return coco(folder)
    if (folder / "VOC2007").is_dir():
        return voc(folder)
    found = "no VOC2007 and no annotations in it" if folder.is_dir() else "no such folder"
    raise ValueError(f"data {name!r}: {found}; accepted are shapes, voc, coco, a VOCdevkit or a folder of COCO's")
