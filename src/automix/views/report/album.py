"""Pictures inside the page: encoded small enough for all of them together, written as data URIs."""

import base64
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

QUALITIES = (
    (None, 1.0),
    (85, 1.0),
    (75, 1.0),
    (75, 0.7),
    (65, 0.5),
    (55, 0.35),
)  # WebP quality (None: lossless), scale
UNREADABLE = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)  # what Pillow raises for damaged files


@dataclass(frozen=True, eq=False)
class Picture:
    """A picture in a file, or in memory together with the folder that it was made from."""

    path: Path
    image: Image.Image | None = None

    def open(self) -> Image.Image:
        if self.image is not None:
            return self.image
        with Image.open(self.path) as opened:
            return opened.convert("RGB")


@dataclass(frozen=True)
class EncodedPicture:
    """A picture as a data URI, with the width and height of the original."""

    uri: str
    width: int
    height: int


@dataclass(frozen=True)
class Plate:
    """An encoded picture with its caption; a wide one scrolls in its frame on a phone."""

    image: EncodedPicture
    caption: str
    wide: bool


class Album:
    """The pictures of a page in no more than `budget` bytes.

    A picture that cannot be read, or cannot be made small enough, is left out and named in `problems`.
    """

    def __init__(self, pictures: Sequence[Picture], budget: int) -> None:
        self._encoded: dict[Picture, EncodedPicture] = {}
        self.problems: list[str] = []
        opened = list(self._open(pictures))
        opened.sort(key=lambda pair: pair[1].width * pair[1].height)
        for number, (picture, image) in enumerate(opened):  # the bytes that a small picture saves go to larger ones
            content = encode(image, budget // (len(opened) - number))
            if content is None:
                self.problems.append(f"{picture.path}: left out to keep the page small")
                continue
            budget -= len(content)
            uri = "data:image/webp;base64," + base64.b64encode(content).decode()
            self._encoded[picture] = EncodedPicture(uri, image.width, image.height)

    def __getitem__(self, picture: Picture) -> EncodedPicture | None:
        return self._encoded.get(picture)

    def plate(self, picture: Picture | None, caption: str, *, wide_from: int = 0) -> Plate | None:
        """The picture with a caption, wide if it has more than `wide_from` pixels; None if it was left out."""
        encoded = None if picture is None else self[picture]
        return None if encoded is None else Plate(encoded, caption, encoded.width > wide_from)

    def _open(self, pictures: Sequence[Picture]) -> Iterator[tuple[Picture, Image.Image]]:
        for picture in pictures:
            try:
                yield picture, picture.open()
            except UNREADABLE:
                self.problems.append(f"{picture.path}: cannot be read as a picture; left out")


def encode(image: Image.Image, limit: int) -> bytes | None:
    """Encode as WebP in the best quality that takes no more than `limit` bytes; None if none does."""
    for quality, scale in QUALITIES:
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        smaller = image if scale == 1 else image.resize(size, Image.Resampling.LANCZOS)
        written = io.BytesIO()
        smaller.save(written, "WEBP", lossless=quality is None, quality=80 if quality is None else quality)
        if written.tell() <= limit:
            return written.getvalue()
    return None
