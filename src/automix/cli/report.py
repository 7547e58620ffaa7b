"""`automix report RUN...`: curves, mixed samples and evaluations of runs as one HTML page."""

import sys
from pathlib import Path

from automix.cli._arguments import new_parser, parse
from automix.core.files import write_atomically

ABOUT = """One HTML page on a run, or on several beside each other; it needs no network and can be sent to anybody.

  automix report runs/x                      writes runs/x/report.html
  automix report runs/* --out compare.html   runs that differ in the seed only are taken together: mean and spread

What is not there is left out, with the command that would add it; `automix evaluate RUN --on all` adds most.
"""


def run(arguments: list[str]) -> None:
    from automix.views.report import report

    parser = new_parser("report", "RUN [RUN...] [flags]", ABOUT)
    parser.add_argument("runs", type=str, nargs="+", metavar="RUN", help="run folders")
    parser.add_argument("--out", type=str, default=None, help="the page; RUN/report.html, of several runs report.html")
    given = parse(parser, arguments)
    folders = [Path(name) for name in given.runs]
    path = Path(given.out) if given.out else (folders[0] if len(folders) == 1 else Path()) / "report.html"
    if path.is_dir():
        raise ValueError(f"out={path}: is a folder; accepted is a file's name, such as {path / 'report.html'}")
    page = report(folders)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda temporary: temporary.write_text(page, encoding="utf-8"))
    count = "1 run" if len(folders) == 1 else f"{len(folders)} runs"
    sys.stdout.write(f"{path}: {count}, {path.stat().st_size / 1e6:.1f} MB\n")
