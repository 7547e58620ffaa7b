"""`automix bench NAME`: a table, an ablation or a figure of the paper, run and set beside the paper's numbers."""

import shlex
import sys
import textwrap
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from automix.cli._flags import Integer, Several, Switch
from automix.cli._output import print_table
from automix.core.errors import AutomixError

if TYPE_CHECKING:
    from rich.console import Console

    from automix.studies import Experiment
    from automix.studies.cost import Cost
    from automix.studies.plan import Grid, Job
    from automix.studies.results import ResultTable

Words = Annotated[tuple[str, ...], Several, Parameter(show_default=False)]


class RunsFailedError(Exception):
    """Some runs of a grid failed and the others are done."""

    exit_code = 1


def bench(
    name: str | None = None,
    /,
    *,
    list_experiments: Annotated[Switch, Parameter(name="--list")] = False,
    methods: Words = (),
    columns: Words = (),
    trials: Integer | None = None,
    data_root: str | None = None,
    out: Path = Path("runs/bench"),
    dry_run: Switch = False,
    report: Switch = False,
    launcher: str = "local",
    launcher_options: Words = (),
    changes: Annotated[Words, Parameter(name="--set")] = (),
) -> None:
    """Run an experiment of the paper, or our replica, beside the paper's numbers.

    For example:
      automix bench --list                             all experiments
      automix bench table1 --dry-run                   the cost of one
      automix bench table2 --methods mixup automix --columns r50-100ep
      automix bench replica --report                   the finished part
      automix bench table1 --trials 1 --set epochs=2   a small try
      automix bench replica --launcher-options processes=2
      automix bench table9 --launcher slurm --launcher-options gpus_per_node=1

    A finished run is never repeated and an interrupted one is resumed: the
    same command continues a grid. Runs are folders in --out, named by the
    settings that decide them and shared by all experiments. NAME.md, NAME.json
    and NAME.png beside them hold the results.

    Args:
        name: The experiment.
        list_experiments: List the experiments.
        methods: Some of the rows; all if not given.
        columns: Some of the columns; all if not given.
        trials: Runs of each cell, with seeds 0, 1, ...; the paper's number if not given.
        data_root: The folder of named datasets.
        out: The folder for runs and results.
        dry_run: Print the cost and stop.
        report: Print the table of the finished runs, without running anything.
        launcher: local, one run at a time on this machine; ray; or slurm.
        launcher_options: NAME=VALUE for the launcher.
        changes: NAME=VALUE, settings of `automix train` to change in every run.
    """
    if list_experiments:
        _list()
        return
    if name is None:
        raise AutomixError("NAME is missing; automix bench --list shows the experiments")

    from rich.console import Console

    from automix.core.validation import check_whole, unknown_name
    from automix.studies import find_experiment
    from automix.studies.changes import read_changes, read_pairs
    from automix.studies.cost import estimate_cost
    from automix.studies.launchers import LAUNCHERS
    from automix.studies.plan import Grid, plan_jobs, select

    if launcher not in LAUNCHERS:
        raise unknown_name("launcher", launcher, LAUNCHERS)
    check_whole("trials", trials, 1)
    whole = find_experiment(name)
    chosen = select(whole, methods or None, columns or None)
    grid = Grid(out, trials or whole.trials, data_root, read_changes(changes))
    options = read_pairs(launcher_options, "--launcher-options")
    jobs = plan_jobs(chosen, grid)
    left = [] if dry_run or report else _check(jobs)
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    if not report:
        console.print(_describe(chosen, grid, estimate_cost(chosen, jobs)), markup=False)
    if dry_run:
        return
    failed: dict[str, str] = {}
    try:
        if not report:
            failed = _launch(jobs, left, launcher, options, console)
    finally:  # a grid that is interrupted leaves the table of the finished runs, too
        flags = {"--methods": methods, "--columns": columns, "--trials": (trials,) if trials else (), "--set": changes}
        words = [word for flag, values in flags.items() if values for word in (flag, *map(str, values))]
        _report(whole, chosen, grid, shlex.join(["automix", "bench", name, *words]), console)
    if failed:
        first, why = next(iter(failed.items()))
        raise RunsFailedError(f"{len(failed)} of {len(jobs)} runs failed, {first}: {why}; the same command tries again")


def _list() -> None:
    from automix.studies import ALIASES, EXPERIMENTS
    from automix.studies.plan import Grid, plan_jobs

    other = {name: alias for alias, name in ALIASES.items()}
    rows = []
    for name, experiment in EXPERIMENTS.items():
        runs = len(plan_jobs(experiment, Grid(Path(), experiment.trials)))
        also = f" ({other[name]})" if name in other else ""
        grid = f"{len(experiment.rows)} x {len(experiment.columns)}"
        rows.append((name, grid, str(runs), experiment.title + also))
    print_table(("experiment", "cells", "runs", "about"), rows, header_in_files=True)


def _describe(experiment: "Experiment", grid: "Grid", found: "Cost") -> str:
    """Describe the grid, and the part of it that is not finished."""
    lines = [f"{experiment.name}: {experiment.title}",
             _wrap("rows", [row.name for row in experiment.rows]),
             _wrap("columns", [column.name for column in experiment.columns]),
             f"  {_count(found.cells, 'cell')}, {_count(grid.trials, 'trial')} each: {_count(found.runs, 'run')}, "
             f"{found.finished} of them finished",
             f"  left     {found.steps:,} steps, {found.images:,} training images"]  # fmt: skip
    if found.unknown:
        lines.append(f"  {_count(found.unknown, 'run')} on data whose size is not known before it is read")
    if found.seconds:
        lines.append(f"  about {timedelta(seconds=round(found.seconds))} for runs like those that are finished")
    if found.untimed:
        lines.append(f"  {_count(found.untimed, 'run')} like none that is finished: no time is known")
    return "\n".join(lines)


def _wrap(kind: str, names: list[str]) -> str:
    return textwrap.fill(f"  {kind:9}{' '.join(names)}", 78, subsequent_indent=" " * 11, break_on_hyphens=False)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _check(jobs: "Sequence[Job]") -> "list[Job]":
    """The unfinished runs; missing data and wrong settings are refused before the first of them starts."""
    from automix.runs.config import TrainConfig
    from automix.studies.run_job import is_complete
    from automix.training.prepare import check_environment

    left = [job for job in jobs if not is_complete(job)]
    for job in left:
        check_environment(TrainConfig.from_flat(job.values))
    return left


def _launch(
    jobs: "Sequence[Job]", left: "Sequence[Job]", launcher: str, options: dict[str, object], console: "Console"
) -> dict[str, str]:
    """Do the unfinished runs; return those that failed, and why."""
    from automix.studies.launchers import LAUNCHERS
    from automix.studies.progress import GridProgress

    progress = GridProgress(jobs, left, console)
    LAUNCHERS[launcher](left, progress, options)
    return progress.failed


def _report(whole: "Experiment", chosen: "Experiment", grid: "Grid", command: str, console: "Console") -> None:
    """Print the chosen tables, and write those of the whole experiment into files."""
    from automix.core.files import write_text
    from automix.studies.environment import environment_facts
    from automix.studies.results import collect, precisions
    from automix.studies.tables import as_json, as_markdown, print_tables

    facts, name = environment_facts(command), whole.name
    if grid.changes:
        name += "-changed"
        facts["settings changed"] = ", ".join(f"{key}={value}" for key, value in grid.changes.items())
    tables, shown = collect(whole, grid), collect(chosen, grid)
    if found := precisions(tables, grid.out):
        facts["computed in"] = " and ".join(found)
    grid.out.mkdir(parents=True, exist_ok=True)
    plot = _plot(whole, tables, grid.out / f"{name}.png")
    write_text(grid.out / f"{name}.md", as_markdown(whole, tables, facts, plot))
    write_text(grid.out / f"{name}.json", as_json(whole, tables, facts))
    if sys.stdout.isatty():
        print_tables(chosen, shown, console)
    else:
        sys.stdout.write(as_markdown(chosen, shown, facts))
    console.print(f"all of it in {grid.out / name}.md and {name}.json", markup=False)


def _plot(experiment: "Experiment", tables: "Sequence[ResultTable]", path: Path) -> str:
    """Draw the results into a file and return its name; "" if nothing is finished or matplotlib is missing."""
    from automix.core.files import write_atomically
    from automix.evaluation.plots import NoPlotsError
    from automix.studies.composites import draw_experiment

    try:
        picture = draw_experiment(experiment, tables, path.parent)
    except NoPlotsError:
        return ""
    if picture is None:
        return ""
    write_atomically(path, lambda temporary: picture.save(temporary, "png"))
    return path.name
