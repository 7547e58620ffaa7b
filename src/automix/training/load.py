"""The task of a run as training left it, to look at what it does."""

from pathlib import Path

from torch import Tensor

from automix.core.normalization import Normalization
from automix.runs.checkpoint import restore_task
from automix.runs.classifier import Card
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder
from automix.tasks.task import Task
from automix.training.build import build_data, build_model, build_task
from automix.training.distributed import World


def load_task(folder: Path) -> tuple[Task, Card, TrainConfig]:
    """Load the task of a run from its checkpoint; its data and the weights it started from are not needed.

    Args:
        folder: The run folder.

    Returns:
        The task in eval mode on the CPU, the card of its classifier, and the settings.
    """
    config = RunFolder(folder).read_config()
    saved = RunFolder(folder).read_checkpoint()
    card = Card.from_json(saved.facts["card"])
    model = build_model(config, len(card.classes), card.train_size, load=False)
    task = build_task(config, model, resumed=True, normalization=Normalization(card.mean, card.std))
    restore_task(saved, task)
    task.eval()
    return task, card, config


def preview(config: TrainConfig, count: int = 8) -> tuple[Tensor, Tensor]:
    """Read some test images of a run's dataset, of as many classes as possible.

    Args:
        config: The settings of the run.
        count: Number of images.

    Returns:
        Normalized images ``(count, 3, H, W)`` and their classes ``(count,)``.
    """
    return build_data(config, World()).loader.preview(count)
