"""`automix report RUN...`: curves, mixed samples and evaluations of runs as one HTML page."""

import sys
from pathlib import Path

from automix.core.errors import AutomixError


def report(*runs: Path, out: Path | None = None) -> None:
    """Write one HTML page on a run, or on several side by side. It works offline.

    For example:
      automix report runs/x                      writes runs/x/report.html
      automix report runs/* --out compare.html   runs that differ in the seed only are averaged

    Parts that a run does not have are left out, with the command that would
    add them. `automix evaluate RUN --on all` adds most.

    Args:
        runs: Run folders.
        out: The page; RUN/report.html if not given, report.html for several runs.
    """
    from automix.core.files import write_atomically
    from automix.runs.folder import RunFolder
    from automix.views.report import render_report

    if not runs:
        raise AutomixError("RUN is missing; automix report RUN [RUN...]")
    path = out or RunFolder(runs[0] if len(runs) == 1 else Path()).report
    if path.is_dir():
        raise AutomixError(f"out must be a file's name such as {RunFolder(path).report}, got the folder {path}")
    sys.stderr.write(f"reading {'1 run' if len(runs) == 1 else f'{len(runs)} runs'}\n")
    page = render_report(list(runs))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    count = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
    sys.stdout.write(f"{path}: {count}, {path.stat().st_size / 1e6:.1f} MB\n")
