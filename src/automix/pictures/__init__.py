"""Pictures of mixed samples, and the grid that all pictures of the package are laid out with.

Everything here draws with Pillow; plots of curves and bars are made with matplotlib elsewhere.
"""

from automix.pictures.grid import Tile, image_grid, stack_pictures, tile_grid, to_image
from automix.pictures.mask_history import add_to_history
from automix.pictures.mixed_samples import MixedSamples, draw_mixed_samples, mix_samples

__all__ = [
    "MixedSamples",
    "Tile",
    "add_to_history",
    "draw_mixed_samples",
    "image_grid",
    "mix_samples",
    "stack_pictures",
    "tile_grid",
    "to_image",
]
