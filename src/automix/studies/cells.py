"""An experiment as data: a table of cells, each of which says what is trained, what is measured, what the paper found.

A cell has a number for two networks. The student is what plain training gives. The teacher is the moving average of its
weights (EMA), which AutoMix always deploys. The paper compares AutoMix's teacher with the other methods' students; both
are here for every method, because an average alone gains something.

Averaging does not touch the student, so that one run with ``ema=True`` gives both numbers. The exceptions are methods
that look at images through the network that is deployed (`LOOK_THROUGH`): they have a run of their own for each.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from automix.studies.fairness import check_fair

Values = dict[str, Any]
"""Settings of `automix train` by name (see TrainConfig), without the seed."""

Network = Literal["student", "teacher"]

ACCURACIES = ("top1", "last_top1")  # measures of a network on the test set

OF_THE_RUN = ("hours", "efficiency/")  # measures that are the same for both networks

LOOK_THROUGH = ("attentivemix", "comixup", "puzzlemix", "supermix")


@dataclass(frozen=True)
class Row:
    """A line of a table: a method, or a form of one. `name` is for --methods."""

    name: str
    title: str
    values: Values  # method, method_options, alpha, layer
    official: bool = False  # the paper's number comes from that method's official code, not from the authors' own


@dataclass(frozen=True)
class Column:
    """A network on a dataset by a recipe, and what is reported of it. `name` is for --columns.

    `measure` is "top1", the protocol of the paper; "last_top1", after the last epoch, for runs of so few epochs that
    the last ten are still on the way; "hours" of training; EVALUATOR/VALUE as `automix evaluate` names them, or the sum
    of several VALUE+VALUE; or detect/DATA/VALUE, for which a detector is fine-tuned on the run.
    """

    name: str
    title: str
    values: Values
    measure: str = "top1"


@dataclass(frozen=True)
class Source:
    """Where a number comes from: one of the networks that a run trains."""

    values: Values
    network: Network


@dataclass(frozen=True)
class Cell:
    """`paper` is about the network `about`. Where neither `student` nor `teacher` can be trained, `note` says why."""

    row: str
    column: str
    paper: float | None
    about: Network = "student"
    student: Source | None = None
    teacher: Source | None = None
    note: str = ""

    def source(self, network: Network) -> Source | None:
        return self.student if network == "student" else self.teacher


@dataclass(frozen=True)
class Experiment:
    """A table or a figure. `source` is its label in the paper; `reference` the row that others are compared with.

    `evaluators` are run in every cell beside those that columns ask for, and `lams` draws mixed samples; `pictures` are
    what to look at afterwards, as paths in a run folder. `varies` are settings in which rows differ on purpose.
    """

    name: str
    title: str
    source: str
    rows: tuple[Row, ...]
    columns: tuple[Column, ...]
    cells: tuple[Cell, ...]
    trials: int = 3
    reference: str | None = "automix"
    evaluators: tuple[str, ...] = ()
    lams: tuple[float, ...] = ()
    pictures: tuple[str, ...] = ()
    varies: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        check_fair(self)

    def cell(self, row: str, column: str) -> Cell | None:
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)


def make_cells(
    rows: Sequence[Row],
    columns: Sequence[Column],
    paper: Mapping[str, Sequence[float | None]],
    impossible: Mapping[tuple[str, str], str] | None = None,
) -> tuple[Cell, ...]:
    """Every row in every column; `paper` has the numbers of a row in the order of the columns."""
    cells = []
    for row in rows:
        numbers = paper.get(row.name, [None] * len(columns))
        for column, number in zip(columns, numbers, strict=True):
            why_not = (impossible or {}).get((row.name, column.name), "")
            cells.append(make_cell(row, column, number, why_not))
    return tuple(cells)


def make_cell(row: Row, column: Column, paper: float | None, why_not: str = "") -> Cell:
    """Both networks of the method; the paper's number is about the one that it deploys."""
    values = merge(column.values, row.values)
    method = values["method"]
    about: Network = "teacher" if method == "automix" or values["recipe"] == "deit" else "student"
    if why_not:
        return Cell(row.name, column.name, paper, about, note=why_not)
    averaged = merge(values, {"ema": True})
    if column.measure.startswith(OF_THE_RUN):
        return Cell(row.name, column.name, paper, "teacher", teacher=Source(averaged, "teacher"))
    # a detector is built on the network that a run deploys
    alone = method in LOOK_THROUGH or (column.measure.startswith("detect/") and method != "automix")
    student = Source(merge(values, {"ema": False}), "student") if alone else Source(averaged, "student")
    return Cell(row.name, column.name, paper, about, student, Source(averaged, "teacher"))


def merge(first: Values, then: Values) -> Values:
    """Settings with others on top; options of the method and the network are merged one by one."""
    merged = {**first, **then}
    for name in ("method_options", "model_options"):
        if name in first and name in then:
            merged[name] = {**first[name], **then[name]}
    return merged
