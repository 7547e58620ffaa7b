"""What the engine costs over a bare loop with the same task: steps of both in turn, in one process.

    python benchmarks/engine_overhead.py [--steps 40]

The engine's step adds the schedule, the seeds, the check that all is finite, the metrics and the log.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from automix.config import TrainConfig
from automix.engine import Silent, prepare
from automix.engine.build import build_model, build_task
from automix.engine.logs import RunLog
from automix.engine.loop import training_step
from automix.engine.processes import Processes
from automix.engine.signals import Stop
from automix.recipes import find_recipe


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    for method in ("vanilla", "automix"):
        with tempfile.TemporaryDirectory() as folder:
            engine, bare = both(method, Path(folder))
            ratio, medians = compare(engine, bare, steps)
        print(f"{method}: engine / bare loop = {ratio:.3f} (medians {medians}; {steps} pairs of steps)", flush=True)


def both(method: str, folder: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    """A step of the engine, and a step as one would write it by hand, on the same network and data."""
    config = TrainConfig(
        data="shapes",
        method=method,
        out=str(folder / "run"),
        model_options={"layers": [1, 1, 1, 1], "channels": [16, 32, 64, 128]},
        settings=replace(find_recipe("quick"), epochs=1000),
    )
    run = prepare(config, Processes(), resume=False, overwrite=False)
    log, stop = RunLog(run, Silent()), Stop()
    batches = run.data.loader.batches(0, run.total_steps)

    def engine() -> None:
        log.step(run, training_step(run, batches, stop))
        run.checkpoint_is_due()

    task = build_task(config, build_model(config, 12, 32))
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


def compare(one: Callable[[], object], other: Callable[[], object], steps: int) -> tuple[float, str]:
    """The ratio of the lower quartiles: what disturbs a step on a shared machine only ever makes it slower.

    Both take turns, in changing order; beside the ratio, that of the medians, to tell how quiet it was.
    """
    seconds: dict[Callable[[], object], list[float]] = {one: [], other: []}
    for number in range(steps + 3):
        for call in (one, other) if number % 2 else (other, one):
            start = time.perf_counter()
            call()
            seconds[call].append(time.perf_counter() - start)
    fast, middle, _ = zip(*(statistics.quantiles(seconds[call][3:], n=4) for call in (one, other)), strict=True)
    return fast[0] / fast[1], f"{middle[0] / middle[1]:.3f}"


if __name__ == "__main__":
    main()
