"""An uploaded file: inside the folder of uploads, of a common format, of a bearable size, read once and removed."""

import contextlib
from pathlib import Path
from typing import Any

from automix.data.decode import BadImage, image_error, read_image
from automix.views.explorer.pair import Explorer, Picture

# Those that Pillow decodes by itself: for some others it would start programs, such as Ghostscript for EPS.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
LONGEST_NAME = 100


def take_upload(explorer: Explorer, upload: Any, folder: Path) -> Picture:
    """What Gradio says of an upload, as a picture, or a ValueError of one line; the file is removed either way."""
    said = upload if isinstance(upload, dict) else {}
    path = Path(str(said.get("path", ""))).resolve()
    if folder.resolve() not in path.parents or not path.is_file():
        raise ValueError(f"nothing was uploaded: accepted are images, {_listed()}")
    name = Path(str(said.get("orig_name") or path.name)).name[:LONGEST_NAME]
    try:
        return explorer.read(_decode(path, name), name)
    except OSError as error:  # the machine's fault: no memory, too many open files
        raise ValueError(str(error)) from None
    finally:
        path.unlink(missing_ok=True)
        if path.parent != folder.resolve():
            with contextlib.suppress(OSError):  # others may lie there
                path.parent.rmdir()


def _decode(path: Path, name: str) -> Any:
    """The file as PIL's RGB image; format and size are looked at before anything is decoded."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=FORMATS):
            pass
    except UnidentifiedImageError:
        raise BadImage(f"{name}: cannot be read as an image; accepted are {_listed()}") from None
    except Exception as error:
        raise image_error(name, error) from None
    return read_image(path, name)


def _listed() -> str:
    return f"{', '.join(FORMATS[:-1])} and {FORMATS[-1]}"
