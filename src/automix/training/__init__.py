"""The engine: from a configuration to a trained run folder.

from automix.config import TrainConfig
from automix.training import train
summary = train(TrainConfig(data="shapes", method="automix"))
"""

from typing import Any

from automix.runs.config import TrainConfig
from automix.training.display import Silent, choose_display
from automix.training.distributed import process_group
from automix.training.log import Display, RunLog
from automix.training.loop import NotFiniteError, fit
from automix.training.prepare import prepare
from automix.training.run import Run
from automix.training.signals import Stopped, listening

__all__ = ["Display", "NotFiniteError", "Run", "Silent", "Stopped", "choose_display", "prepare", "train"]


def train(
    config: TrainConfig, *, resume: bool = False, overwrite: bool = False, display: Display | None = None
) -> dict[str, Any]:
    """Train as `config` says and return the summary; `resume` goes on where the run folder's checkpoint stands.

    Seeds torch's global generator in every step, because dropout and stochastic depth draw from it.
    """
    display = display or Silent()
    with listening() as stop, process_group(config.device) as world:
        progress = display.reading if world.is_main_process else None
        run = prepare(config, world, resume=resume, overwrite=overwrite, progress=progress)
        log = RunLog(run, display)
        try:
            fit(run, log, stop)
            world.wait()
            return log.finish(run)
        finally:
            log.close()
