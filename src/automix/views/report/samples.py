"""Mixed samples over lam and over training time."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from automix.views.report.album import Album, Plate
from automix.views.report.pictures import GroupPictures


@dataclass(frozen=True)
class SampleSection:
    """The mixed samples of a group: by epoch, over time, or the command that draws them."""

    label: str
    seed: str
    epochs: dict[int, Plate]
    history: Plate | None
    command: str


def sample_sections(chosen: Sequence[GroupPictures], album: Album) -> list[SampleSection]:
    """Collect the mixed samples of each group."""
    return [_section(pictures, album) for pictures in chosen]


def _section(pictures: GroupPictures, album: Album) -> SampleSection:
    run = pictures.group.first
    caption = "Mixed samples over lam, epoch {}. In a mask, white is the image and black its partner."
    plates = {epoch: album.plate(picture, caption.format(epoch)) for epoch, picture in pictures.epochs.items()}
    return SampleSection(
        label=pictures.group.label,
        seed=str(run.seed),
        epochs={epoch: plate for epoch, plate in plates.items() if plate is not None},
        history=album.plate(
            pictures.history,
            "Mixed samples and their masks at lam 0.5 over training time; on the left the two images of each pair",
        ),
        command=f"automix mix {shlex.quote(str(run.folder))}",
    )
