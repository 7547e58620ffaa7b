"""The table of the fault suite: `pytest -m slow tests/faults` takes minutes, `make faults` puts it into docs/."""

import json
import os
from pathlib import Path
from typing import Protocol

import pytest


class Record(Protocol):
    """How a test reports: what was done to a run, how often, how often it went on, and what was lost in words."""

    def __call__(self, fault: str, tries: int, survived: int, lost: str) -> None: ...


@pytest.fixture
def record() -> Record:
    """Adds a row to the table: a line of JSON in the file that AUTOMIX_FAULTS names, if it names one."""

    def add(fault: str, tries: int, survived: int, lost: str) -> None:
        if path := os.environ.get("AUTOMIX_FAULTS"):
            row = {"fault": fault, "tries": tries, "survived": survived, "lost": lost}
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(json.dumps(row, ensure_ascii=False) + "\n")

    return add
