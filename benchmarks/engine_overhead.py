"""The overhead of the training loop over a bare loop with the same task, in one process.

    python benchmarks/engine_overhead.py [--steps 200]

The library's step adds the schedule, the seeds, the check for finite losses, the metrics and the log. None of it
depends on the images, so it is measured where a step is short: on batches of 4 images of 8 px, both loops in turns, as
a difference in milliseconds. That is then related to a bare step of 100 images of 32 px. (The direct ratio of two long
steps scatters by 4 percent on a shared machine.)
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from automix.runs.config import TrainConfig
from automix.runs.recipes import find_recipe
from automix.training import Silent, prepare
from automix.training.build import build_model, build_task
from automix.training.distributed import World
from automix.training.log import RunLog
from automix.training.loop import training_step
from automix.training.signals import StopRequest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    steps = parser.parse_args().steps
    for method in ("vanilla", "automix"):
        with tempfile.TemporaryDirectory() as folder:
            engine, bare = both(method, Path(folder), size=8, batch_size=4)
            short = times(steps, engine, bare)
            _, long_step = both(method, Path(folder) / "long", size=32, batch_size=100)
            long = times(20, long_step)[0]
        added = [statistics.median(one) for one in short]
        share = (added[0] - added[1]) / statistics.median(long)
        print(
            f"{method}: {1000 * (added[0] - added[1]):.2f} ms a step ({1000 * added[1]:.1f} ms bare on 4 images), "
            f"{share:.1%} of a bare step of 100 images ({1000 * statistics.median(long):.0f} ms)",
            flush=True,
        )


def both(method: str, folder: Path, size: int, batch_size: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return a step of the library's loop and a handwritten step, on the same network and data."""
    config = TrainConfig(
        data="shapes",
        method=method,
        out=str(folder / "run"),
        model_options={"layers": [1, 1, 1, 1], "channels": [16, 32, 64, 128]},
        settings=replace(find_recipe("quick"), epochs=1000, train_size=size, batch_size=batch_size),
    )
    run = prepare(config, World(), resume=False, overwrite=False)
    log, stop = RunLog(run, Silent()), StopRequest()
    batches = run.data.loader.batches(0, run.total_steps)

    def engine() -> None:
        log.step(run, training_step(run, batches, stop))
        run.checkpoint_is_due()

    task = build_task(config, build_model(config, 12, size))
    task.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9, weight_decay=5e-4)
    others = run.data.loader.batches(0, run.total_steps)

    def bare() -> None:
        x, y = next(others)
        optimizer.zero_grad()
        task(x, y).loss.backward()
        optimizer.step()
        task.update(0.0)

    return engine, bare


def times(steps: int, *calls: Callable[[], object]) -> list[list[float]]:
    """Time calls in alternating order, in seconds; the first three rounds, which allocate, are left out."""
    seconds: list[list[float]] = [[] for _ in calls]
    for number in range(steps + 3):
        for which in range(len(calls))[:: 1 if number % 2 else -1]:
            start = time.perf_counter()
            calls[which]()
            seconds[which].append(time.perf_counter() - start)
    return [one[3:] for one in seconds]


if __name__ == "__main__":
    main()
