"""What can be said of a dataset without reading it whole: how many images, how many classes, how large they are."""

from dataclasses import dataclass
from pathlib import Path

from automix.data.datasets import open_dataset
from automix.data.decode import BadImage
from automix.data.registry import DATASETS
from automix.data.sources import Split

SAMPLES = 9  # images whose sizes are looked at


@dataclass(frozen=True)
class DataFacts:
    """The size of a dataset.

    Attributes:
        train_count: Number of training images, files that cannot be read included.
        num_classes: Number of classes.
        short_side: Median of the short sides of some training images in pixels; None if none of them can be read.
    """

    train_count: int
    num_classes: int
    short_side: int | None


def look_at_data(
    name: str, root: Path | None = None, *, classes: int | None = None, per_class: int | None = None
) -> DataFacts:
    """List a dataset and look at the sizes of a few of its images.

    Args:
        name: A name in `DATASETS`, a folder, or a name with a prefix; see `open_dataset`.
        root: Where named datasets are; AUTOMIX_DATA or ./data if not given.
        classes: Keep the first so many classes; all if not given.
        per_class: Keep so many training images of each class; all if not given.

    Returns:
        The facts.
    """
    train, _ = open_dataset(name, root, classes=classes, per_class=per_class)
    known = DATASETS.get(name)
    side = known.image_size if known is not None and known.image_size else median_short_side(train, skip_bad=True)
    return DataFacts(len(train), len(train.classes), side)


def median_short_side(train: Split, *, skip_bad: bool = False) -> int | None:
    """Look at the sizes of a few images.

    Args:
        train: The dataset.
        skip_bad: Pass over files that cannot be read, which training finds again. They raise `BadImage` otherwise.

    Returns:
        The median of their short sides in pixels; None if none of them can be read.
    """
    count = min(SAMPLES, len(train))
    sides = []
    for number in range(count):
        try:
            sides.append(min(train.read(number * len(train) // count)[0].size))
        except BadImage:
            if not skip_bad:
                raise
    return sorted(sides)[len(sides) // 2] if sides else None
