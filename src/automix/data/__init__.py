"""Datasets by name or folder, and the batches made of them."""

from automix.data.images import ImageSet, load_images
from automix.data.loader import MemoryLoader
from automix.data.shapes import Shapes, draw_shapes

__all__ = ["ImageSet", "MemoryLoader", "Shapes", "draw_shapes", "load_images"]
