"""An experiment: a table or a figure of the paper, or a study of ours, as data."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automix.studies.cells import Cell, Column, Row, make_cells
from automix.studies.fairness import check_fair


def make_experiment(
    name: str,
    title: str,
    source: str,
    rows: tuple[Row, ...],
    columns: tuple[Column, ...],
    paper: Mapping[str, Sequence[float | None]] | None = None,
    *,
    impossible: Mapping[tuple[str, str], str] | None = None,
    **options: Any,
) -> "Experiment":
    """Make an experiment with a cell for every row in every column.

    Args:
        name: Its name for ``automix bench``.
        title: What it shows.
        source: Its label in the paper's source, or ``"ours"``.
        rows: The rows.
        columns: The columns.
        paper: The paper's numbers by row name, in the order of the columns.
        impossible: Reasons why cells (row name, column name) cannot be trained.
        **options: Further fields of `Experiment`.

    Returns:
        The experiment.
    """
    cells = make_cells(rows, columns, paper or {}, impossible)
    return Experiment(name, title, source, rows, columns, cells, **options)


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Attributes:
        name: Its name for ``automix bench``.
        title: What it shows.
        source: Its label in the paper's source, or ``"ours"``.
        rows: The rows.
        columns: The columns.
        cells: The cells, with the paper's numbers.
        trials: Runs of each cell, with seeds 0, 1, ...
        reference: Name of the row that the others are compared with, or None.
        lams: Values of lam at which mixed samples are kept for the figure; none are kept if empty.
        series: Evaluators whose series the figure shows; the columns name them.
        varies: Settings in which rows differ on purpose.
        notes: Remarks for readers of the table.
    """

    name: str
    title: str
    source: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: tuple[Cell, ...]
    trials: int = 3
    reference: str | None = "automix"
    lams: tuple[float, ...] = ()
    series: tuple[str, ...] = ()
    varies: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fair(self.name, self.cells, self.varies)

    def cell(self, row: str, column: str) -> Cell | None:
        """Find a cell.

        Args:
            row: Name of the row.
            column: Name of the column.

        Returns:
            The cell, or None if the table has none there.
        """
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)
