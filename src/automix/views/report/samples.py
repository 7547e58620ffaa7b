"""Mixed samples over lam and over training time."""

import shlex
from collections.abc import Sequence

from automix.views.report.content import Content
from automix.views.report.images import Album, Picture
from automix.views.report.markup import Markup, element, join


def mixed_samples(contents: Sequence[Content], album: Album) -> Markup:
    """A part for each group."""
    return join([_part(content, album, place, len(contents) > 1) for place, content in enumerate(contents)])


def _part(content: Content, album: Album, place: int, named: bool) -> Markup:
    run = content.group.first
    parts: list[str] = []
    if named:
        parts.append(element("h3", f"{content.group.label} ", element("span", f"seed {run.seed}", class_="quiet")))
    epochs = {epoch: picture for epoch, picture in content.epochs.items() if album[picture] is not None}
    if epochs:
        parts += ["" if named else element("h3", "Over lam"), _flip(epochs, album, place)]
    else:
        command = element("code", f"automix mix {shlex.quote(str(run.folder))}")
        needs = " draws them where the run has saved a checkpoint and its data is there."
        parts.append(element("p", "No pictures of mixed samples: ", command, needs, class_="quiet"))
    if content.strip is not None and album[content.strip] is not None:
        about = "Mixed samples and their masks at lam 0.5 over training time; on the left the two images of each pair"
        parts += ["" if named else element("h3", "Over training time"), plate(album, content.strip, about, wide=True)]
    return element("section", *parts)


def _flip(epochs: dict[int, Picture], album: Album, place: int) -> Markup:
    """One picture at a time, chosen by the epochs' numbers (arrow keys do as well); no script is needed for it."""
    about = "Mixed samples over lam, epoch {}; white in a mask is the image, black its partner"
    figures = {epoch: plate(album, picture, about.format(epoch), wide=True) for epoch, picture in epochs.items()}
    if len(figures) == 1:
        return next(iter(figures.values()))
    parts: list[str] = [element("span", "epoch", class_="quiet")]
    for epoch, figure in figures.items():
        name = f"flip-{place}-{epoch}"
        parts.append(element("input", type="radio", name=f"flip-{place}", id=name, checked=epoch == max(figures)))
        parts += [element("label", str(epoch), for_=name), figure]
    return element("div", *parts, class_="flip")


def plate(album: Album, picture: Picture, about: str, *, wide: bool = False) -> Markup:
    """A picture with its caption. A wide one has small letters: on a phone it scrolls in its frame."""
    shown = album[picture]
    if shown is None:
        return Markup()
    image = element("img", src=shown.uri, width=shown.width, height=shown.height, alt=about)
    # a frame that scrolls must be reachable by keyboard
    frame = element("div", image, class_="scroll", tabindex=0 if wide else None)
    return element("figure", frame, element("figcaption", about), class_="plate wide" if wide else "plate")
