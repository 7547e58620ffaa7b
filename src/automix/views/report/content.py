"""Which pictures of which runs stand in a page: of each group those of one run, or it would grow with the seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from automix.views.report.gather import RunRecord
from automix.views.report.groups import Group
from automix.views.report.images import Picture, draw_missing, epoch_pictures, evaluation_pictures, strip_picture

EPOCHS = 24  # pictures of single epochs in a page


@dataclass(frozen=True)
class Evaluated:
    """The pictures of one evaluation of one run."""

    run: RunRecord
    pictures: dict[str, Picture]


@dataclass(frozen=True)
class Content:
    """The pictures of a group."""

    group: Group
    epochs: dict[int, Picture]  # mixed samples over lam
    strip: Picture | None  # mixed samples over time
    evaluations: dict[str, Evaluated]

    def pictures(self) -> Iterator[Picture]:
        yield from self.epochs.values()
        if self.strip is not None:
            yield self.strip
        for found in self.evaluations.values():
            yield from found.pictures.values()


def choose_pictures(groups: Sequence[Group]) -> list[Content]:
    return [_choose(group, max(1, EPOCHS // len(groups))) for group in groups]


def _choose(group: Group, most: int) -> Content:
    run = group.first
    epochs = epoch_pictures(run, most)
    if not epochs and (drawn := draw_missing(run)) is not None:
        epochs = {run.epochs_done: drawn}
    evaluations: dict[str, Evaluated] = {}
    for other in group.runs:
        for name in other.evaluations:
            evaluations.setdefault(name, Evaluated(other, evaluation_pictures(other, name)))
    return Content(group, epochs, strip_picture(run), evaluations)
