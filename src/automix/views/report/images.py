"""Pictures in a page: chosen, encoded small enough for all of them together, written as data URIs."""

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from automix.views.report.gather import RunRecord, words

LADDER = ((None, 1.0), (85, 1.0), (75, 1.0), (75, 0.7), (65, 0.5), (55, 0.35))  # quality (None: lossless), scale
UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)  # what PIL says of damaged files
STRIP = "over-time.png"


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture in a file, or in memory with the file or folder that it was made from."""

    path: Path
    image: Image.Image | None = None

    def open(self) -> Image.Image:
        if self.image is not None:
            return self.image
        with Image.open(self.path) as opened:
            return opened.convert("RGB")


@dataclass(frozen=True)
class Encoded:
    """A picture as it stands in the page; the size is that of the original."""

    uri: str
    width: int
    height: int


def epoch_pictures(run: RunRecord, most: int) -> dict[int, Picture]:
    """The run's mixed samples over lam, by epoch: the last one and others in equal distances, no more than `most`."""
    found = {}
    for path in sorted((run.folder / "pictures").glob("epoch-*.png")):
        digits = path.stem.removeprefix("epoch-")
        if digits.isdecimal():
            found[int(digits)] = Picture(path)
    epochs = sorted(found)
    distance = max(1, -(-len(epochs) // max(most, 1)))
    return {epoch: found[epoch] for epoch in sorted(epochs[::-1][::distance])}


def strip_picture(run: RunRecord) -> Picture | None:
    """The run's mixed samples over training time."""
    path = run.folder / "pictures" / STRIP
    return Picture(path) if path.is_file() else None


def evaluation_pictures(run: RunRecord, evaluator: str) -> dict[str, Picture]:
    """By name. Only files in the folder of the evaluations: names in a results.json are somebody's words."""
    folder = run.folder / "evaluation"
    names = words(run.evaluations.get(evaluator, {}).get("pictures"))
    inside = [name for name in names if Path(name).name == name and (folder / name).is_file()]
    return {Path(name).stem: Picture(folder / name) for name in inside}


def draw_missing(run: RunRecord) -> Picture | None:
    """Mixed samples over lam drawn from the run's checkpoint; none without one, or without the data."""
    import torch

    from automix.pictures.mixed_samples import mixed_samples
    from automix.training.load import load_task, preview

    try:
        task, card, config = load_task(run.folder)
        x, y = preview(config)
        mean, std = torch.tensor(card.mean), torch.tensor(card.std)
        image = mixed_samples(task, x, mean, std, title=f"{config.method}, epoch {card.facts.get('epoch', '?')}", y=y)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError):
        return None
    return Picture(run.folder, image)


class Album:
    """The pictures of a page in no more than `budget` bytes; what cannot be read, or made so small, is left out."""

    def __init__(self, pictures: Sequence[Picture], budget: int) -> None:
        self._encoded: dict[Picture, Encoded] = {}
        self.problems: list[str] = []
        opened = list(self._open(pictures))
        opened.sort(key=lambda pair: pair[1].width * pair[1].height)
        for number, (picture, image) in enumerate(opened):  # what small ones leave of their share is for larger ones
            content = encode(image, budget // (len(opened) - number))
            if content is None:
                self.problems.append(f"{picture.path}: left out here to keep the page small")
                continue
            budget -= len(content)
            uri = "data:image/webp;base64," + base64.b64encode(content).decode()
            self._encoded[picture] = Encoded(uri, image.width, image.height)

    def __getitem__(self, picture: Picture) -> Encoded | None:
        return self._encoded.get(picture)

    def _open(self, pictures: Sequence[Picture]) -> Iterator[tuple[Picture, Image.Image]]:
        for picture in pictures:
            try:
                yield picture, picture.open()
            except UNREADABLE:
                self.problems.append(f"{picture.path}: cannot be read as a picture; left out here")


def encode(image: Image.Image, most: int) -> bytes | None:
    """As WebP of no more than `most` bytes, in the best quality that fits; none where none does."""
    for quality, scale in LADDER:
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        smaller = image if scale == 1 else image.resize(size, Image.Resampling.LANCZOS)
        written = io.BytesIO()
        smaller.save(written, "WEBP", lossless=quality is None, quality=80 if quality is None else quality)
        if written.tell() <= most:
            return written.getvalue()
    return None
