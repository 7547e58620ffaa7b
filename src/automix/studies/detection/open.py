"""Detection data by name: VOC's and COCO's files, or drawn scenes."""

from pathlib import Path

from automix.core.errors import AutomixError
from automix.data.datasets import data_root
from automix.studies.detection.data import DetectionSet
from automix.studies.detection.layouts import read_coco, read_voc
from automix.studies.detection.scenes import draw_scenes


def open_detection_data(name: str, root: Path | None = None) -> tuple[DetectionSet, DetectionSet]:
    """Open a detection dataset.

    Args:
        name: ``shapes``, ``voc``, ``coco``, or a folder in the layout of one of the latter two.
        root: The folder that holds VOCdevkit and coco; AUTOMIX_DATA or ./data if not given.

    Returns:
        The training and the test set.
    """
    if name == "shapes":
        return draw_scenes(1200, seed=0), draw_scenes(240, seed=1)
    if name == "voc":
        return read_voc(data_root(root) / "VOCdevkit")
    if name == "coco":
        return read_coco(data_root(root) / "coco")
    folder = Path(name)
    if (folder / "annotations").is_dir():
        return read_coco(folder)
    if (folder / "VOC2007").is_dir():
        return read_voc(folder)
    reason = "neither VOC2007 nor annotations in it" if folder.is_dir() else "no such folder"
    raise AutomixError(f"data must be shapes, voc, coco, a VOCdevkit or a COCO folder, got {name!r} ({reason})")
