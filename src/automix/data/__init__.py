"""Datasets by name or folder, and the batches made of them."""

from automix.data.augmentation import Augmentation
from automix.data.decode import BadImage, ReadingError
from automix.data.images import ImageSet
from automix.data.listing import Listing
from automix.data.memory import MemoryLoader
from automix.data.names import DATASETS, Dataset, check_data, open_dataset
from automix.data.open import BadData, Data, load_images, open_data
from automix.data.plan import BatchPlan
from automix.data.shapes import Shapes, draw_shapes
from automix.data.skip import SKIPPED, Progress, SkippedFile, write_skipped
from automix.data.stream import StreamLoader

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
    "Listing",
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
