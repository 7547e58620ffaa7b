"""The parts of a table: rows, columns and cells. A cell says what is trained, what is measured and the paper's number.

A cell has a number for two networks. The student is the result of plain training. The teacher is the moving average
of its weights (EMA), which AutoMix always deploys. The paper compares AutoMix's teacher with the other methods'
students. Every method has both numbers here, because the average alone gains something.

Averaging does not change the student, so one run with ``ema=True`` gives both numbers. The methods in
`MIX_WITH_DEPLOYED` are the exception: they mix by means of the deployed network and need a run for each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automix.methods import has_own_teacher
from automix.runs.metrics import Network
from automix.studies.settings import Values, merge_values

NETWORKS: tuple[Network, ...] = ("student", "teacher")

ACCURACIES = ("top1", "last_top1")
"""Measures of a network on the test set."""

PARAMETERS = "parameters"
"""The measure that needs no run."""

RUN_MEASURES = ("hours", PARAMETERS, "efficiency/")
"""Measures that are the same for both networks (beginnings of their names)."""

MIX_WITH_DEPLOYED = ("attentivemix", "comixup", "puzzlemix", "supermix")
"""Methods whose mixing depends on the network that is deployed."""


@dataclass(frozen=True)
class Row:
    """A row of a table: a method, or a variant of one.

    Attributes:
        name: Its name for ``--methods``.
        title: Its name in the table.
        values: Its settings: method, method_options, preset, alpha, layer.
        official: Whether the paper's number comes from the method's official code instead of the authors' own.
    """

    name: str
    title: str
    values: Values
    official: bool = False


@dataclass(frozen=True)
class Column:
    """A column of a table: a network on a dataset by a recipe, and what is reported of it.

    Attributes:
        name: Its name for ``--columns``.
        title: Its name in the table.
        values: Its settings: data, model, recipe and what differs from the recipe.
        measure: ``top1``: the paper's protocol, the median over the last ten epochs. ``last_top1``: after the last
            epoch, for runs so short that accuracy still rises over the last ten. ``hours``: of training.
            ``parameters``: millions that are trained, counted without a run. EVALUATOR/VALUE: a value of
            `automix evaluate`, or a sum VALUE+VALUE. detect/DATA/VALUE: a detector is fine-tuned on the run.
    """

    name: str
    title: str
    values: Values
    measure: str = "top1"


@dataclass(frozen=True)
class Source:
    """Where a number comes from.

    Attributes:
        values: The settings of the run.
        network: Which of its networks is measured.
    """

    values: Values
    network: Network


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes:
        row: Name of its row.
        column: Name of its column.
        paper: The paper's number, or None.
        paper_network: The network that the paper's number belongs to.
        student: The run whose student is measured, or None.
        teacher: The run whose teacher is measured, or None.
        note: Why nothing can be trained, where both are None.
    """

    row: str
    column: str
    paper: float | None
    paper_network: Network = "student"
    student: Source | None = None
    teacher: Source | None = None
    note: str = ""

    def source(self, network: Network) -> Source | None:
        """Get the source of one of the networks.

        Args:
            network: ``"student"`` or ``"teacher"``.

        Returns:
            The source, or None.
        """
        return self.student if network == "student" else self.teacher


def make_cells(
    rows: Sequence[Row],
    columns: Sequence[Column],
    paper: Mapping[str, Sequence[float | None]],
    impossible: Mapping[tuple[str, str], str] | None = None,
) -> tuple[Cell, ...]:
    """Make a cell for every row in every column.

    Args:
        rows: The rows.
        columns: The columns.
        paper: The paper's numbers by row name, in the order of the columns.
        impossible: Reasons why cells (row name, column name) cannot be trained.

    Returns:
        The cells, row by row.
    """
    cells = []
    for row in rows:
        numbers = paper.get(row.name, [None] * len(columns))
        for column, number in zip(columns, numbers, strict=True):
            reason = (impossible or {}).get((row.name, column.name), "")
            cells.append(make_cell(row, column, number, reason))
    return tuple(cells)


def make_cell(row: Row, column: Column, paper: float | None, impossible: str = "") -> Cell:
    """Make the cell of a row and a column, with both networks of the method.

    Args:
        row: The row.
        column: The column.
        paper: The paper's number; it belongs to the network that the paper deploys.
        impossible: Why the cell cannot be trained, if so.

    Returns:
        The cell.
    """
    values = merge_values(column.values, row.values)
    method = values["method"]
    paper_network: Network = "teacher" if has_own_teacher(method) or values["recipe"] == "deit" else "student"
    if impossible:
        return Cell(row.name, column.name, paper, paper_network, note=impossible)
    averaged = merge_values(values, {"ema": True})
    if column.measure.startswith(RUN_MEASURES):
        return Cell(row.name, column.name, paper, "teacher", teacher=Source(averaged, "teacher"))
    # a detector is built on the network that a run deploys
    own_run = method in MIX_WITH_DEPLOYED or (column.measure.startswith("detect/") and not has_own_teacher(method))
    student = Source(merge_values(values, {"ema": False}), "student") if own_run else Source(averaged, "student")
    return Cell(row.name, column.name, paper, paper_network, student, Source(averaged, "teacher"))
