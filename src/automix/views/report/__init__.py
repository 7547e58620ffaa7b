"""A page to look at and to share: one HTML file on one or more runs.

from automix.report import report
Path("report.html").write_text(report([Path("runs/x"), Path("runs/y")]), encoding="utf-8")
"""

from collections.abc import Sequence
from pathlib import Path

__all__ = ["report"]


def report(folders: Sequence[Path]) -> str:
    """The page on the runs in `folders`; a ValueError of one line where one of them is no run's."""
    from automix.views.report.gather import read_run
    from automix.views.report.page import render

    if not folders:
        raise ValueError("there are no runs: accepted are the folders of one or more")
    distinct = {folder.resolve(): folder for folder in reversed(folders)}  # the first spelling of each stays
    return render([read_run(folder) for folder in reversed(distinct.values())])
