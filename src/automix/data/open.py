"""From a dataset's name and an augmentation to batches: in memory where images are small, streamed otherwise."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from automix.core.validation import check_choice
from automix.data.augmentation import Augmentation, padding_for
from automix.data.bad_files import Progress, SkippedFile, drop_bad_files, find_bad_files, read_skipped
from automix.data.batch_plan import BatchPlan
from automix.data.datasets import DATASETS, Split, open_dataset
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet
from automix.data.memory_loader import MemoryLoader
from automix.data.stream_loader import StreamLoader

SMALL = 64  # pixels: up to this size images are held in memory
MEMORY_LIMIT = 4 * 2**30  # bytes of training images; larger sets are streamed whatever their size
PHOTO_SIZE = 224  # of larger images, where the augmentation names no size
LOOKED_AT = 9  # images whose sizes tell that of the others

BadData = Literal["fail", "skip"]

Loadable = ImageSet | ImageFiles  # what can be held in memory; the other kinds are streamed


@dataclass(frozen=True)
class Data:
    """A dataset ready for training; `image_size` is the size in training, in pixels.

    `skipped` are the files that were left out and do not count; None where that was not asked for.
    """

    name: str
    classes: tuple[str, ...]
    image_size: int
    train_count: int
    test_count: int
    loader: MemoryLoader | StreamLoader
    skipped: tuple[SkippedFile, ...] | None = None

    def file_counts(self) -> dict[str, int]:
        """Files for training and testing, the skipped ones included."""
        left_out = [file.use for file in self.skipped or ()]
        counts = {"training": self.train_count, "testing": self.test_count}
        return {use: count + left_out.count(use) for use, count in counts.items()}


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
    world_size: int = 1,
    accumulate: int = 1,
    workers: int = 2,
    bad_data: BadData = "fail",
    skip_list: Path | None = None,
    progress: Progress | None = None,
) -> Data:
    """The dataset `name` (see names.py) with its batches.

    Images of up to 64 px are held in memory, unless the augmentation works on one image at a time (RandAugment and the
    like) or the set comes through a reader (hfds/, torch/, wds/, tar files); everything else is streamed by `workers`
    processes. In memory, pixels are normalized by the training set's statistics, on streams by ImageNet's.

    `classes` restricts both sets to the first classes, `per_class` the training set to so many images of each, drawn by
    `subset_seed`: runs that differ in `seed` alone share their images. `batch_size` is that of a whole step, over the
    `world_size` processes and their `accumulate`.

    `bad_data` is what happens to a file that cannot be read: "fail" is a BadImage when it is met, "skip" leaves it out
    of both sets (see skip.py), from the list in the file `skip_list` where there is one; otherwise all files are read
    to find the bad ones, and `progress` is told how far that is. Files left out of a subset are not replaced.
    """
    check_choice("bad_data", bad_data, get_args(BadData))
    known = DATASETS.get(name)
    drawn = known is not None and known.draw is not None
    per_image = augmentation.per_image()
    if drawn and per_image:
        raise ValueError(f"{per_image[0]} on data {name!r}: accepted are crop and flip")
    if known is not None and not known.flip:
        augmentation = replace(augmentation, flip=False)
    train, test = open_subset(name, root, augmentation.train_size, classes, per_class, subset_seed)
    skipped = None
    if bad_data == "skip":
        if skip_list is not None and skip_list.exists():
            skipped = read_skipped(skip_list, train, test)
        else:
            skipped = find_bad_files(train, test, workers, progress)
        train, test = drop_bad_files(skipped, train, test)
    plan = BatchPlan(len(train), batch_size, seed, augmentation.repeats, rank, world_size, accumulate)
    size = augmentation.train_size or _native_size(train)
    test_size = augmentation.test_size or size
    fits = size <= SMALL and len(train) * 3 * size**2 <= MEMORY_LIMIT and not per_image
    loader: MemoryLoader | StreamLoader
    if isinstance(train, Loadable) and isinstance(test, Loadable) and (drawn or fits):
        loader = MemoryLoader(
            _in_memory(train, size),
            plan,
            test=_in_memory(test, test_size, augmentation.test_crop),
            crop=augmentation.crop,
            padding=padding_for(size),
            flip=augmentation.flip,
        )
    else:
        loader = StreamLoader(train, test, plan, augmentation, train_size=size, test_size=test_size, workers=workers)
    return Data(name, train.classes, size, len(train), len(test), loader, skipped)


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
    if not isinstance(train, Loadable) or not isinstance(test, Loadable):
        raise ValueError(f"data {str(name)!r} can be streamed only: accepted are named datasets and folders of images")
    return _in_memory(train, image_size), _in_memory(test, image_size)


def open_subset(
    name: str, root: Path | None, size: int | None, classes: int | None, per_class: int | None, seed: int
) -> tuple[Split, Split]:
    """`open_dataset`, restricted to some classes and images."""
    train, test = open_dataset(name, root, image_size=size)
    if classes is None and per_class is None:
        return train, test
    if not isinstance(train, Loadable) or not isinstance(test, Loadable):
        raise ValueError(f"classes and per_class on data {name!r}: accepted are named datasets and folders of images")
    return train.subset(classes=classes, per_class=per_class, seed=seed), test.subset(classes=classes)


def _native_size(train: Split) -> int:
    """The usual short side where it is small, else the size that networks for photos are made for.

    Usual is the median of a few images, so that no odd one alone decides.
    """
    count = min(LOOKED_AT, len(train))
    sides = sorted(min(train.read(number * len(train) // count)[0].size) for number in range(count))
    size = sides[count // 2]
    return size if size <= SMALL else PHOTO_SIZE


def _in_memory(part: Loadable, size: int | None, crop: float = 1.0) -> ImageSet:
    if isinstance(part, ImageFiles):
        return part.in_memory(size, crop)
    return part if size is None else part.resized(size, crop)
