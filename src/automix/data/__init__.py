"""Datasets by name or folder, and the batches made of them."""

from automix.data.augmentation import Augmentation
from automix.data.bad_files import SKIPPED, Progress, SkippedFile, write_skipped
from automix.data.batch_plan import BatchPlan
from automix.data.datasets import DATASETS, Dataset, check_data, open_dataset
from automix.data.decode import BadImage, ReadingError
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet
from automix.data.memory_loader import MemoryLoader
from automix.data.open import BadData, Data, load_images, open_data
from automix.data.shapes import Shapes, draw_shapes
from automix.data.stream_loader import StreamLoader

__all__ = [
    "DATASETS",
    "SKIPPED",
    "Augmentation",
    "BadData",
    "BadImage",
    "BatchPlan",
    "Data",
    "Dataset",
    "ImageSet",
    "ImageFiles",
    "MemoryLoader",
    "Progress",
    "ReadingError",
    "Shapes",
    "SkippedFile",
    "StreamLoader",
    "check_data",
    "draw_shapes",
    "load_images",
    "open_data",
    "open_dataset",
    "write_skipped",
]
