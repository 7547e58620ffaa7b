"""A run's task as training left it, for looking at what it does."""

from pathlib import Path

from torch import Tensor

from automix.runs.checkpoint import NAME, has_checkpoint, read_checkpoint, restore_task
from automix.runs.classifier import Card
from automix.runs.config import TrainConfig, read_config
from automix.tasks.task import Task
from automix.training.build import build_data, build_model, build_task
from automix.training.distributed import World


def load_task(folder: Path) -> tuple[Task, Card, TrainConfig]:
    """The task, in eval mode, the card of its classifier, and the run's configuration."""
    config = TrainConfig.from_flat(read_config(folder / "config.yaml"))
    if not has_checkpoint(folder):
        raise ValueError(f"{folder}: no {NAME} in it; accepted is the folder of a run that has saved one")
    saved = read_checkpoint(folder / NAME)
    card = Card.from_json(saved.facts["card"])
    task = build_task(config, build_model(config, len(card.classes), card.train_size, load=False))
    restore_task(saved, task)
    task.eval()
    return task, card, config


def preview(config: TrainConfig, count: int = 8) -> tuple[Tensor, Tensor]:
    """Test images of the run's dataset, of as many classes as possible, normalized, and their classes."""
    return build_data(config, World()).loader.preview(count)
