"""Services that keep the numbers of runs, beside metrics.jsonl and TensorBoard: Weights & Biases and MLflow."""

from typing import Any, Protocol

from automix.training.run import Run


class Tracker(Protocol):
    """A service that keeps the numbers of a run, as ``wandb.init`` returns one."""

    def log(self, numbers: dict[str, float], *, step: int) -> None:
        """Log numbers.

        Args:
            numbers: Numbers by name.
            step: The step of the run.
        """

    def finish(self) -> None:
        """End the run."""


class MLflow:
    """A run in MLflow's experiment "automix", on the server that MLFLOW_TRACKING_URI names.

    Args:
        name: Name of the run.
        settings: All settings, logged as parameters.
    """

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        import mlflow

        self.mlflow = mlflow
        mlflow.set_experiment("automix")
        mlflow.start_run(run_name=name)
        mlflow.log_params(settings)

    def log(self, numbers: dict[str, float], *, step: int) -> None:
        """Log numbers.

        Args:
            numbers: Numbers by name.
            step: The step of the run.
        """
        self.mlflow.log_metrics(numbers, step=step)

    def finish(self) -> None:
        """End the run."""
        self.mlflow.end_run()


def start_trackers(run: Run) -> list[Tracker]:
    """Start the trackers that the settings of a run name; others are not imported.

    Args:
        run: The run.

    Returns:
        The trackers.
    """
    trackers: list[Tracker] = []
    name, settings = run.folder.path.name, run.config.flat()
    if run.config.wandb:
        import wandb

        trackers.append(wandb.init(project="automix", name=name, dir=run.folder.path, config=settings))
    if run.config.mlflow:
        trackers.append(MLflow(name, settings))
    return trackers
