"""``bad_data="skip"``: find the files that cannot be read before training, and leave them out.

When a run begins, every file is decoded once, by the function that training reads it with. The bad files and their
labels are removed from the dataset before batches are planned, so a batch is still a function of (seed, step), whatever
the number of workers. A resumed run, and the evaluation of the run, take the list from the run folder instead of
searching again. (Replacing a bad image by another one during training would need no search, but would show some images
twice, in the test set too.)

The search takes about as long as reading the data for one epoch. A file that becomes unreadable later ends the run
with one line that names it. ``bad_data="fail"`` reads nothing in advance.
"""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from automix.core.distributed import is_distributed, rank_and_world
from automix.core.errors import AutomixError, one_line
from automix.core.files import write_text
from automix.data.decode import BadImage
from automix.data.image_set import ImageSet
from automix.data.readers import ReaderSet
from automix.data.sources import Split

CHUNK = 16  # images that a thread reads at a time

Progress = Callable[[int, int], None]
"""A function that is called with the number of images checked so far, and the number of all images."""


@dataclass(frozen=True)
class SkippedFile:
    """A file that is left out.

    Attributes:
        use: "training" or "testing".
        position: Position among all files of that use.
        path: The file.
        error: Why it cannot be read, in one line.
    """

    use: str
    position: int
    path: str
    error: str


class OtherDataError(AutomixError):
    """A skip list that was written for other data."""


def find_bad_files(
    train: Split, test: Split, threads: int, progress: Progress | None = None
) -> tuple[SkippedFile, ...]:
    """Read every image of a dataset and list those that cannot be read.

    In distributed training each process reads its share of the files, and all processes get the whole list.

    Args:
        train: The training set.
        test: The test set.
        threads: Number of threads that read images.
        progress: Called from time to time with the number of images checked by this process, and its share.

    Returns:
        The bad files, in order, those of the training set first.
    """
    rank, world_size = rank_and_world()
    parts = (("training", train), ("testing", test))
    shares = [(use, part, range(rank, len(part), world_size)) for use, part in parts]
    shares = [share for share in shares if not isinstance(share[1], ImageSet)]  # in memory, hence readable
    done, total = 0, sum(len(positions) for _, _, positions in shares)
    bad: list[SkippedFile] = []
    for use, part, positions in shares:
        chunks = [positions[start : start + CHUNK] for start in range(0, len(positions), CHUNK)]
        # Pillow releases the GIL while it decodes; the readers of timm and torchvision may not be thread-safe.
        with ThreadPoolExecutor(1 if isinstance(part, ReaderSet) else max(1, threads)) as pool:
            for chunk, found in zip(chunks, pool.map(partial(_read_chunk, use, part), chunks), strict=True):
                bad += found
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    if is_distributed():
        gathered: list[list[SkippedFile]] = [[] for _ in range(world_size)]
        dist.all_gather_object(gathered, bad)
        bad = [file for files in gathered for file in files]
    return tuple(sorted(bad, key=lambda file: (file.use != "training", file.position)))


def drop_bad_files(skipped: Sequence[SkippedFile], train: Split, test: Split) -> tuple[Split, Split]:
    """Remove bad files from a dataset; every class of the training set must keep an image.

    Args:
        skipped: The bad files.
        train: The training set.
        test: The test set.

    Returns:
        Both sets without the bad files.
    """
    kept = []
    for use, part in (("training", train), ("testing", test)):
        bad = [file for file in skipped if file.use == use]
        if len(bad) == len(part):
            raise AutomixError(f"none of the {len(part)} files for {use} can be read; the first: {bad[0].error}")
        keep = torch.ones(len(part), dtype=torch.bool)
        for file in bad:
            keep[file.position] = False
        kept.append(part.take(keep.nonzero().flatten()) if bad else part)
    if train.labels is not None and kept[0].labels is not None:
        _check_no_class_is_empty(train.labels, kept[0].labels, train.classes)
    return kept[0], kept[1]


def write_skipped(path: Path, skipped: Sequence[SkippedFile], counts: dict[str, int]) -> None:
    """Write a skip list.

    Args:
        path: The JSON file.
        skipped: The bad files.
        counts: The number of all files, the bad ones included, for "training" and "testing".
    """
    content = {"files": counts, "skipped": [asdict(file) for file in skipped]}
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_skipped(path: Path, train: Split, test: Split) -> tuple[SkippedFile, ...]:
    """Read the skip list of a run, and check that it belongs to this dataset.

    Args:
        path: The JSON file.
        train: The training set, with its bad files.
        test: The test set, with its bad files.

    Returns:
        The bad files.

    Raises:
        OtherDataError: The dataset has another number of files, or other names, than when the list was written.
        AutomixError: The file cannot be read.
    """
    parts = {"training": train, "testing": test}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        skipped = tuple(SkippedFile(**file) for file in content["skipped"])
        same = all(len(part) == content["files"][use] for use, part in parts.items()) and all(
            Path(parts[file.use].name_of(file.position)).name == Path(file.path).name for file in skipped
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise AutomixError(f"{path}: cannot be read as a list of skipped files ({one_line(error)})") from None
    if not same:
        raise OtherDataError(f"{path}: made for other data; the files must be those that the run began with")
    return skipped


def _read_chunk(use: str, part: Split, positions: Sequence[int]) -> list[SkippedFile]:
    bad = []
    for position in positions:
        try:
            part.read(position)
        except BadImage as error:
            bad.append(SkippedFile(use, position, part.name_of(position), str(error)))
    return bad


def _check_no_class_is_empty(before: torch.Tensor, after: torch.Tensor, classes: tuple[str, ...]) -> None:
    sizes, left = (torch.bincount(labels, minlength=len(classes)) for labels in (before, after))
    for label in ((sizes > 0) & (left == 0)).nonzero().flatten().tolist():
        raise AutomixError(
            f"class {classes[label]!r}: none of its {sizes[label]} training images can be read; at least 1 is needed"
        )
