"""From a dataset's name and an augmentation to batches: in memory if the images are small, else streamed."""

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import get_args

import torch

from automix.core.errors import AutomixError
from automix.core.normalization import IMAGENET, Normalization
from automix.core.validation import check_choice
from automix.data.augmentation import Augmentation, padding_for
from automix.data.bad_files import Progress, SkippedFile, drop_bad_files, find_bad_files, read_skipped
from automix.data.batch_plan import BatchPlan
from automix.data.choices import BadData, Balance, Caching
from automix.data.datasets import open_dataset
from automix.data.decode_cache import CachePlan, plan_cache
from automix.data.facts import median_short_side
from automix.data.folders import EXPECTED
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet
from automix.data.label_noise import add_label_noise
from automix.data.memory_loader import MemoryLoader
from automix.data.registry import DATASETS
from automix.data.sources import Loadable, Source, Split
from automix.data.stream_loader import StreamLoader

SMALL = 64  # pixels: up to this size images are held in memory
MEMORY_LIMIT = 4 * 2**30  # bytes of training images; larger sets are streamed whatever their size
PHOTO_SIZE = 224  # of larger images, if the augmentation gives no size


@dataclass(frozen=True)
class Data:
    """A dataset ready for training.

    Attributes:
        name: The name it was opened by.
        classes: The names of the classes, in the order of the labels.
        image_size: Side of the training images in pixels.
        train_count: Number of training images, without skipped files.
        test_count: Number of test images, without skipped files.
        loader: Gives the batches.
        skipped: The files that are left out; None unless opened with ``bad_data="skip"``.
        class_counts: Number of training images of each class; None if labels are known only by reading the images.
        ignored: How many files in the class folders are no images, by ending; see `describe_ignored`.
        cache: Which decoded images are kept in memory.
        wrong_labels: Number of training labels that label noise made wrong.
    """

    name: str
    classes: tuple[str, ...]
    image_size: int
    train_count: int
    test_count: int
    loader: MemoryLoader | StreamLoader
    skipped: tuple[SkippedFile, ...] | None = None
    class_counts: tuple[int, ...] | None = None
    ignored: Mapping[str, int] = field(default_factory=dict)
    cache: CachePlan = field(default_factory=CachePlan)
    wrong_labels: int = 0

    @property
    def normalization(self) -> Normalization:
        """How the loader normalizes images."""
        red, green, blue = self.loader.mean.tolist()
        deviations = self.loader.std.tolist()
        return Normalization((red, green, blue), (deviations[0], deviations[1], deviations[2]))

    def file_counts(self) -> dict[str, int]:
        """Count the files for "training" and "testing", the skipped ones included."""
        skipped = [file.use for file in self.skipped or ()]
        counts = {"training": self.train_count, "testing": self.test_count}
        return {use: count + skipped.count(use) for use, count in counts.items()}


def open_data(
    name: str,
    augmentation: Augmentation,
    *,
    root: Path | None = None,
    classes: int | None = None,
    per_class: int | None = None,
    subset_seed: int = 0,
    validation: float | None = None,
    batch_size: int,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
    accumulate: int = 1,
    workers: int = 2,
    decode_cache: Caching = "auto",
    normalization: Normalization | None = None,
    balance: Balance = "none",
    bad_data: BadData = "fail",
    skip_list: Path | None = None,
    label_noise: float = 0.0,
    progress: Progress | None = None,
) -> Data:
    """Open a dataset for training, with its batches.

    Images of up to 64 px are held in memory and normalized by the statistics of the training set. All others are
    streamed from disk by worker processes and normalized by ImageNet's statistics. Small images are streamed too if
    the augmentation works on one image at a time (RandAugment, for instance), or if they come through a reader (hfds/,
    torch/, wds/, tar files).

    Args:
        name: A name in `DATASETS`, a folder, or a name with a prefix; see `open_dataset`.
        augmentation: Sizes, crops and colors.
        root: Where named datasets are; AUTOMIX_DATA or ./data if not given.
        classes: Keep the first so many classes of both sets, at least 2; all if not given.
        per_class: Keep so many training images of each class; all if not given.
        subset_seed: Seed of the choice of `per_class` images. Runs that differ only in `seed` share their images.
        validation: Hold this share of the training images out, in place of the test set.
        batch_size: Images in a step, over all processes and accumulation steps.
        seed: Seed of the order and of the augmentation.
        rank: Number of this process.
        world_size: Number of processes.
        accumulate: Gradient accumulation steps of a process in a step.
        workers: Worker processes for streamed images; 0 reads in this process.
        decode_cache: "auto" keeps the decoded images of a folder in memory if they take at most 2 GiB, for which large
            photographs may be reduced to twice the training size; "exact" reduces none; "off" keeps none.
        normalization: Mean and standard deviation of the pixels, for instance those of pretrained weights. If not
            given, the ones above.
        balance: "sampling" draws images so that all classes come equally often. "loss" only checks that the labels are
            known without reading images: the loss is weighted by `Data.class_counts`.
        bad_data: "fail" raises `BadImage` when a file cannot be read. "skip" finds such files in advance and leaves
            them out; a `per_class` subset is not refilled.
        skip_list: With "skip", the list of bad files of an earlier start of the same run; if the file exists, the
            files are not searched again.
        label_noise: Share of the training labels that are replaced by another class, drawn by `seed`, in [0, 1).
        progress: With "skip", called with the number of images checked so far and the number of all images.

    Returns:
        The dataset and its loader.
    """
    check_choice("bad_data", bad_data, get_args(BadData))
    check_choice("balance", balance, get_args(Balance))
    check_choice("decode_cache", decode_cache, get_args(Caching))
    if classes is not None and classes < 2:
        raise AutomixError(f"classes must be >= 2, got {classes}")
    known = DATASETS.get(name)
    generated = known is not None and known.generate is not None
    per_image = augmentation.per_image()
    if generated and per_image:
        raise AutomixError(f"{per_image[0]} cannot be used on data {name!r}, only crop and flip")
    if known is not None and not known.flip:
        augmentation = replace(augmentation, flip=False)
    train, test = open_dataset(
        name,
        root,
        image_size=augmentation.train_size,
        classes=classes,
        per_class=per_class,
        seed=subset_seed,
        validation=validation,
    )
    if len(train.classes) < 2:
        raise AutomixError(f"data {name!r}: only one class, {train.classes[0]!r}; training needs 2; {EXPECTED}")
    if balance != "none" and train.labels is None:
        raise AutomixError(
            f"balance must be 'none' on data {name!r}, whose labels are known only by reading it, got {balance!r}"
        )
    skipped = None
    if bad_data == "skip":
        if skip_list is not None and skip_list.exists():
            skipped = read_skipped(skip_list, train, test)
        else:
            skipped = find_bad_files(train, test, workers, progress)
        train, test = drop_bad_files(skipped, train, test)
    ignored = _count_ignored(train, test)
    size = augmentation.train_size or _native_size(train)
    training = add_label_noise(train, label_noise, seed)
    labels = training.labels if balance == "sampling" else None
    plan = BatchPlan(len(training), batch_size, seed, augmentation.repeats, rank, world_size, accumulate, labels)
    test_size = augmentation.test_size or size
    fits = size <= SMALL and len(training) * 3 * size**2 <= MEMORY_LIMIT and not per_image
    cache = CachePlan()
    loader: MemoryLoader | StreamLoader
    if isinstance(training, Loadable) and isinstance(test, Loadable) and (generated or fits):
        loader = MemoryLoader(
            _in_memory(training, size),
            plan,
            test=_in_memory(test, test_size, augmentation.test_crop),
            crop=augmentation.crop,
            padding=padding_for(size),
            flip=augmentation.flip,
            crop_scale=augmentation.crop_scale,
            normalization=normalization,
        )
    else:
        if isinstance(train, ImageFiles) and isinstance(test, ImageFiles):
            processes = int(os.environ.get("LOCAL_WORLD_SIZE", world_size))
            cache = plan_cache(
                train, test, train_size=size, test_size=test_size, caching=decode_cache, processes=processes
            )
        loader = StreamLoader(
            training,
            test,
            plan,
            augmentation,
            train_size=size,
            test_size=test_size,
            workers=workers,
            normalization=normalization or IMAGENET,
            cache=cache,
        )
    return Data(
        name,
        training.classes,
        size,
        len(training),
        len(test),
        loader,
        skipped,
        _class_counts(training),
        ignored,
        cache,
        wrong_labels=round(label_noise * len(training)),
    )


def load_images(
    name: str | Path,
    *,
    image_size: int | None = None,
    classes: int | None = None,
    per_class: int | None = None,
    seed: int = 0,
) -> tuple[ImageSet, ImageSet]:
    """Read a dataset into memory, without batches.

    Args:
        name: A name in `DATASETS` or a folder of images; see `open_dataset`.
        image_size: Resize and center-crop the images to this side in pixels. If not given, they keep their size (16 px
            for digits, 32 px for shapes), which must be the same for all.
        classes: Keep the first so many classes of both sets; all if not given.
        per_class: Keep so many training images of each class; all if not given.
        seed: Seed of the choice of `per_class` images.

    Returns:
        The training set and the test set.
    """
    if image_size is not None and image_size < 1:
        raise AutomixError(f"image_size must be >= 1, got {image_size}")
    train, test = open_dataset(str(name), image_size=image_size, classes=classes, per_class=per_class, seed=seed)
    if not isinstance(train, Loadable) or not isinstance(test, Loadable):
        raise AutomixError(f"data {str(name)!r} can only be streamed; use a named dataset or a folder of images")
    return _in_memory(train, image_size), _in_memory(test, image_size)


def _class_counts(train: Source) -> tuple[int, ...] | None:
    if train.labels is None:
        return None
    return tuple(torch.bincount(train.labels, minlength=len(train.classes)).tolist())


def _count_ignored(*parts: Split) -> Mapping[str, int]:
    return sum((Counter(part.ignored) for part in parts if isinstance(part, ImageFiles)), Counter())


def _native_size(train: Split) -> int:
    """The median short side of a few images if it is small, else 224."""
    size = median_short_side(train)
    return size if size is not None and size <= SMALL else PHOTO_SIZE


def _in_memory(part: Loadable, size: int | None, crop: float = 1.0) -> ImageSet:
    if isinstance(part, ImageFiles):
        return part.in_memory(size, crop)
    return part if size is None else part.resized(size, crop)
