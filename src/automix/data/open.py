"""From a dataset's name and an augmentation to batches: in memory where images are small, streamed otherwise."""

from dataclasses import dataclass, replace
from pathlib import Path

from automix.data.augmentation import Augmentation, pad_of
from automix.data.images import ImageSet
from automix.data.listing import Listing, read_image
from automix.data.memory import MemoryLoader
from automix.data.names import DATASETS, Pair, open_dataset
from automix.data.plan import BatchPlan
from automix.data.readers import ReaderSet
from automix.data.stream import StreamLoader

SMALL = 64  # pixels: up to this size images are held in memory
MEMORY_LIMIT = 4 * 2**30  # bytes of training images; larger sets are streamed whatever their size
PHOTO_SIZE = 224  # of larger images, where the augmentation names no size


@dataclass(frozen=True)
class Data:
    """A dataset ready for training; `image_size` is the size in training, in pixels."""

    name: str
    classes: tuple[str, ...]
    image_size: int
    train_count: int
    test_count: int
    loader: MemoryLoader | StreamLoader


def open_data(
    name: str,
    augmentation: Augmentation,
    *,
    root: Path | None = None,
    classes: int | None = None,
    per_class: int | None = None,
    subset_seed: int = 0,
    batch_size: int,
    seed: int = 0,
    rank: int = 0,
    world: int = 1,
    pieces: int = 1,
    workers: int = 2,
) -> Data:
    """The dataset `name` (see names.py) with its batches.

    Images of up to 64 px are held in memory, unless the augmentation works on one image at a time (RandAugment and the
    like) or a timm reader opens the set; everything else is streamed by `workers` processes. In memory, pixels are
    normalised by the training set's statistics, on streams by ImageNet's.

    `classes` restricts both sets to the first classes, `per_class` the training set to so many images of each, drawn by
    `subset_seed`: runs that differ in `seed` alone share their images. `batch_size` is that of a whole step, over the
    `world` processes and their `pieces`.
    """
    train, test = open_subset(name, root, augmentation.train_size, classes, per_class, subset_seed)
    plan = BatchPlan(len(train), batch_size, seed, augmentation.repeats, rank, world, pieces)
    known = DATASETS.get(name)
    if known is not None and not known.flip:
        augmentation = replace(augmentation, flip=False)
    if known is not None and known.draw is not None and augmentation.of_pixels():
        raise ValueError(f"{augmentation.of_pixels()[0]} on data {name!r}: accepted are crop and flip")
    size = augmentation.train_size or _native_size(train)
    test_size = augmentation.test_size or size
    small = size <= SMALL and len(train) * 3 * size**2 <= MEMORY_LIMIT
    drawn = known is not None and known.draw is not None
    loader: MemoryLoader | StreamLoader
    if (
        not isinstance(train, ReaderSet)
        and not isinstance(test, ReaderSet)
        and (drawn or (small and not augmentation.of_pixels()))
    ):
        loader = MemoryLoader(
            _in_memory(train, size),
            plan,
            test=_in_memory(test, test_size, augmentation.test_crop),
            crop=augmentation.crop,
            padding=pad_of(size),
            flip=augmentation.flip,
        )
    else:
        loader = StreamLoader(train, test, plan, augmentation, train_size=size, test_size=test_size, workers=workers)
    return Data(name, train.classes, size, len(train), len(test), loader)


def load_images(
    name: str | Path,
    *,
    image_size: int | None = None,
    classes: int | None = None,
    per_class: int | None = None,
    seed: int = 0,
) -> tuple[ImageSet, ImageSet]:
    """The training and the test set `name` (see names.py) in memory, without batches.

    Images are brought to `image_size`; without it they stay as they are and must be equally large (16 px for digits,
    32 px for shapes). `classes` restricts both sets, `per_class` the training set. Only the images wanted are read.
    """
    if image_size is not None and image_size < 1:
        raise ValueError(f"image_size={image_size}: accepted is a number of pixels >= 1")
    train, test = open_subset(str(name), None, image_size, classes, per_class, seed)
    if isinstance(train, ReaderSet) or isinstance(test, ReaderSet):
        raise ValueError(f"data {str(name)!r} can be streamed only: accepted are {', '.join(DATASETS)}, or a folder")
    return _in_memory(train, image_size), _in_memory(test, image_size)


def open_subset(
    name: str, root: Path | None, size: int | None, classes: int | None, per_class: int | None, seed: int
) -> Pair:
    """`open_dataset`, restricted to some classes and images."""
    train, test = open_dataset(name, root, image_size=size)
    if classes is None and per_class is None:
        return train, test  # type: ignore[return-value]
    if isinstance(train, ReaderSet) or isinstance(test, ReaderSet):
        raise ValueError(f"classes and per_class on data {name!r}: accepted are named datasets and folders of images")
    chosen = train.subset(classes=classes, per_class=per_class, seed=seed)
    return chosen, test.subset(classes=classes)  # type: ignore[return-value]


def _native_size(train: ImageSet | Listing | ReaderSet) -> int:
    """The short side of the first image where it is small, else the size that networks for photos are made for."""
    if isinstance(train, ImageSet):
        return min(train.images.shape[-2:])
    size = min(read_image(train.paths[0]).size if isinstance(train, Listing) else train.read(0)[0].size)
    return size if size <= SMALL else PHOTO_SIZE


def _in_memory(part: ImageSet | Listing, size: int | None, crop: float = 1.0) -> ImageSet:
    if isinstance(part, Listing):
        return part.in_memory(size, crop)
    return part if size is None else part.resized(size, crop)
