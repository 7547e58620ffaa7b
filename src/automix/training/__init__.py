"""Training: from a configuration to a finished run folder.

`train` is the whole of it; the other names are for displays of your own, and for what can end a run early.
"""

from pathlib import Path
from typing import Any

from automix.core.errors import AutomixError
from automix.runs.config import TrainConfig
from automix.training.defaults import complete_settings, settle_normalization
from automix.training.display import Bar, Lines, Silent, choose_display
from automix.training.distributed import ProcessLostError, World, process_group
from automix.training.load import load_task, preview
from automix.training.log import Display, RunLog
from automix.training.loop import NotFiniteError, fit
from automix.training.prepare import hold_folder, prepare
from automix.training.run import Run
from automix.training.signals import Stopped, StopRequest, catch_signals

__all__ = [
    "Bar",
    "Display",
    "Lines",
    "NotFiniteError",
    "ProcessLostError",
    "Run",
    "Silent",
    "Stopped",
    "World",
    "choose_display",
    "load_task",
    "preview",
    "train",
]


def train(
    config: TrainConfig | str | Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    display: Display | None = None,
    **settings: Any,
) -> dict[str, Any]:
    """Train a classifier and write its run folder.

    ``automix.train("photos/", method="cutmix", epochs=20)`` is ``automix train photos/ --method cutmix --epochs 20``.

    The run folder (`automix.runs.RunFolder`) gets the settings, checkpoints, classifiers, metrics, pictures and the
    summary. It is locked while the run trains: a second process is refused. SIGTERM and Ctrl-C save a checkpoint first
    and raise `Stopped`. Under torchrun every process calls this function, and the main process writes.

    All randomness is a function of the seed and the step. Torch's global generator is seeded in every step, because
    dropout and stochastic depth draw from it.

    Args:
        config: The settings, or the name or folder of the data.
        resume: Continue from the checkpoint in the run folder; without one, start. The settings must be those of the
            run, except that the folder, the data and the data root may have moved (the classes and the numbers of
            images must be the same), and `workers`, `device`, `checkpoint_minutes`, `eval_every`, `wandb` and `mlflow`
            may differ. The weights that the run started from are no longer needed.
        overwrite: Start over in the folder of an earlier run, whose files are removed.
        display: Shows the progress; nothing is shown if not given. `choose_display()` is that of the command line.
        **settings: Fields of `TrainConfig` and of its recipe, if `config` is the data.

    Returns:
        The summary, as summary.json has it: data, method, model, seed, steps, seconds, precision and the number of
        test images; accuracies in percent after the last epoch (`student_top1`, `student_top5`, and `teacher_top1`,
        `teacher_top5` if there is a teacher), their median over the last ten epochs (`median_top1_of_last_epochs`,
        `epochs_in_median`), and the best (`best_top1`, `best_epoch`), all but the first two of the deployed network.

    Raises:
        AutomixError: A setting, the data or the run folder cannot be used.
        NotFiniteError: The loss or a gradient is NaN or infinite; the weights are those before that step.
        ProcessLostError: Another process of the run has ended or does not answer.
        Stopped: A signal ended the run; its state is saved.
    """
    if not isinstance(config, TrainConfig):
        config = TrainConfig.from_flat(complete_settings({"data": str(config), **settings}))
    elif settings:
        raise AutomixError(f"{next(iter(settings))} must be set in the configuration, which was given")
    display = display or Silent()
    config = settle_normalization(config, resume=resume)
    with catch_signals() as stop, process_group(config.device) as world, hold_folder(config, world):
        return _train(config, world, stop, display, resume=resume, overwrite=overwrite)


def _train(
    config: TrainConfig, world: World, stop: StopRequest, display: Display, *, resume: bool, overwrite: bool
) -> dict[str, Any]:
    """Train in one of the processes; a function of its own, so that the network is gone before the process group."""
    progress = display.reading if world.is_main_process else None
    run = prepare(config, world, resume=resume, overwrite=overwrite, progress=progress)
    log = RunLog(run, display)
    try:
        fit(run, log, stop)
        summary = log.finish(run)
        world.wait()
        return summary
    finally:
        log.close()
