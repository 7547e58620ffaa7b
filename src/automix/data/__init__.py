"""Datasets by name or folder, and the batches made of them.

A batch is a function of (seed, step): training can resume anywhere, with any number of workers. Names are imported on
first use, so that the command line can read the settings of the data without torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from automix.data.augmentation import Augmentation
    from automix.data.bad_files import OtherDataError, Progress, SkippedFile, write_skipped
    from automix.data.batch_plan import BatchPlan
    from automix.data.choices import BadData, Balance, Caching
    from automix.data.datasets import check_data, data_root, open_dataset
    from automix.data.decode import BadImage, ReadingError, read_image
    from automix.data.decode_cache import CachePlan
    from automix.data.folders import describe_ignored
    from automix.data.image_files import ImageFiles
    from automix.data.image_set import ImageSet
    from automix.data.memory_loader import MemoryLoader
    from automix.data.open import Data, load_images, open_data
    from automix.data.registry import DATASETS, Dataset
    from automix.data.shapes import Shapes, draw_shapes
    from automix.data.stream_loader import StreamLoader

_NAMES = {
    "Augmentation": "automix.data.augmentation",
    "BadData": "automix.data.choices",
    "BadImage": "automix.data.decode",
    "Balance": "automix.data.choices",
    "BatchPlan": "automix.data.batch_plan",
    "CachePlan": "automix.data.decode_cache",
    "Caching": "automix.data.choices",
    "DATASETS": "automix.data.registry",
    "Data": "automix.data.open",
    "Dataset": "automix.data.registry",
    "ImageFiles": "automix.data.image_files",
    "ImageSet": "automix.data.image_set",
    "MemoryLoader": "automix.data.memory_loader",
    "OtherDataError": "automix.data.bad_files",
    "Progress": "automix.data.bad_files",
    "ReadingError": "automix.data.decode",
    "Shapes": "automix.data.shapes",
    "SkippedFile": "automix.data.bad_files",
    "StreamLoader": "automix.data.stream_loader",
    "check_data": "automix.data.datasets",
    "data_root": "automix.data.datasets",
    "describe_ignored": "automix.data.folders",
    "draw_shapes": "automix.data.shapes",
    "load_images": "automix.data.open",
    "open_data": "automix.data.open",
    "open_dataset": "automix.data.datasets",
    "read_image": "automix.data.decode",
    "write_skipped": "automix.data.bad_files",
}
"""Public names and the modules that define them."""

__all__ = [
    "DATASETS",
    "Augmentation",
    "BadData",
    "BadImage",
    "Balance",
    "BatchPlan",
    "CachePlan",
    "Caching",
    "Data",
    "Dataset",
    "ImageFiles",
    "ImageSet",
    "MemoryLoader",
    "OtherDataError",
    "Progress",
    "ReadingError",
    "Shapes",
    "SkippedFile",
    "StreamLoader",
    "check_data",
    "data_root",
    "describe_ignored",
    "draw_shapes",
    "load_images",
    "open_data",
    "open_dataset",
    "read_image",
    "write_skipped",
]


def __getattr__(name: str) -> Any:
    """Import a name on first use."""
    if name in _NAMES:
        return getattr(import_module(_NAMES[name]), name)
    raise AttributeError(f"module 'automix.data' has no attribute {name!r}")
