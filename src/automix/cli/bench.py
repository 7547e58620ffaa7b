"""`automix bench NAME`: a table, an ablation or a figure of the paper, run and set beside the paper's numbers."""

import shlex
import sys
import textwrap
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from automix.cli._arguments import new_parser, parse
from automix.cli._tables import print_table
from automix.core.files import write_atomically
from automix.core.validation import check_whole, unknown_name

if TYPE_CHECKING:
    from automix.studies import Experiment
    from automix.studies.plan import Cost, Grid, Job
    from automix.studies.results import Block

ABOUT = """Run an experiment of the paper, or our replica, beside the paper's numbers.

  automix bench --list                             what there is
  automix bench table1 --dry-run                   what it would cost
  automix bench table2 --methods mixup automix --columns r50-100ep
  automix bench replica --report                   the table of what is finished
  automix bench table1 --trials 1 --set epochs=2   a small try of it
  automix bench replica --launcher-options processes=2    two runs at a time
  automix bench table9 --launcher slurm --launcher-options gpus_per_node=1

A finished run is never done again and an interrupted one goes on: the same
command continues a grid. Runs are folders in --out, named by the settings that
decide them and shared by all experiments; NAME.md, NAME.json and NAME.png beside
them have the results.
"""


class RunsFailedError(ArithmeticError):
    """Some runs of a grid failed, the others are done; like a loss that is not finite, it ends with exit code 1."""


def run(arguments: list[str]) -> None:
    from automix.studies import find_experiment
    from automix.studies.launchers import LAUNCHERS
    from automix.studies.plan import Grid, cost, plan, read_changes, read_pairs, select

    parser = new_parser("bench", "NAME [flags]", ABOUT)
    parser.add_argument("name", nargs="?", type=str, help="the experiment")
    parser.add_argument("--list", action="store_true", help="list the experiments")
    parser.add_argument("--methods", type=str, nargs="+", default=None, help="some of the rows; all if not given")
    parser.add_argument("--columns", type=str, nargs="+", default=None, help="some of the columns; all if not given")
    parser.add_argument("--trials", type=int, default=None, help="runs of each cell, seeds 0, 1, ...; as the paper's")
    parser.add_argument("--data-root", type=str, default=None, help="where named datasets lie")
    parser.add_argument("--out", type=str, default="runs/bench", help="the folder for runs and results")
    parser.add_argument("--dry-run", action="store_true", help="say what it would cost, and stop")
    parser.add_argument("--report", action="store_true", help="the table of what is finished, without running anything")
    parser.add_argument("--launcher", type=str, default="local", help="local: here, one run at a time; ray; slurm")
    parser.add_argument("--launcher-options", type=str, nargs="+", default=[], help="NAME=VALUE for the launcher")
    parser.add_argument(
        "--set", type=str, nargs="+", default=[], help="NAME=VALUE: settings of automix train to change"
    )
    given = parse(parser, arguments)
    if given.list:
        return _list()
    if given.name is None:
        raise ValueError("NAME is missing: accepted is an experiment's, see automix bench --list")
    if given.launcher not in LAUNCHERS:
        raise unknown_name("launcher", given.launcher, LAUNCHERS)
    check_whole("trials", given.trials, 1)
    whole = find_experiment(given.name)
    chosen = select(whole, given.methods, given.columns)
    grid = Grid(Path(given.out), given.trials or whole.trials, given.data_root, read_changes(given.set))
    options = read_pairs(given.launcher_options, "--launcher-options")
    jobs = plan(chosen, grid)
    left = _check(jobs) if not (given.dry_run or given.report) else []
    console = Console(highlight=False, soft_wrap=not sys.stdout.isatty())
    failed: dict[str, str] = {}
    try:
        if not given.report:
            console.print(_describe(chosen, grid, cost(chosen, jobs)), markup=False)
            if given.dry_run:
                return None
            failed = _launch(jobs, left, given.launcher, options, console)
    finally:
        if not given.dry_run:  # a grid that is interrupted leaves the table of what is finished, too
            _report(whole, chosen, grid, shlex.join(["automix", "bench", *arguments]), console)
    if failed:
        first, why = next(iter(failed.items()))
        raise RunsFailedError(f"{len(failed)} of {len(jobs)} runs failed, {first}: {why}; the same command tries again")
    return None


def _list() -> None:
    from automix.studies import ALIASES, EXPERIMENTS
    from automix.studies.plan import Grid, plan

    other = {name: alias for alias, name in ALIASES.items()}
    rows = []
    for name, experiment in EXPERIMENTS.items():
        runs = len(plan(experiment, Grid(Path(), experiment.trials)))
        also = f" ({other[name]})" if name in other else ""
        grid = f"{len(experiment.rows)} x {len(experiment.columns)}"
        rows.append((name, grid, str(runs), experiment.title + also))
    print_table(("experiment", "cells", "runs", "about"), rows)


def _describe(experiment: "Experiment", grid: "Grid", found: "Cost") -> str:
    """What the grid is, and what is left of it."""
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
    """What is left to do; missing data and wrong settings are told before the first run."""
    from automix.runs.config import TrainConfig
    from automix.studies.work import is_done

    left = [job for job in jobs if not is_done(job)]
    for job in left:
        TrainConfig.from_flat(job.values)
    return left


def _launch(
    jobs: "Sequence[Job]", left: "Sequence[Job]", launcher: str, options: dict[str, object], console: Console
) -> dict[str, str]:
    """Do what is left; returns the runs that failed, and why."""
    from automix.studies.launchers import LAUNCHERS
    from automix.studies.progress import Report

    report = Report(jobs, left, console)
    LAUNCHERS[launcher](left, report, options)
    return report.failed


def _report(whole: "Experiment", chosen: "Experiment", grid: "Grid", command: str, console: Console) -> None:
    """The tables: those that were chosen on the screen, all of the experiment in files."""
    from automix.studies.results import collect, precisions
    from automix.studies.tables import as_json, as_markdown, facts_of, print_blocks, write

    facts, name = facts_of(command), whole.name
    if grid.changes:
        name += "-changed"
        facts["settings changed"] = ", ".join(f"{key}={value}" for key, value in grid.changes.items())
    blocks, shown = collect(whole, grid), collect(chosen, grid)
    if found := precisions(blocks, grid.out):
        facts["computed in"] = " and ".join(found)
    plot = _plot(blocks, grid.out / f"{name}.png")
    write(grid.out / f"{name}.md", as_markdown(whole, blocks, facts, plot))
    write(grid.out / f"{name}.json", as_json(whole, blocks, facts))
    if sys.stdout.isatty():
        print_blocks(chosen, shown, console)
    else:
        sys.stdout.write(as_markdown(chosen, shown, facts))
    console.print(f"all of it in {grid.out / name}.md and {name}.json", markup=False)


def _plot(blocks: "Sequence[Block]", path: Path) -> str:
    """Draw the results into a file and return its name; nothing where nothing is finished or matplotlib is missing."""
    from automix.evaluation.plots import NoPlotsError
    from automix.studies.plots import draw

    try:
        picture = draw(blocks)
    except NoPlotsError:
        return ""
    if picture is None:
        return ""
    write_atomically(path, lambda temporary: picture.save(temporary, "png"))
    return path.name
