"""Masks of objects from the segmentation files of a dataset, and the boxes around them."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from automix.data.decode import BadImage, image_error

if TYPE_CHECKING:
    import numpy as np

BACKGROUND = 2  # of Oxford-IIIT Pets' trimaps: 1 is the animal, 3 its border


def read_trimap(path: str) -> "np.ndarray[Any, np.dtype[np.bool_]]":
    """Read the mask of an object from a trimap of Oxford-IIIT Pets.

    Args:
        path: A PNG file with the values 1 (object), 2 (background) and 3 (border of the object).

    Returns:
        True where the object or its border is, ``(H, W)``.

    Raises:
        BadImage: The file cannot be read as a trimap.
    """
    import numpy as np
    from PIL import Image

    try:
        with Image.open(path) as image:
            values = np.asarray(image)
    except Exception as error:
        raise image_error(path, error) from None
    if values.ndim != 2:
        raise BadImage(f"{path}: a trimap must have 1 channel, got {values.shape[-1]}")
    return values != BACKGROUND


def mask_box(mask: "np.ndarray[Any, np.dtype[np.bool_]]") -> Tensor:
    """Find the smallest box around a mask.

    Args:
        mask: True where the object is, ``(H, W)``.

    Returns:
        ``(4,)`` float: x0, y0, x1, y1 in pixels, x1 and y1 exclusive; zeros if the mask is empty.
    """
    if not mask.any():
        return torch.zeros(4)
    columns, rows = mask.any(axis=0).nonzero()[0], mask.any(axis=1).nonzero()[0]
    return torch.tensor([float(end) for end in (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)])
