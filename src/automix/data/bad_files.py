"""`bad_data="skip"`: files that cannot be read are found before training, and left out.

When a run begins, every file is decoded once, by the very function that training reads it with. The bad ones leave the
listing, together with their labels, and the plan of batches counts the others alone. A batch thus stays a function of
(seed, step): it does not matter which worker would have met a bad file first, and a resumed run, which takes the list
from its folder instead of looking again, gets the batches that would have come. To put another image in the place of a
bad one on the way would not need that first reading, but it would show some images twice, in tests too.

The price is about the time that an epoch takes to read. A file that goes bad later ends the run, in one line with its
name. `bad_data="fail"` reads nothing in advance.
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
from automix.core.files import write_atomically
from automix.data.datasets import Split
from automix.data.decode import BadImage
from automix.data.image_set import ImageSet
from automix.data.readers import ReaderSet

SKIPPED = "skipped.json"  # in the run folder
CHUNK = 16  # images that a thread reads at a time

Progress = Callable[[int, int], None]  # called with the number of images looked at, and of all


@dataclass(frozen=True)
class SkippedFile:
    """A file that was left out: number `position` in the list of all files that `use`, training or testing, has."""

    use: str
    position: int
    path: str
    error: str


def find_bad_files(
    train: Split, test: Split, threads: int, progress: Progress | None = None
) -> tuple[SkippedFile, ...]:
    """The files that cannot be read, in order.

    Processes that train together look at a share of the files each, and tell each other what they found.
    """
    rank, world = rank_and_world()
    shares = [(use, part, range(rank, len(part), world)) for use, part in (("training", train), ("testing", test))]
    shares = [share for share in shares if not isinstance(share[1], ImageSet)]  # which are in memory, and sound
    done, total = 0, sum(len(positions) for _, _, positions in shares)
    found: list[SkippedFile] = []
    for use, part, positions in shares:
        chunks = [positions[start : start + CHUNK] for start in range(0, len(positions), CHUNK)]
        # Pillow decodes without holding Python's lock; of timm's and torchvision's readers nobody promises as much.
        with ThreadPoolExecutor(1 if isinstance(part, ReaderSet) else max(1, threads)) as pool:
            for chunk, bad in zip(chunks, pool.map(partial(_bad_among, use, part), chunks), strict=True):
                found += bad
                done += len(chunk)
                if progress is not None:
                    progress(done, total)
    if is_distributed():
        everyones: list[list[SkippedFile]] = [[] for _ in range(world)]
        dist.all_gather_object(everyones, found)
        found = [skipped for each in everyones for skipped in each]
    return tuple(sorted(found, key=lambda skipped: (skipped.use != "training", skipped.position)))


def drop_bad_files(skipped: Sequence[SkippedFile], train: Split, test: Split) -> tuple[Split, Split]:
    """Both sets without the files that are `skipped`; every class of the training set must keep an image."""
    left = []
    for use, part in (("training", train), ("testing", test)):
        bad = [file for file in skipped if file.use == use]
        if len(bad) == len(part):
            raise ValueError(f"none of the {len(part)} files for {use} can be read; the first: {bad[0].error}")
        keep = torch.ones(len(part), dtype=torch.bool)
        for file in bad:
            keep[file.position] = False
        left.append(part.take(keep.nonzero().flatten()) if bad else part)
    if train.labels is not None and left[0].labels is not None:
        _check_classes(train.labels, left[0].labels, train.classes)
    return left[0], left[1]


def write_skipped(path: Path, skipped: Sequence[SkippedFile], counts: dict[str, int]) -> None:
    """`counts` are those of all files, the skipped ones included, by use."""
    text = json.dumps({"files": counts, "skipped": [asdict(file) for file in skipped]}, indent=2) + "\n"
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def read_skipped(path: Path, train: Split, test: Split) -> tuple[SkippedFile, ...]:
    """The list of a run that began with these sets, or a one-line ValueError where they have changed since."""
    parts = {"training": train, "testing": test}
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        skipped = tuple(SkippedFile(**file) for file in content["skipped"])
        fits = all(len(part) == content["files"][use] for use, part in parts.items())
        fits = fits and all(
            Path(parts[file.use].name_of(file.position)).name == Path(file.path).name for file in skipped
        )
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path}: cannot be read as a list of skipped files ({reason})") from None
    if not fits:
        raise ValueError(f"{path}: was made of other data; accepted are the files that the run began with")
    return skipped


def _bad_among(use: str, part: Split, positions: Sequence[int]) -> list[SkippedFile]:
    bad = []
    for position in positions:
        try:
            part.read(position)
        except BadImage as error:
            bad.append(SkippedFile(use, position, part.name_of(position), str(error)))
    return bad


def _check_classes(before: torch.Tensor, after: torch.Tensor, classes: tuple[str, ...]) -> None:
    had, has = (torch.bincount(labels, minlength=len(classes)) for labels in (before, after))
    for label in ((had > 0) & (has == 0)).nonzero().flatten().tolist():
        raise ValueError(
            f"class {classes[label]!r}: none of its {had[label]} training images can be read; accepted is at least one"
        )
