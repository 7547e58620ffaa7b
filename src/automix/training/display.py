"""Displays of the progress: a live bar on a terminal, plain lines elsewhere, nothing for calls from Python."""

import shlex
import sys
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from automix.data import DATASETS, describe_ignored
from automix.networks.create import SMALL_IMAGE, has_small_form
from automix.runs.metrics import deployed_network
from automix.training.advice import setting_warnings
from automix.training.log import Display, learning_rate
from automix.training.run import Run

SECONDS_BETWEEN_LINES = 10  # while all files are read in search of bad ones
LISTED = 20  # of the files that were left out
MEANINGLESS_TOP5 = 5  # with so many classes or fewer, top-5 is always 100 %
FIRST_STEPS, TIMED_STEPS = 2, 8  # steps that allocate, and those after them that tell how long the training will take


def choose_display() -> Display:
    """Choose the display of the command line.

    Returns:
        A bar if the output is a terminal, lines otherwise.
    """
    return Bar(Console(highlight=False)) if sys.stdout.isatty() else Lines(Console(soft_wrap=True, highlight=False))


def step_bar(console: Console) -> Progress:
    """Make a live bar of training steps.

    Args:
        console: The terminal.

    Returns:
        A bar that disappears at the end. Its tasks have a field `numbers`, a text behind the time left.
    """
    return Progress(
        TextColumn("step"),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        BarColumn(bar_width=12),
        TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
        # the last column takes the rest of the line, and on a narrow terminal loses its end
        TextColumn("{task.fields[numbers]}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        console=console,
        transient=True,
        expand=True,
    )


def time_left(seconds: float, done: int, left: int) -> timedelta:
    """Estimate the rest of a training.

    Args:
        seconds: Time spent.
        done: Steps done in that time, at least 1.
        left: Steps to do.

    Returns:
        The time at the same speed, in whole seconds.
    """
    return timedelta(seconds=round(seconds / done * left))


class Silent(Display):
    """Shows nothing, for calls from Python."""


class Lines(Display):
    """Prints a line at the start, one for each epoch, and a table at the end.

    Args:
        console: Where to print.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.first_step = 0
        self.last_line = time.monotonic()
        self.since = 0.0  # when the timed steps began
        self.mixes = False  # whether the last step mixed

    def reading(self, done: int, total: int) -> None:
        if time.monotonic() - self.last_line > SECONDS_BETWEEN_LINES:
            self.last_line = time.monotonic()
            self.console.print(f"looking for bad files: {done} of {total} images")

    def begin(self, run: Run) -> None:
        self.first_step = run.step
        self.console.print(describe(run))
        if run.data.wrong_labels:
            self.console.print(describe_label_noise(run))
        for line in list_skipped(run)[:1]:
            self.console.print(line, markup=False)
        if run.data.ignored:
            self.console.print(describe_ignored(run.data.ignored), markup=False)
        if cache := run.data.cache.describe():
            self.console.print(cache, markup=False)
        if run.step:
            self.console.print(f"resumed after step {run.step} of {run.total_steps}")
        for warning in setting_warnings(run):
            self.warn(warning)

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        done = run.step - self.first_step
        if done == FIRST_STEPS:
            self.since = time.monotonic()
        elif done == FIRST_STEPS + TIMED_STEPS:
            left = time_left(time.monotonic() - self.since, TIMED_STEPS, run.total_steps - run.step)
            self.console.print(f"about {in_minutes(left)} for {run.total_steps - run.step} more steps at this speed")
        mixed = "loss_mixed" in metrics
        if self.mixes and not mixed:
            self.console.print(
                f"mixing ends after step {run.step - 1}: from here on the images are clean, and their loss is lower"
            )
        self.mixes = mixed

    def epoch(self, run: Run, record: dict[str, Any]) -> None:
        left = time_left(run.seconds - run.seconds_before, run.step - self.first_step, run.total_steps - run.step)
        name, loss = loss_to_follow(record, run.config.method)
        parts = [f"epoch {record['epoch']:3d}/{run.config.settings.epochs}", f"{name} {loss:.3f}"]
        networks = [name for name in record if name.endswith("_top1")]
        parts += [f"{name.removesuffix('_top1')} {record[name]:.2f} %" for name in networks]
        parts += [f"{record['images_per_second']:.0f} images/s", f"{left} left"]
        self.console.print("  ".join(parts))

    def warn(self, message: str) -> None:
        self.console.print(f"warning: {message}", style="yellow")

    def end(self, run: Run, summary: dict[str, Any]) -> None:
        self.console.print(summary_table(run, summary))
        for line in (*list_skipped(run), *next_commands(run)):
            self.console.print(line, markup=False)


class Bar(Lines):
    """Prints the same lines above a live bar with loss terms, learning rate, images/s and time left.

    Args:
        console: Where to print.
    """

    def begin(self, run: Run) -> None:
        super().begin(run)
        self.bar = step_bar(self.console)
        self.job = self.bar.add_task("", total=run.total_steps, completed=run.step, numbers="")
        self.bar.start()

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        super().step(run, metrics)
        self.bar.update(self.job, completed=run.step, numbers=self._numbers(run, metrics))

    def _numbers(self, run: Run, metrics: dict[str, float]) -> str:
        speed = (self.bar.tasks[0].speed or 0) * run.config.settings.batch_size
        terms = {name.removeprefix("loss_"): value for name, value in metrics.items() if name.startswith("loss_")}
        shown = "  ".join(f"{name} {value:.3f}" for name, value in terms.items())
        return f"{speed:.0f} images/s  lr {learning_rate(run):.2g}  {shown}"

    def end(self, run: Run, summary: dict[str, Any]) -> None:
        self.bar.stop()
        super().end(run, summary)

    def close(self) -> None:
        self.bar.stop()  # or the cursor stays hidden


def in_minutes(time: timedelta) -> str:
    """Write a time for people, in seconds, minutes or hours."""
    seconds = time.total_seconds()
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def loss_to_follow(metrics: Mapping[str, float], method: str) -> tuple[str, float]:
    """Choose the loss that a person can follow: the student's on the images it learns from.

    The sum of all terms counts the Mix Block's loss too, and falls by half when mixing ends.

    Args:
        metrics: Numbers of a step or an epoch, by name.
        method: Name of the method.

    Returns:
        What the loss is called, and its value.
    """
    if "loss_mixed" in metrics:
        return "loss" if method == "vanilla" else "mixed loss", metrics["loss_mixed"]
    if "loss_clean" in metrics:
        return "clean loss", metrics["loss_clean"]
    return "loss", metrics["loss"]


def describe(run: Run) -> str:
    """Describe a run in a few lines: network and weights, data and method, length, and where files and pictures go."""
    data, config, settings = run.data, run.config, run.config.settings
    millions = sum(parameter.numel() for parameter in run.task.student.parameters()) / 1e6
    where = f"{run.device.type}, {run.precision}" + (f", {run.world.size} processes" if run.world.size > 1 else "")
    return (
        f"{config.model}, {millions:.2f} M parameters, {run.weights}\n"
        f"{config.method} on {data.name}: {len(data.classes)} classes, {data.train_count} training and "
        f"{data.test_count} test images of {data.image_size} px\n"
        f"recipe {config.recipe}: {settings.epochs} epochs, {run.total_steps} steps of {settings.batch_size}; "
        f"{where}\n"
        f"run folder {run.folder.path}; pictures of {_pictured(run)} in {run.folder.pictures}" + _small_form(run)
    )


def _pictured(run: Run) -> str:
    return "training images" if run.config.method == "vanilla" else "mixed samples"


def describe_label_noise(run: Run) -> str:
    """Say how many training labels are wrong on purpose."""
    wrong, count = run.data.wrong_labels, run.data.train_count
    return f"label noise: {wrong} of {count} training labels are wrong; test labels are right"


def _small_form(run: Run) -> str:
    """Say that a network has another form on small images, which costs more than larger images in the usual one."""
    size = run.data.image_size
    chosen = run.config.data not in DATASETS or run.config.settings.train_size is not None
    if not (chosen and size > SMALL_IMAGE // 2 and has_small_form(run.config.model, size)):
        return ""
    return (
        f"\nfor {size} px {run.config.model} has the form for small images, with maps of four times the side: "
        f"a step costs more than with --train-size {SMALL_IMAGE + 32}"
    )


def next_commands(run: Run) -> list[str]:
    """List what can be done with a finished run, as commands to copy."""
    folder = shlex.quote(str(run.folder.path))
    return [
        "next:",
        f"  automix predict {folder} photo.jpg     classify an image, or a folder of them",
        f"  automix evaluate {folder}              accuracy with its interval, calibration, errors",
        f"  automix report {folder}                all of it as one HTML page",
        f"  automix explore {folder}               mix two images and move lam, in the browser",
    ]


def list_skipped(run: Run) -> list[str]:
    """List the bad files that were left out; the accuracies are those on the other files."""
    files = run.data.skipped or ()
    if not files:
        return []
    bad = [file.use for file in files]
    counts = (f"{bad.count(use)} of {count} for {use}" for use, count in run.data.file_counts().items())
    lines = [f"bad files left out: {', '.join(counts)}; all of them in {run.folder.skipped}"]
    lines += [f"  {file.error}" for file in files[:LISTED]]
    return lines + ([f"  and {len(files) - LISTED} more"] if len(files) > LISTED else [])


def summary_table(run: Run, summary: dict[str, Any]) -> Table:
    """Make a table of accuracies by network, with the paper's median over the last epochs."""
    table = Table(show_header=True, header_style="bold", title_justify="left")
    tops = ("top1", "top5") if len(run.data.classes) > MEANINGLESS_TOP5 else ("top1",)
    for column in ("test accuracy", "top-1 %", "top-5 %")[: 1 + len(tops)]:
        table.add_column(column, justify="left" if column == "test accuracy" else "right")
    for network in ("student", "teacher"):
        if f"{network}_top1" in summary:
            table.add_row(f"{network}, last epoch", *(f"{summary[f'{network}_{top}']:.2f}" for top in tops))
    if "best_top1" in summary:
        deployed = deployed_network(summary)
        count = summary["epochs_in_median"]
        if count > 1:
            table.add_row(f"{deployed}, median of the last {count}", f"{summary['median_top1_of_last_epochs']:.2f}")
        table.add_row(f"{deployed}, best (epoch {summary['best_epoch']:.0f})", f"{summary['best_top1']:.2f}")
    table.caption = (
        f"{summary['steps']} steps in {timedelta(seconds=round(summary['seconds']))}; all of it in {run.folder.path}"
    )
    return table
