"""Datasets opened by name, folder or prefix.

A named dataset is searched in the folder `root`, else in the folder given by the environment variable AUTOMIX_DATA,
else in ./data. Besides the names in `DATASETS`, a dataset can be a folder, given by its path or by its name below the
same root (class folders, tar files, or any layout of layouts.py), timm's ``hfds/<name>`` or ``torch/<name>``, or
``wds/<folder>`` with WebDataset shards in it.
"""

import difflib
import os
from pathlib import Path

from automix.core.errors import AutomixError, one_line
from automix.data import layouts
from automix.data.bad_files import drop_bad_files, read_skipped
from automix.data.image_files import ImageFiles
from automix.data.image_set import ImageSet
from automix.data.imagenet import has_flat_val
from automix.data.readers import ITERABLE, PREFIXES, has_tars, open_reader, open_tars
from automix.data.registry import DATASETS, Dataset
from automix.data.shards import open_shards
from automix.data.sources import Loadable, Split
from automix.data.subset import held_out_positions

OTHER_NAMES = "an existing folder, hfds/<name>, torch/<name>, wds/<folder>"


def check_data(name: str, root: Path | None = None) -> None:
    """Check that a dataset can be opened, as far as possible without reading images.

    Args:
        name: A name in `DATASETS`, a folder, or a name with a prefix.
        root: Where named datasets are; AUTOMIX_DATA or ./data if not given.

    Raises:
        AutomixError: The name is unknown, or the dataset is not there.
    """
    prefix, _, rest = name.partition("/")
    if name in DATASETS:
        if DATASETS[name].generate is None:
            _find(name, root)
    elif prefix == "wds" and rest:
        if not _shard_folder(rest, root).is_dir():
            raise AutomixError(f"data {name!r}: no folder {_shard_folder(rest, root)}; use wds/<folder of shards>")
    elif prefix in ITERABLE and rest:
        raise AutomixError(f"data {name!r} can be read from its beginning only; use {OTHER_NAMES}")
    elif not (prefix in PREFIXES and rest) and _plain_folder(name, root) is None:
        close = difflib.get_close_matches(name.lower(), DATASETS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise AutomixError(f"data must be one of {', '.join(DATASETS)}, {OTHER_NAMES}; got {name!r}{hint}")


def open_dataset(
    name: str,
    root: Path | None = None,
    *,
    image_size: int | None = None,
    classes: int | None = None,
    per_class: int | None = None,
    seed: int = 0,
    skip_list: Path | None = None,
    validation: float | None = None,
) -> tuple[Split, Split]:
    """Open a dataset without reading its images.

    Args:
        name: A name in `DATASETS`, a folder, or a name with a prefix.
        root: Where named datasets are; AUTOMIX_DATA or ./data if not given.
        image_size: Side in pixels of the generated datasets `digits` and `shapes`; the others keep their size.
        classes: Keep the first so many classes of both sets; all if not given.
        per_class: Keep so many training images of each class; all if not given.
        seed: Seed of the choice of `per_class` images.
        skip_list: The skipped.json of a run on this dataset (with the same `classes`, `per_class` and `seed`): its
            files are left out. The file is only read.
        validation: Hold this share of the training images out, in place of the test set.

    Returns:
        The training set and the test set (or the held-out training images): in memory (`ImageSet`), as a list of files
        (`ImageFiles`), or as a dataset that can only be streamed.
    """
    train, test = _open(name, root, image_size)
    if classes is not None or per_class is not None:
        if not isinstance(train, Loadable) or not isinstance(test, Loadable):
            raise AutomixError(f"classes and per_class need a named dataset or a folder of images, got data {name!r}")
        train, test = train.subset(classes=classes, per_class=per_class, seed=seed), test.subset(classes=classes)
    if validation is not None:
        if not isinstance(train, Loadable):
            raise AutomixError(f"validation needs a named dataset or a folder of images, got data {name!r}")
        kept, held = held_out_positions(train.labels, len(train.classes), validation)
        train, test = train.take(kept), train.take(held)
    if skip_list is not None:
        return drop_bad_files(read_skipped(skip_list, train, test), train, test)
    return train, test


def data_root(root: Path | None = None) -> Path:
    """Get the folder of the named datasets.

    Args:
        root: A folder given by the user.

    Returns:
        `root`, else AUTOMIX_DATA, else ./data.
    """
    return Path(root or os.environ.get("AUTOMIX_DATA") or "data")


def _open(name: str, root: Path | None, image_size: int | None) -> tuple[Split, Split]:
    check_data(name, root)
    if name in DATASETS:
        known = DATASETS[name]
        if known.generate is not None:
            return known.generate(image_size or known.image_size or 32)
        return _list(known, _find(name, root))
    if (folder := _plain_folder(name, root)) is not None:
        return _open_folder(folder)
    if name.startswith("wds/"):
        return open_shards(_shard_folder(name.removeprefix("wds/"), root))
    return open_reader(name, data_root(root))


def _plain_folder(name: str, root: Path | None) -> Path | None:
    """The folder of this path, or of this name below the data root; None if there is neither."""
    places = (Path(name), data_root(root) / name) if name else ()
    return next((place for place in places if place.is_dir()), None)


def _open_folder(folder: Path) -> tuple[Split, Split]:
    """Recognize a dataset by its marker file; else open tar files or class folders."""
    for known in DATASETS.values():
        if known.marker not in ("", "train") and (folder / known.marker).exists():
            return _list(known, folder)
    if has_flat_val(folder):
        return _list(DATASETS["imagenet"], folder)
    if has_tars(folder):
        return open_tars(folder)
    return layouts.cifar(folder)  # class folders, unless it has the name of CIFAR's python files


def _list(known: Dataset, folder: Path) -> tuple[ImageFiles, ImageFiles] | tuple[ImageSet, ImageSet]:
    try:
        return known.layout(folder)
    except AutomixError:
        raise
    except (ValueError, LookupError, TypeError) as error:
        raise AutomixError(f"{folder}: an annotation file is malformed ({one_line(error)})") from None


def _shard_folder(name: str, root: Path | None) -> Path:
    return Path(name) if Path(name).is_dir() else data_root(root) / name


def _find(name: str, root: Path | None) -> Path:
    """The folder of a named dataset."""
    known, parent = DATASETS[name], data_root(root)
    for folder in known.folders:
        if (parent / folder / known.marker).exists():
            return parent / folder
    expected = parent / f"{known.folders[0]}/{known.marker}".rstrip("/")
    raise AutomixError(
        f"data {name!r}: {expected} not found; get it from {known.source}, and pass its parent folder as data root or "
        "in AUTOMIX_DATA"
    )
