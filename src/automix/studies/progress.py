"""The progress of a grid: a line for each run that ends and, on a terminal, a bar for the current one."""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Column as BarPart

from automix.core.errors import one_line
from automix.studies.cost import estimate_seconds, step_times
from automix.studies.plan import Job
from automix.training.display import Silent, time_left
from automix.training.run import Run


class GridProgress:
    """Prints a line for each run that ends or fails, with the estimated time left.

    Args:
        jobs: All runs of the grid.
        left: The runs that are not finished.
        console: Where lines are printed.
    """

    def __init__(self, jobs: Sequence[Job], left: Sequence[Job], console: Console) -> None:
        self.jobs, self.console = jobs, console
        self.left = {job.name: job for job in left}
        self.total = len(left)
        self.failed: dict[str, str] = {}
        self.since = time.monotonic()

    def done(self, name: str) -> None:
        """Report a finished run.

        Args:
            name: The name of its folder.
        """
        del self.left[name]
        self.console.print(f"{self.count}  {name}  {self.time_left()}", markup=False)

    def fail(self, name: str, reason: str) -> None:
        """Report a failed run.

        Args:
            name: The name of its folder.
            reason: The message of the error.
        """
        del self.left[name]
        self.failed[name] = one_line(reason)
        self.console.print(f"{self.count}  {name} FAILED: {self.failed[name]}", markup=False, style="red")

    @property
    def count(self) -> str:
        """Runs that ended and all runs, as [3/12]."""
        return f"[{self.total - len(self.left)}/{self.total}]"

    def time_left(self) -> str:
        """Estimate the time left, one run at a time, from finished runs of the same network and data."""
        if not self.left:
            return f"all done in {_clock(time.monotonic() - self.since)}"
        timed = step_times(self.jobs)
        times = [estimate_seconds(job, timed) for job in self.left.values()]
        known = [seconds for seconds in times if seconds is not None]
        untimed = len(times) - len(known)
        words = [f"about {_clock(sum(known))} left"] if known else []
        words += [f"{untimed} not timed yet"] if untimed else []
        return ", ".join(words)


class RunBar(Silent):
    """A bar for the current run on a terminal; it disappears when the run ends.

    Args:
        progress: The progress of the grid.
        job: The run.
    """

    def __init__(self, progress: GridProgress, job: Job) -> None:
        self.bar = Progress(
            TextColumn(f"{progress.count} {job.name}", markup=False, table_column=BarPart(no_wrap=True, ratio=1)),
            MofNCompleteColumn(table_column=BarPart(no_wrap=True)),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[left]}", table_column=BarPart(no_wrap=True)),
            console=progress.console,
            transient=True,
            expand=True,
            disable=not progress.console.is_terminal,
        )

    def begin(self, run: Run) -> None:
        self.job = self.bar.add_task("", total=run.total_steps, completed=run.step, left="")
        self.first, self.since = run.step, time.monotonic()
        self.bar.start()

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        left = time_left(time.monotonic() - self.since, run.step - self.first, run.total_steps - run.step)
        self.bar.update(self.job, completed=run.step, left=str(left))

    def end(self, run: Run, summary: dict[str, Any]) -> None:
        self.bar.stop()

    def close(self) -> None:
        self.bar.stop()  # otherwise the cursor stays hidden


def _clock(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))
