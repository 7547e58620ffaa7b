"""The progress of a fine-tuning: a bar on a terminal, lines elsewhere, and metrics.jsonl in any case."""

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console

from automix.evaluation.progress import Item, no_progress, progress_bar
from automix.runs.folder import RunFolder
from automix.runs.metrics import truncate_metrics
from automix.studies.detection.run import DetectRun
from automix.training.display import step_bar, time_left

STEPS_BETWEEN_LINES = 20


def choose_report() -> "Report":
    """Choose a bar if the output is a terminal, else lines."""
    return Bar(Console(highlight=False)) if sys.stdout.isatty() else Report(Console(soft_wrap=True, highlight=False))


class Report:
    """Prints the mean losses every 20 steps, and writes them to metrics.jsonl.

    Args:
        console: Where lines are printed.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.pending: list[dict[str, float]] = []

    def begin(self, run: DetectRun) -> None:
        """Open metrics.jsonl and describe the run.

        Args:
            run: The run, at its first step or resumed.
        """
        settings, config = run.config.settings, run.config
        path = RunFolder(config.folder).metrics
        truncate_metrics(path, run.step)
        self.file = path.open("a", encoding="utf-8")
        self.first_step = run.step
        self.console.print(
            f"{config.kind} on {config.data}: {len(run.train.classes)} classes, {len(run.train)} training and "
            f"{len(run.test)} test images; backbone {run.card.backbone.model} ({config.backbone})\n"
            f"recipe {config.recipe}, {settings.steps} steps of {settings.batch_size} images of "
            f"{_span(settings.short_sides)} px; {run.device.type}; {config.folder}"
        )
        if run.step:
            self.console.print(f"resumed after step {run.step} of {settings.steps}")

    def step(self, run: DetectRun, losses: dict[str, float]) -> None:
        """Record the losses of a step.

        Args:
            run: The run, after the step.
            losses: The losses by name.
        """
        self.pending.append(losses)
        if run.step % STEPS_BETWEEN_LINES and run.step != run.config.settings.steps:
            return
        means = {name: sum(each[name] for each in self.pending) / len(self.pending) for name in losses}
        self.pending = []
        record = {"step": run.step, "kind": "step", "lr": run.optimizer.param_groups[0]["lr"], **means}
        self.file.write(json.dumps(record) + "\n")
        self.file.flush()
        self.show(run, means)

    def show(self, run: DetectRun, means: dict[str, float]) -> None:
        """Show mean losses.

        Args:
            run: The run.
            means: Means since the last call, by name.
        """
        steps = run.config.settings.steps
        left = time_left(run.seconds - run.seconds_before, run.step - self.first_step, steps - run.step)
        self.console.print(f"step {run.step:{len(str(steps))}d}/{steps}  {_numbers(means)}  {left} left")

    def track(self, items: Iterable[Item], total: int, what: str) -> Iterable[Item]:
        """Show the progress of the evaluation.

        Args:
            items: What is iterated over.
            total: How many there are.
            what: Text beside the bar.

        Returns:
            The items.
        """
        return no_progress(items, total, what)

    def end(self, results: dict[str, Any], folder: Path) -> None:
        """Show the results.

        Args:
            results: The content of results.json.
            folder: The run folder.
        """
        shown = "  ".join(f"{name} {results[name]:.2f} %" for name in ("mAP", "AP50", "AP75"))
        self.console.print(f"{shown}; everything is in {folder}")

    def close(self) -> None:
        """Close metrics.jsonl."""
        if hasattr(self, "file"):
            self.file.close()


class Silent(Report):
    """Writes metrics.jsonl and prints nothing."""

    def __init__(self) -> None:
        super().__init__(Console(quiet=True))


class Bar(Report):
    """Shows a live bar instead of lines."""

    def begin(self, run: DetectRun) -> None:
        super().begin(run)
        self.bar = step_bar(self.console)
        self.job = self.bar.add_task("", total=run.config.settings.steps, completed=run.step, numbers="")
        self.bar.start()

    def step(self, run: DetectRun, losses: dict[str, float]) -> None:
        super().step(run, losses)
        self.bar.update(self.job, completed=run.step)
        if run.step == run.config.settings.steps:
            self.bar.stop()  # the evaluation has a bar of its own

    def show(self, run: DetectRun, means: dict[str, float]) -> None:
        self.bar.update(self.job, numbers=_numbers(means))

    def track(self, items: Iterable[Item], total: int, what: str) -> Iterable[Item]:
        return progress_bar(items, total, what)

    def close(self) -> None:
        super().close()
        if hasattr(self, "bar"):
            self.bar.stop()  # otherwise the cursor stays hidden


def _numbers(means: dict[str, float]) -> str:
    short = {"loss": "loss", "loss_classifier": "class", "loss_box_reg": "box", "loss_objectness": "object",
             "loss_rpn_box_reg": "proposal"}  # fmt: skip
    return "  ".join(f"{name} {means[long]:.3f}" for long, name in short.items())


def _span(sides: tuple[int, ...]) -> str:
    return f"{min(sides)}" if len(set(sides)) == 1 else f"{min(sides)} to {max(sides)}"
