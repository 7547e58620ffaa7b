"""The log of a run: metrics.jsonl, TensorBoard, trackers, pictures and the summary."""

import json
import time
from typing import Any

from automix.core.files import write_atomically
from automix.pictures.mask_history import add_to_history
from automix.pictures.mixed_samples import draw_mixed_samples
from automix.runs.metrics import deployed_network, truncate_metrics
from automix.runs.protocol import median_of_last
from automix.training.hardware import autocast
from automix.training.run import Run
from automix.training.trackers import start_trackers

STEPS_BETWEEN_LINES = 50
DIAGNOSED_IMAGES = 128  # test images on which masks are measured


class Display:
    """Shows the progress of a run. The methods of this class show nothing: override those that should.

    They are called in the main process alone.
    """

    def reading(self, done: int, total: int) -> None:
        """Show how far the search for bad files is.

        Args:
            done: Images checked.
            total: All images.
        """

    def begin(self, run: Run) -> None:
        """Show what is about to be trained.

        Args:
            run: The run, at its first step or resumed.
        """

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        """Show a training step.

        Args:
            run: The run, after the step.
            metrics: The numbers of the step, by name.
        """

    def epoch(self, run: Run, record: dict[str, Any]) -> None:
        """Show an epoch.

        Args:
            run: The run, after the epoch.
            record: The means of its steps, and the accuracies if it was evaluated.
        """

    def warn(self, message: str) -> None:
        """Show a warning.

        Args:
            message: One line.
        """

    def end(self, run: Run, summary: dict[str, Any]) -> None:
        """Show the result.

        Args:
            run: The finished run.
            summary: As in summary.json.
        """

    def close(self) -> None:
        """Restore the terminal, however the run ended."""


class RunLog:
    """Logs what a run does. In all but the main process it does nothing.

    Args:
        run: The run, at its first step or resumed.
        display: Shows what is logged.
    """

    def __init__(self, run: Run, display: Display) -> None:
        self.active = run.world.is_main_process
        self.display = display
        self.numbers: dict[str, list[float]] = {}  # of the epoch's steps
        self.steps = 0
        self.start_clock()
        self.epochs: list[dict[str, Any]] = []
        if not self.active:
            return
        earlier = truncate_metrics(run.folder.metrics, run.step)
        self.epochs = earlier.of_kind("epoch")
        self.warned = {record["about"] for record in earlier.of_kind("warning")}
        self.file = run.folder.metrics.open("a", encoding="utf-8")
        from torch.utils.tensorboard import SummaryWriter

        self.board = SummaryWriter(str(run.folder.tensorboard), purge_step=run.step)
        self.trackers = start_trackers(run)
        display.begin(run)

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        """Log a step: shown always, written every 50 steps, averaged over the epoch.

        Args:
            run: The run, after the step.
            metrics: The numbers of the step, by name.
        """
        if not self.active:
            return
        for name, value in metrics.items():
            self.numbers.setdefault(name, []).append(value)
        self.steps += 1
        self.until = time.monotonic()
        self.display.step(run, metrics)
        if run.step % STEPS_BETWEEN_LINES == 0:
            self._write(run, {"kind": "step", "lr": learning_rate(run), **metrics})

    def epoch(self, run: Run, epoch: int, accuracy: dict[str, float]) -> None:
        """Log an epoch: the means of its steps (of those since the run was resumed), and the test accuracy.

        Args:
            run: The run, after the epoch.
            epoch: Epochs done.
            accuracy: Accuracies in percent by name; empty if the epoch was not evaluated.
        """
        if not self.active:
            return
        # each over the steps that have it: metrics of mixed images may end within an epoch
        means = {name: sum(values) / len(values) for name, values in self.numbers.items()}
        images = self.steps * run.config.settings.batch_size
        speed = images / (self.until - self.since)
        record = {"kind": "epoch", "epoch": epoch, "lr": learning_rate(run), "images_per_second": speed}
        record |= {**means, **accuracy}
        self._write(run, record)
        self.epochs.append(record)
        self.display.epoch(run, record)
        self.numbers, self.steps = {}, 0

    def open_epoch(self) -> dict[str, Any]:
        """Collect what the log knows of an epoch that is not logged yet, for a checkpoint.

        Returns:
            JSON values for `reopen_epoch`.
        """
        means = {name: sum(values) / len(values) for name, values in self.numbers.items()}
        return {"means": means, "steps": self.steps, "seconds": self.until - self.since}

    def reopen_epoch(self, saved: dict[str, Any]) -> None:
        """Continue an epoch of an earlier session.

        Args:
            saved: What `open_epoch` returned.
        """
        self.numbers = {name: [mean] for name, mean in saved["means"].items()}
        self.steps = saved["steps"]
        self.until = self.since + saved["seconds"]

    def diagnose(self, run: Run, record: dict[str, float]) -> None:
        """Measure what a learned mixer does to test images, and warn once of each problem.

        Args:
            run: The run.
            record: Gets the numbers.
        """
        if not (self.active and run.task.learns_to_mix):
            return
        x, y = run.data.loader.preview(DIAGNOSED_IMAGES)
        with autocast(run.precision, run.device):
            numbers, mask_warnings = run.task.diagnose(x.to(run.device), y.to(run.device))
        record |= numbers
        for kind, message in mask_warnings.items():
            if kind not in self.warned:
                self.warned.add(kind)
                self._write(run, {"kind": "warning", "about": kind, "message": message})
                self.display.warn(message)

    def start_clock(self) -> None:
        """Count time as training time from here on: images/s are without evaluation and pictures."""
        self.since = self.until = time.monotonic()

    def picture(self, run: Run, epoch: int) -> None:
        """Draw mixed samples and masks of a few test images, as the task mixes now.

        Args:
            run: The run.
            epoch: Epochs done.
        """
        if not self.active:
            return
        loader = run.data.loader
        x, y = (tensor.to(run.device) for tensor in loader.preview(8))
        title = f"{run.config.method}, epoch {epoch}"
        picture = draw_mixed_samples(run.task, x, loader.mean, loader.std, title=title, y=y)
        run.folder.pictures.mkdir(exist_ok=True)
        write_atomically(run.folder.epoch_picture(epoch), picture.save)
        every = run.epochs_between_pictures
        add_to_history(
            run.folder.mask_history,
            run.task,
            x,
            y,
            loader.mean,
            loader.std,
            column=epoch // every,
            columns=run.config.settings.epochs // every + 1,
            name=f"epoch {epoch}",
        )

    def finish(self, run: Run) -> dict[str, Any]:
        """Write and show the summary.

        Args:
            run: The finished run.

        Returns:
            The summary, in every process.
        """
        summary = summarize(run, self.epochs)
        if self.active:
            run.folder.write_summary(summary)
            self.display.end(run, summary)
        return summary

    def close(self) -> None:
        """Close all files."""
        if self.active:
            self.display.close()
            self.file.close()
            self.board.close()
            for tracker in self.trackers:
                tracker.finish()

    def _write(self, run: Run, record: dict[str, Any]) -> None:
        self.file.write(json.dumps({"step": run.step, **record}) + "\n")
        self.file.flush()
        numbers = {name: value for name, value in record.items() if isinstance(value, float)}
        for name, value in numbers.items():
            self.board.add_scalar(f"{record['kind']}/{name}", value, run.step)
        for tracker in self.trackers:
            tracker.log({f"{record['kind']}/{name}": value for name, value in numbers.items()}, step=run.step)


def learning_rate(run: Run) -> float:
    """Get the student's learning rate."""
    return float(run.optimizer.param_groups[0]["lr"])


def summarize(run: Run, epochs: list[dict[str, Any]]) -> dict[str, Any]:
    """Summarize a run: the accuracies of the last epoch, their median over the last ten, and the best."""
    measured = [record for record in epochs if "student_top1" in record]
    summary: dict[str, Any] = {"data": run.config.data, "method": run.config.method, "model": run.config.model}
    summary |= {"seed": run.config.seed, "steps": run.step, "seconds": round(run.seconds, 1)}
    summary["precision"] = run.precision  # "auto" differs from machine to machine
    summary["test_images"] = run.data.test_count
    if measured:
        last = measured[-1]
        names = [name for name in last if name.endswith(("_top1", "_top5"))]
        summary |= {name: last[name] for name in names}
        deployed = f"{deployed_network(last)}_top1"
        median, counted = median_of_last({record["epoch"]: record[deployed] for record in measured})
        summary |= {"median_top1_of_last_epochs": median, "epochs_in_median": counted}
        summary |= {"best_top1": run.best["top1"], "best_epoch": run.best["epoch"]}
    if run.data.skipped is not None:
        summary["skipped_files"] = [file.path for file in run.data.skipped]
    return summary
