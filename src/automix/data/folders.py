"""Folders of images, one folder a class."""

import os
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import torch

from automix.core.draws import step_generator
from automix.core.errors import AutomixError
from automix.data.decode import reads_heif
from automix.data.image_files import ImageFiles

EXTENSIONS = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff", ".ppm", ".pgm")
HEIF = (".heic", ".heif")  # read if pillow-heif is installed
CLUTTER = ("thumbs.db", "desktop.ini")  # of file managers, not worth a message
FolderId = tuple[int, int]  # device and inode
TEST_FOLDERS = ("test", "val", "validation")
HOLD_OUT_EVERY = 5  # one image in so many is held out of a folder without a test set
EXPECTED = "expected train/<class>/ and test/<class>/, or <class>/ alone"


def class_folders(root: Path) -> tuple[ImageFiles, ImageFiles]:
    """List ``train/<class>/`` and ``test/<class>/`` (or val, validation), or else ``<class>/`` alone.

    Without a test folder, every fifth image of each class is held out (see `hold_out`), also of ``train/<class>/``.
    Classes are numbered in alphabetical order.

    Args:
        root: The dataset's folder.

    Returns:
        The training files and the test files.
    """
    test_folder = next((root / name for name in TEST_FOLDERS if (root / name).is_dir()), None)
    if not (root / "train").is_dir():
        if test_folder is None:
            check_not_nested(root)
            return hold_out(root)
        raise AutomixError(f"{root}: no folder train in it; {EXPECTED}")
    if test_folder is None:
        check_no_other_split(root)
        return hold_out(root / "train")
    train, test = list_classes(root / "train"), list_classes(test_folder)
    check_same_classes(str(root), train.classes, test.classes)
    return train, test


def hold_out(root: Path) -> tuple[ImageFiles, ImageFiles]:
    """List ``<class>/<image>`` and hold every fifth image of each class out as the test set.

    The images of a class are shuffled first, with a fixed seed: the split is the same for every run.

    Args:
        root: The folder of the class folders.

    Returns:
        The training files and the test files.
    """
    files = list_classes(root)
    order = torch.randperm(len(files), generator=step_generator(0, 0, stream="held out"))
    testing = torch.zeros(len(files), dtype=torch.bool)
    for label, name in enumerate(files.classes):
        members = order[files.labels[order] == label]
        if len(members) < 2:
            raise AutomixError(f"{root / name}: only one image; at least 2 are needed, one of them to test")
        testing[members[::HOLD_OUT_EVERY]] = True
    test = replace(files.take(testing.nonzero().flatten()), ignored={})  # counted once, with the training files
    return files.take((~testing).nonzero().flatten()), test


def list_classes(root: Path) -> ImageFiles:
    """List the images below each class folder, in the order of torchvision's ImageFolder.

    Named pipes and other special files are left out. Links to folders are followed, each folder once per class, so
    that a loop of links does not repeat images.

    Args:
        root: The folder of the class folders.

    Returns:
        The image files with their labels.
    """
    classes = subfolders(root)
    if not classes:
        raise AutomixError(f"{root}: no class folder in it; {EXPECTED}")
    paths: list[str] = []
    labels: list[int] = []
    ignored: Counter[str] = Counter()
    endings = image_endings()
    ancestors = [identity for folder in (root, *root.resolve().parents) if (identity := folder_id(folder))]
    for label, name in enumerate(classes):
        folders = dict(walk_once(str(root / name), ancestors))
        files = [os.path.join(folder, file) for folder in sorted(folders) for file in sorted(folders[folder])]
        images = [path for path in files if path.lower().endswith(endings)]
        others = count_endings(path for path in files if not path.lower().endswith(endings))
        if not images:
            readable = os.access(root / name, os.R_OK | os.X_OK)
            problem = "no image in it" if readable else "may not be read"
            found = f" ({describe_ignored(others)})" if others else ""
            advice = f"add images ({' '.join(endings)}) or remove the folder"
            raise AutomixError(f"{root / name}: {problem}{found}; {advice}")
        ignored += others
        paths += images
        labels += [label] * len(images)
    return ImageFiles(tuple(paths), torch.tensor(labels, dtype=torch.int64), tuple(classes), ignored=ignored)


def subfolders(root: Path) -> list[str]:
    """List the names of the folders in a folder, sorted.

    Args:
        root: The folder.

    Returns:
        The names.
    """
    try:
        return sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError as error:
        raise AutomixError(f"{root}: cannot be listed ({error.strerror})") from None


def check_not_nested(root: Path) -> None:
    """Refuse a folder whose only folder has the dataset in it.

    Args:
        root: The dataset's folder, which should have the class folders in it.

    Raises:
        AutomixError: There is one folder, and only folders are in that; the message says which folder to give.
    """
    inner = root
    while len(names := subfolders(inner)) == 1 and _has_only_folders(inner / names[0]):
        inner = inner / names[0]
    if inner != root:
        raise AutomixError(
            f"{root}: its only folder {inner.relative_to(root)} has folders in it, no images; give {inner}"
        )


def check_no_other_split(root: Path) -> None:
    """Refuse a test set under a name that is not known, before images for testing are held out of train/.

    Args:
        root: The dataset's folder, with train/ in it.

    Raises:
        AutomixError: Beside train/ there is a folder with a folder of the same class.
    """
    classes = set(subfolders(root / "train"))
    for name in subfolders(root):
        if name != "train" and classes & set(subfolders(root / name)):
            raise AutomixError(f"{root / name}: has the classes of train; rename it to {' or '.join(TEST_FOLDERS)}")


def image_endings() -> tuple[str, ...]:
    """List the endings of the files that are read as images.

    Returns:
        Lower-case endings; with those of HEIC if pillow-heif is installed.
    """
    return EXTENSIONS + (HEIF if reads_heif() else ())


def count_endings(paths: Iterable[str]) -> Counter[str]:
    """Count files by their endings, without hidden ones.

    Args:
        paths: The files.

    Returns:
        Number of files by lower-case ending; that of files without one is "no ending".
    """
    names = (os.path.basename(path).lower() for path in paths)
    return Counter(
        os.path.splitext(name)[1] or "no ending" for name in names if not name.startswith(".") and name not in CLUTTER
    )


def describe_ignored(ignored: Mapping[str, int]) -> str:
    """Say in a line which files were not read.

    Args:
        ignored: Number of files by ending.

    Returns:
        For instance "6 files were not read (.heic: 6)"; for HEIC with the package that reads it.
    """
    count = sum(ignored.values())
    endings = ", ".join(f"{ending}: {ignored[ending]}" for ending in sorted(ignored))
    heif = any(ending in ignored for ending in HEIF)
    advice = "; pip install pillow-heif to read HEIC" if heif and not reads_heif() else ""
    return f"{count} {'file was' if count == 1 else 'files were'} not read ({endings}){advice}"


def walk_once(root: str, visited: Collection[FolderId] = ()) -> Iterator[tuple[str, list[str]]]:
    """Walk through a folder tree and follow links, entering each folder at most once.

    Folders that may not be read are left out, as by ``os.walk``.

    Args:
        root: The top folder.
        visited: Folders that are not to be entered.

    Yields:
        A folder and the names of its files, without named pipes and other special files. A folder is entered by its
        own path rather than through a link.
    """
    entered = set(visited)
    waiting = deque([root])
    while waiting:
        folder = waiting.pop()
        identity = folder_id(folder)
        if identity is None or identity in entered:
            continue
        entered.add(identity)
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        yield folder, [entry.name for entry in entries if not _is_folder(entry) and not _is_special(entry)]
        for entry in sorted(filter(_is_folder, entries), key=lambda entry: entry.name):
            if entry.is_symlink():
                waiting.appendleft(entry.path)  # after all folders that are reached without a link
            else:
                waiting.append(entry.path)


def folder_id(folder: str | Path) -> FolderId | None:
    """Identify a folder whatever links lead to it.

    Args:
        folder: Its path.

    Returns:
        Device and inode; None if the folder cannot be reached.
    """
    try:
        status = os.stat(folder)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def check_same_classes(name: str, train: tuple[str, ...], test: tuple[str, ...]) -> None:
    """Refuse a dataset whose training and test sets have different classes.

    Args:
        name: What the message calls the dataset.
        train: The names of the classes in the training set.
        test: The names of the classes in the test set.
    """
    if train == test:
        return
    only_train, only_test = (min(set(a) - set(b), default=None) for a, b in ((train, test), (test, train)))
    odd = ((only_train, "test"), (only_test, "training"))
    parts = [f"{class_!r} has no {use} images" for class_, use in odd if class_ is not None]
    reason = f"{' and '.join(parts)}: add some or remove the class" if parts else "their order differs"
    raise AutomixError(f"{name}: training and test set must have the same classes; {reason}")


def _has_only_folders(folder: Path) -> bool:
    """Whether there are folders in it, and neither files nor links, but for hidden ones."""
    try:
        entries = [entry for entry in os.scandir(folder) if not entry.name.startswith(".")]
    except OSError:
        return False
    return bool(entries) and all(_is_folder(entry) and not entry.is_symlink() for entry in entries)


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # too many links
        return False


def _is_special(entry: os.DirEntry[str]) -> bool:
    """Whether it is a named pipe, a device or the like; a dangling link is not, and is reported when it is read."""
    try:
        return not entry.is_file() and os.path.exists(entry.path)
    except OSError:
        return False
