"""Whether a run's folder may be written to, and whether there is a run in it to go on with."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from automix.data import SKIPPED
from automix.runs.checkpoint import DAMAGED, NAME, PREVIOUS, has_checkpoint


def check_resumable(
    folder: Path,
    now: dict[str, Any],
    read_before: Callable[[], dict[str, Any]],
    may_change: Collection[str],
    *,
    resume: bool,
    overwrite: bool,
) -> bool:
    """Whether there is a checkpoint to go on from; refuses to write over a run, or to go on with another one.

    `now` are the settings, `read_before` reads those of the run that is there; they may differ in `may_change` only.
    """
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"out={folder}: is a file; accepted is a folder, new or of an earlier run")
    if not (folder / "config.yaml").exists() or overwrite:
        return False
    if not resume:
        raise ValueError(f"{folder} holds a run already: accepted are --resume, --overwrite or another --out")
    if not has_checkpoint(folder):
        return False
    before = read_before()
    for name in now:
        if name not in may_change and before[name] != now[name]:
            raise ValueError(f"--resume: {folder} was trained with {name}={before[name]}, now it is {now[name]}: "
                             "accepted is the same, or another --out")  # fmt: skip
    return True


def clear(folder: Path) -> None:
    """Remove what an earlier run wrote; in a folder that is no run's, and of anything else, nothing."""
    if not (folder / "config.yaml").exists():
        return
    weights = (NAME, PREVIOUS, DAMAGED, "last.safetensors", "best.safetensors")
    for pattern in (
        *weights,
        "metrics.jsonl",
        "summary.json",
        SKIPPED,
        "pictures/epoch-*.png",
        "pictures/over-time.png",
        "tensorboard/events.*",
        "mix_block.safetensors",
        "report.html",
        "evaluation/*",
        "evaluation-student/*",
    ):
        for path in folder.glob(pattern):
            path.unlink()
