"""Two processes that train with PuzzleMix, many times in a row: each pair ends, in the same state."""

from pathlib import Path

import pytest

from faults.conftest import Record
from faults.runs import configure, digest, train_in_two

pytestmark = pytest.mark.slow

PAIRS = 100


def test_pairs_in_a_row(photos: Path, tmp_path: Path, record: Record) -> None:
    """A pair that hangs prints the stacks of its threads and ends with an exit code."""
    ended, digests = 0, set()
    for number in range(PAIRS):
        config = configure(photos, tmp_path / str(number), "puzzlemix")
        ended += train_in_two(config) == [0, 0]
        digests.add(digest(config.folder))
    record("2 processes of puzzlemix, to the end", PAIRS, ended, f"nothing: {len(digests)} different states")
    assert ended == PAIRS
    assert len(digests) == 1
