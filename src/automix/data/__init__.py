"""Datasets by name or folder, and the batches made of them."""

from automix.data.augmentation import Augmentation
from automix.data.images import ImageSet
from automix.data.listing import BadImage, Listing
from automix.data.memory import MemoryLoader
from automix.data.names import DATASETS, Dataset, check_data, open_dataset
from automix.data.open import Data, load_images, open_data
from automix.data.plan import BatchPlan
from automix.data.shapes import Shapes, draw_shapes
from automix.data.stream import StreamLoader

__all__ = [
    "DATASETS",
    "Augmentation",
    "BadImage",
    "BatchPlan",
    "Data",
    "Dataset",
    "ImageSet",
    "Listing",
    "MemoryLoader",
    "Shapes",
    "StreamLoader",
    "check_data",
    "draw_shapes",
    "load_images",
    "open_data",
    "open_dataset",
]
