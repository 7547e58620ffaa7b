"""The progress of a search: a live table on a terminal, a line for each run elsewhere."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table

from automix.core.errors import one_line
from automix.studies.tuning.clock import Clock
from automix.studies.tuning.record import Configuration, TuneRecord

SHOWN = 12  # configurations in the live table


class TuneProgress:
    """Shows a search; the launchers report the runs that end to it.

    Args:
        console: Where to print.
        clock: The time of the search.
    """

    def __init__(self, console: Console, clock: Clock) -> None:
        self.console, self.clock = console, clock
        self.record: TuneRecord | None = None
        self.running: dict[str, str] = {}
        self.failed: dict[str, str] = {}
        self.runs = 0

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the table while the search goes on, if the output is a terminal.

        Yields:
            Nothing; the table is shown inside the `with` block.
        """
        if not self.console.is_terminal:
            yield
            return
        with Live(get_renderable=self.render, console=self.console, refresh_per_second=1, transient=True):
            yield

    def announce(self, lines: Sequence[str]) -> None:
        """Print what the search will do.

        Args:
            lines: Lines of text.
        """
        for line in lines:
            self.console.print(line, markup=False)

    def start(self, labels: dict[str, str]) -> None:
        """Note which runs start.

        Args:
            labels: What to call them, by the name of their folder.
        """
        self.running, self.failed = dict(labels), {}

    def done(self, name: str) -> None:
        """Note that a run is finished.

        Args:
            name: The name of its folder.
        """
        self.runs += 1
        self.running.pop(name, None)

    def fail(self, name: str, reason: str) -> None:
        """Note that a run failed.

        Args:
            name: The name of its folder.
            reason: The message of the error.
        """
        label = self.running.pop(name, name)
        self.failed[name] = one_line(reason)
        self.console.print(f"{label} FAILED: {self.failed[name]}", markup=False, style="red")

    @property
    def count(self) -> str:
        """Number of the current run."""
        return f"run {self.runs + 1}"

    def update(self, record: TuneRecord, finished: Sequence[tuple[Configuration, int]]) -> None:
        """Show new scores.

        Args:
            record: All that is known.
            finished: The runs that ended, each with its epochs.
        """
        self.record = record
        for one, epochs in finished:
            score = one.scores.get(epochs)
            if score is not None:
                error = record.standard_error(score)
                self.console.print(
                    f"{one.label}: {score:.1f} ± {error:.1f} % after {epochs} epochs  {self.time_left()}", markup=False
                )

    def time_left(self) -> str:
        """The time left, in a few words."""
        return f"{clock_time(self.clock.left)} left of {clock_time(self.clock.budget)}"

    def render(self) -> RenderableType:
        """Draw the table and the time left."""
        parts: list[RenderableType] = [] if self.record is None else [table_of(self.record, SHOWN)]
        running = "; ".join(self.running.values())
        return Group(*parts, f"{self.time_left()}   {running}")


def clock_time(seconds: float) -> str:
    """Write a time as 0:01:30.

    Args:
        seconds: The time; 0 if it is negative.

    Returns:
        Hours, minutes and seconds.
    """
    return str(timedelta(seconds=max(0, round(seconds))))


def table_of(record: TuneRecord, most: int | None = None) -> Table:
    """Make a table of the configurations, the best first.

    Args:
        record: The record of a search.
        most: Show so many rows at most.

    Returns:
        The table: a row for each configuration, a column for each length.
    """
    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in ("method", "lr", "alpha", *(f"{epochs} epochs %" for epochs in record.epochs), "s", ""):
        table.add_column(column, justify="left" if column in ("method", "") else "right")
    for one in record.ranking[:most]:
        scores = (_score(record, one.scores.get(epochs)) for epochs in record.epochs)
        mark = "winner" if one.number == record.winner else one.state
        alpha = "" if one.alpha is None else f"{one.alpha:g}"
        table.add_row(one.title, f"{one.lr:g}", alpha, *scores, f"{one.seconds:.0f}", mark)
    return table


def _score(record: TuneRecord, score: float | None) -> str:
    return "" if score is None else f"{score:.1f} ± {record.standard_error(score):.1f}"
