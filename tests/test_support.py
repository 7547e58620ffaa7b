"""docs/support.md says what every method supports: the cells are run again."""

from pathlib import Path

import pytest
from support import COLUMNS, KNOWN_GAPS, outcome

import automix

PAGE = Path(__file__).parents[1] / "docs" / "support.md"
COMPILED = ("one graph", "compiled task")  # in tests/test_compile.py, for all methods

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def read_page() -> dict[str, dict[str, str]]:
    """The cells of the page, by method and column."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.read_text().splitlines() if "|" in line
    ]
    header, _, *methods = rows
    return {row[0]: dict(zip(header[1:], row[1:], strict=True)) for row in methods}


def test_the_page_has_every_method_and_column() -> None:
    cells = read_page()
    assert list(cells) == automix.methods()
    assert all(list(row) == list(COLUMNS) for row in cells.values())
    assert {cell for row in cells.values() for cell in row.values()} <= {"yes", "refused", "no", "-"}
    gaps = {(column, name) for name, row in cells.items() for column, cell in row.items() if cell == "no"}
    assert gaps == KNOWN_GAPS


@pytest.mark.parametrize("column", [column for column in COLUMNS if column not in COMPILED])
def test_a_column_of_the_page_is_what_methods_do(column: str) -> None:
    cells = read_page()
    found = {name: outcome(column, name) for name in automix.methods()}
    assert found == {name: row[column] for name, row in cells.items()}
