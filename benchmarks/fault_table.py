"""The fault suite and its table: `make faults`, 18 minutes beside a training run on two cores.

    python benchmarks/fault_table.py [--out docs/results/faults.md] [pytest's arguments, such as -k kills]

Runs the slow tests of tests/faults, each of which adds rows (what was done to a run, how often, how often it survived,
what was lost), prints the table, and writes it below the text of the page. With arguments for pytest, rows that were
not measured stay. The exit code is pytest's.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import automix
from automix.core.files import write_text

HEADER = "| fault | tries | survived | lost |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=None, help="the page to write")
    given, others = parser.parse_known_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.jsonl"
        command = [sys.executable, "-m", "pytest", "-m", "slow", "tests/faults", *others]
        code = subprocess.run(command, env={**os.environ, "AUTOMIX_FAULTS": str(rows)}, check=False).returncode
        found = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    rows_by_fault = {r["fault"]: f"| {r['fault']} | {r['tries']:,} | {r['survived']:,} | {r['lost']} |" for r in found}
    if others and given.out is not None and given.out.exists():  # a part of the suite: the other rows stay
        rows_by_fault = {**rows_of(given.out), **rows_by_fault}
    table = "\n".join([HEADER, "| --- | --- | --- | --- |", *rows_by_fault.values()]) + "\n"
    print(table)
    if given.out is not None and found:
        machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"
        took = "some rows measured again" if others else f"{(time.monotonic() - began) / 60:.0f} minutes"
        last = f"\nautomix {automix.__version__}, {machine}; {took}.\n"
        write_text(given.out, introduction(given.out) + table + last)
    return code


def introduction(page: Path) -> str:
    """Read the text above the table, which is written by hand."""
    return page.read_text(encoding="utf-8").partition(HEADER)[0] if page.exists() else "# Faults\n\n"


def rows_of(page: Path) -> dict[str, str]:
    """The rows of an earlier table by their faults."""
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][2:]
    return {line.split("|")[1].strip(): line for line in lines}


if __name__ == "__main__":
    sys.exit(main())
