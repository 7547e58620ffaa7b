"""Datasets that need no download: `digits` (scikit-learn's) and `shapes` (drawn from a seed)."""

import torch
import torch.nn.functional as F

from automix.core.errors import AutomixError
from automix.data.image_set import ImageSet
from automix.data.shapes import CLASSES, draw_shapes


def digits(size: int) -> tuple[ImageSet, ImageSet]:
    """Load scikit-learn's 1,797 handwritten digits; every third one is a test image.

    Args:
        size: Side of the images in pixels; they are enlarged from 8 x 8.

    Returns:
        The training set and the test set.
    """
    try:
        import sklearn.datasets
    except ImportError:
        raise AutomixError("data 'digits' needs scikit-learn; pip install 'automix[examples]'") from None
    data = sklearn.datasets.load_digits()
    pixels = torch.from_numpy(data.images).unsqueeze(1) * (255 / 16)
    pixels = F.interpolate(pixels, size=(size, size), mode="bilinear", align_corners=False)
    images = pixels.round().byte().repeat(1, 3, 1, 1)
    labels = torch.from_numpy(data.target).long()
    testing = torch.arange(len(labels)) % 3 == 0
    names = tuple(str(digit) for digit in range(10))
    return ImageSet(images[~testing], labels[~testing], names), ImageSet(images[testing], labels[testing], names)


def shapes(size: int) -> tuple[ImageSet, ImageSet]:
    """Draw the dataset `shapes`: 5,040 training images and 1,920 test images, with boxes.

    Args:
        size: Side of the images in pixels.

    Returns:
        The training set and the test set.
    """
    train, test = (
        ImageSet(drawn.images, drawn.labels, CLASSES, drawn.boxes.float())
        for drawn in (draw_shapes(5040, size, seed=0), draw_shapes(1920, size, seed=1))
    )
    return train, test
