"""Datasets by name: what they are, where they lie, where to get them.

A dataset is looked for in the folder `root`, else in the folder that the environment variable AUTOMIX_DATA names, else
in ./data. Besides the names in `DATASETS`, a dataset can be given as a folder (in any layout of layouts.py, or of tar
files), by timm's prefixes ``hfds/`` and ``torch/``, or as ``wds/<folder>`` with WebDataset's shards in it.
"""

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from automix.data import builtin, layouts
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet
from automix.data.readers import ITERABLE, PREFIXES, ReaderSet, has_tars, open_reader, open_tars
from automix.data.shards import ShardSet, open_shards

Split = ImageSet | ImageFiles | ReaderSet | ShardSet


@dataclass(frozen=True)
class Dataset:
    """A named dataset. It lies in the first of `folders` below the data root that has `marker` in it.

    `image_size` is None where images differ in size. `draw` makes a dataset that has no files, at a given size.
    """

    about: str
    num_classes: int
    image_size: int | None = None
    folders: tuple[str, ...] = ()
    marker: str = "train"
    source: str = ""
    layout: Callable[[Path], tuple[ImageFiles, ImageFiles] | tuple[ImageSet, ImageSet]] = layouts.folder
    draw: Callable[[int], tuple[ImageSet, ImageSet]] | None = None
    flip: bool = True  # False where a mirrored image is another thing
    train_count: int | None = None  # of a drawn dataset: known before it is drawn


DATASETS: dict[str, Dataset] = {
    "digits": Dataset(
        "scikit-learn's 1,797 handwritten digits", 10, 16, draw=builtin.digits, flip=False, train_count=1198
    ),
    "shapes": Dataset("6,960 drawn shapes on clutter", 12, 32, draw=builtin.shapes, train_count=5040),
    "cifar10": Dataset(
        "CIFAR-10: 60,000 photos of 32 px",
        10,
        32,
        ("cifar-10-batches-py", "cifar10/cifar-10-batches-py", "cifar10"),
        "",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        layouts.cifar,
    ),
    "cifar100": Dataset(
        "CIFAR-100: 60,000 photos of 32 px",
        100,
        32,
        ("cifar-100-python", "cifar100/cifar-100-python", "cifar100"),
        "",
        "https://www.cs.toronto.edu/~kriz/cifar.html",
        layouts.cifar,
    ),
    "tiny-imagenet": Dataset(
        "Tiny-ImageNet: 110,000 photos of 64 px, with boxes",
        200,
        64,
        ("tiny-imagenet-200", "tiny-imagenet"),
        "wnids.txt",
        "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
        layouts.tiny_imagenet,
    ),
    "imagenet": Dataset(
        "ImageNet-1k: 1.3 million photos, train/<wnid>/ and val/<wnid>/",
        1000,
        None,
        ("imagenet", "ILSVRC2012", "imagenet-1k"),
        "train",
        "https://www.image-net.org/download.php",
    ),
    "cub200": Dataset(
        "CUB-200-2011: 11,788 photos of birds, with boxes",
        200,
        None,
        ("CUB_200_2011", "cub200"),
        "train_test_split.txt",
        "https://www.vision.caltech.edu/datasets/cub_200_2011/",
        layouts.cub,
    ),
    "aircraft": Dataset(
        "FGVC-Aircraft: 10,000 photos of 100 variants",
        100,
        None,
        ("fgvc-aircraft-2013b",),
        "data/variants.txt",
        "https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/",
        layouts.aircraft,
    ),
    "inat2017": Dataset(
        "iNaturalist 2017: 675,170 photos of species",
        5089,
        None,
        ("inat2017", "iNat2017", "inaturalist2017"),
        "train2017.json",
        "https://github.com/visipedia/inat_comp/tree/master/2017",
        partial(layouts.inaturalist, year=2017),
    ),
    "inat2018": Dataset(
        "iNaturalist 2018: 461,939 photos of species",
        8142,
        None,
        ("inat2018", "iNat2018", "inaturalist2018"),
        "train2018.json",
        "https://github.com/visipedia/inat_comp/tree/master/2018",
        partial(layouts.inaturalist, year=2018),
    ),
    "places205": Dataset(
        "Places205: 2.5 million photos of scenes",
        205,
        None,
        ("places205", "Places205"),
        "trainvalsplit_places205",
        "http://places.csail.mit.edu/downloadData.html",
        layouts.places205,
    ),
}

OTHERS = "an existing folder, hfds/<name>, torch/<name>, wds/<folder>"


def check_data(name: str, root: Path | None = None) -> None:
    """Raise a one-line ValueError unless `name` can be opened, as far as that shows without reading any images."""
    prefix, _, rest = name.partition("/")
    if name in DATASETS:
        if DATASETS[name].draw is None:
            _find(name, root)
    elif prefix == "wds" and rest:
        if not _shard_folder(rest, root).is_dir():
            raise ValueError(
                f"data {name!r}: no folder {_shard_folder(rest, root)}; accepted is wds/<folder of shards>"
            )
    elif prefix in ITERABLE and rest:
        raise ValueError(f"data {name!r} cannot be read from any step on: accepted are {OTHERS}")
    elif not (prefix in PREFIXES and rest) and not (name and Path(name).is_dir()):
        close = difflib.get_close_matches(name.lower(), DATASETS, n=1)
        meant = f", did you mean {close[0]!r}?" if close else ":"
        raise ValueError(f"data {name!r} is unknown{meant} accepted are {', '.join(DATASETS)}, {OTHERS}")


def open_dataset(name: str, root: Path | None = None, *, image_size: int | None = None) -> tuple[Split, Split]:
    """The training and the test set `name`: images in memory, a listing of files, or what is streamed only.

    `image_size` is for the sets that are drawn, `digits` and `shapes`; the others come as they are.
    """
    check_data(name, root)
    if name in DATASETS:
        known = DATASETS[name]
        if known.draw is not None:
            return known.draw(image_size or known.image_size or 32)
        return known.layout(_find(name, root))
    if Path(name).is_dir():
        return open_folder(Path(name))
    if name.startswith("wds/"):
        return open_shards(_shard_folder(name.removeprefix("wds/"), root))
    return open_reader(name, data_root(root))


def open_folder(folder: Path) -> tuple[Split, Split]:
    """A dataset given as a folder: recognized by a file that only it has, else tar files, else folders of classes."""
    for known in DATASETS.values():
        if known.marker not in ("", "train") and (folder / known.marker).exists():
            return known.layout(folder)
    if has_tars(folder):
        return open_tars(folder)
    return layouts.cifar(folder)  # which passes on whatever is not CIFAR's python files


def data_root(root: Path | None = None) -> Path:
    return Path(root or os.environ.get("AUTOMIX_DATA") or "data")


def _shard_folder(name: str, root: Path | None) -> Path:
    return Path(name) if Path(name).is_dir() else data_root(root) / name


def _find(name: str, root: Path | None) -> Path:
    """The folder of the named dataset."""
    known, below = DATASETS[name], data_root(root)
    for folder in known.folders:
        if (below / folder / known.marker).exists():
            return below / folder
    wanted = f"{known.folders[0]}/{known.marker}".rstrip("/")
    raise ValueError(
        f"data {name!r}: {below / wanted} not found; accepted is a data root (or AUTOMIX_DATA) with it, get it from "
        f"{known.source}"
    )
