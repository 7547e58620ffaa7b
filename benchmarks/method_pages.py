"""Pages of the docs with a table of all methods, found by running each of them.

Shared by benchmarks/loop_table.py and benchmarks/support_matrix.py.
"""

import argparse
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

import automix


def method_table(columns: Iterable[str], outcome: Callable[[str, str], str]) -> str:
    """Methods in rows; a cell is ``outcome(column, method)``."""
    names = list(columns)
    lines = [f"| method | {' | '.join(names)} |", f"| --- |{' --- |' * len(names)}"]
    for method in automix.methods():
        lines.append(f"| {method} | {' | '.join(outcome(name, method) for name in names)} |")
        print(lines[-1], flush=True)
    return "\n".join(lines)


def write_page(about: str | None, page: str, tables: Callable[[], dict[str, str]]) -> None:
    """Write the page to ``--out``: its text with the tables and the versions filled in."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--out", type=Path, required=True)
    out: Path = parser.parse_args().out
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    out.write_text(
        page.format(**tables(), version=automix.__version__, torch=torch.__version__),
        encoding="utf-8",
    )
