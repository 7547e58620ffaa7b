"""Datasets by name or folder, and the batches made of them.

A batch is a function of (seed, step): training can resume anywhere, with any number of workers.
"""

from automix.data.augmentation import Augmentation
from automix.data.bad_files import OtherDataError, Progress, SkippedFile, write_skipped
from automix.data.batch_plan import BatchPlan
from automix.data.datasets import check_data, data_root, open_dataset
from automix.data.decode import BadImage, ReadingError, read_image
from automix.data.decode_cache import CachePlan, Caching
from automix.data.folders import describe_ignored
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet
from automix.data.memory_loader import MemoryLoader
from automix.data.open import BadData, Balance, Data, load_images, open_data
from automix.data.registry import DATASETS, Dataset
from automix.data.shapes import Shapes, draw_shapes
from automix.data.stream_loader import StreamLoader

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
