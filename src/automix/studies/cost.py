"""The cost of a grid: steps and images of the runs that are left, and their time by similar runs that are finished."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from automix.runs.folder import RunFolder
from automix.studies.experiment import Experiment
from automix.studies.plan import Job


@dataclass(frozen=True)
class Cost:
    """The cost of a grid.

    Attributes:
        cells: Cells that can be trained.
        runs: Runs of all cells.
        finished: Runs that are finished.
        steps: Steps of the runs that are left.
        images: Training images of the runs that are left.
        unknown: Runs left on data of unknown size.
        seconds: Estimated time of the runs left that are like a finished one.
        untimed: Runs left that are like no finished one.
    """

    cells: int
    runs: int
    finished: int
    steps: int
    images: int
    unknown: int
    seconds: float
    untimed: int


def estimate_cost(experiment: Experiment, jobs: Sequence[Job]) -> Cost:
    """Estimate the cost of what is left of a grid.

    Args:
        experiment: The experiment.
        jobs: Its runs.

    Returns:
        The cost.
    """
    left, timed = [job for job in jobs if not job.is_trained], step_times(jobs)
    times = [estimate_seconds(job, timed) for job in left]
    return Cost(
        cells=sum(cell.student is not None or cell.teacher is not None for cell in experiment.cells),
        runs=len(jobs),
        finished=len(jobs) - len(left),
        steps=sum(job.steps for job in left),
        images=sum(job.steps * job.values["batch_size"] for job in left),
        unknown=sum(job.images == 0 for job in left),
        seconds=sum(time for time in times if time is not None),
        untimed=sum(time is None for time in times),
    )


StepTimes = list[tuple[Job, float]]


def step_times(jobs: Iterable[Job]) -> StepTimes:
    """List the finished jobs with their seconds per step.

    Args:
        jobs: Jobs, finished or not.

    Returns:
        The finished ones, each with its seconds per step.
    """
    finished = [job for job in jobs if job.is_trained and job.steps]
    return [(job, float(RunFolder(job.folder).summary()["seconds"]) / job.steps) for job in finished]


def estimate_seconds(job: Job, timed: StepTimes) -> float | None:
    """Estimate the time of a job from finished jobs of the same network and data, and the same method if possible.

    Args:
        job: The job.
        timed: From `step_times`.

    Returns:
        Seconds, or None if no finished job is like it.
    """
    alike: dict[bool, list[float]] = {True: [], False: []}
    for other, rate in timed:
        if all(other.values[name] == job.values[name] for name in ("data", "model", "model_options", "train_size")):
            alike[other.values["method"] == job.values["method"]].append(rate)
    known = alike[True] or alike[False]
    return sum(known) / len(known) * job.steps if known else None
