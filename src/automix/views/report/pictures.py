"""Which pictures stand in a page: those of one run per group, or the page would grow with the number of seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from automix.runs.folder import RunFolder
from automix.views.report.album import Picture
from automix.views.report.groups import Group
from automix.views.report.run_record import RunRecord, strings

EPOCHS = 24  # pictures of single epochs in a page


@dataclass(frozen=True)
class EvaluationPictures:
    """The pictures of one evaluation, by file name, and the run that was evaluated."""

    run: RunRecord
    pictures: dict[str, Picture]


@dataclass(frozen=True)
class GroupPictures:
    """The pictures of a group.

    Attributes:
        group: The group.
        epochs: Mixed samples over lam, by epoch.
        history: Mixed samples over training time.
        evaluations: Pictures by evaluator.
    """

    group: Group
    epochs: dict[int, Picture]
    history: Picture | None
    evaluations: dict[str, EvaluationPictures]

    def all(self) -> Iterator[Picture]:
        yield from self.epochs.values()
        if self.history is not None:
            yield self.history
        for evaluation in self.evaluations.values():
            yield from evaluation.pictures.values()


def choose_pictures(groups: Sequence[Group]) -> list[GroupPictures]:
    """Choose the pictures of every group."""
    return [_choose(group, max(1, EPOCHS // len(groups))) for group in groups]


def _choose(group: Group, limit: int) -> GroupPictures:
    run = group.first
    epochs = epoch_pictures(run, limit)
    if not epochs and (drawn := draw_missing(run)) is not None:
        epochs = {run.epochs_done: drawn}
    evaluations: dict[str, EvaluationPictures] = {}
    for other in group.runs:
        for name in other.evaluations:
            evaluations.setdefault(name, EvaluationPictures(other, evaluation_pictures(other, name)))
    return GroupPictures(group, epochs, history_picture(run), evaluations)


def epoch_pictures(run: RunRecord, limit: int) -> dict[int, Picture]:
    """Mixed samples over lam, by epoch: the last epoch and others at equal distances, no more than `limit`."""
    pictures = {epoch: Picture(path) for epoch, path in RunFolder(run.folder).epoch_pictures().items()}
    epochs = sorted(pictures)
    distance = max(1, -(-len(epochs) // max(limit, 1)))
    return {epoch: pictures[epoch] for epoch in sorted(epochs[::-1][::distance])}


def history_picture(run: RunRecord) -> Picture | None:
    """Mixed samples over training time."""
    path = RunFolder(run.folder).mask_history
    return Picture(path) if path.is_file() else None


def evaluation_pictures(run: RunRecord, evaluator: str) -> dict[str, Picture]:
    """The pictures of an evaluation, by file name; only files inside the folder of evaluations.

    The names come from a results.json, which may have been edited or sent by someone else.
    """
    folder = RunFolder(run.folder).evaluation
    names = strings(run.evaluations.get(evaluator, {}).get("pictures"))
    inside = [name for name in names if Path(name).name == name and (folder / name).is_file()]
    return {Path(name).stem: Picture(folder / name) for name in inside}


def draw_missing(run: RunRecord) -> Picture | None:
    """Draw mixed samples over lam from the run's checkpoint; None without a checkpoint or without the data."""
    import torch

    from automix.pictures.mixed_samples import draw_mixed_samples
    from automix.training.load import load_task, preview

    try:
        task, card, config = load_task(run.folder)
        x, y = preview(config)
        mean, std = torch.tensor(card.mean), torch.tensor(card.std)
        image = draw_mixed_samples(
            task, x, mean, std, title=f"{config.method}, epoch {card.facts.get('epoch', '?')}", y=y
        )
    except (OSError, ValueError, RuntimeError, KeyError, TypeError):
        return None
    return Picture(run.folder, image)
