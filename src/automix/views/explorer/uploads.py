"""Uploaded files: read once if they lie in the upload folder and have a common format, then removed."""

import contextlib
from pathlib import Path
from typing import Any

from automix.core.errors import AutomixError
from automix.data.decode import BadImage, image_error, read_image
from automix.views.explorer.explorer import Explorer
from automix.views.explorer.pair import Picture

# Formats that Pillow decodes itself; for some others it starts programs, such as Ghostscript for EPS.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
MAX_NAME = 100


def take_upload(explorer: Explorer, upload: Any, folder: Path) -> Picture:
    """Read an upload, which Gradio describes by a dictionary, and remove the file whether it can be read or not."""
    described = upload if isinstance(upload, dict) else {}
    path = Path(str(described.get("path", ""))).resolve()
    if folder.resolve() not in path.parents or not path.is_file():
        raise AutomixError(f"nothing was uploaded; upload an image in {_format_list()}")
    name = Path(str(described.get("orig_name") or path.name)).name[:MAX_NAME]
    try:
        return explorer.read(_decode(path, name), name)
    except OSError as error:  # a problem of the machine: no memory, too many open files
        raise AutomixError(str(error)) from None
    finally:
        path.unlink(missing_ok=True)
        if path.parent != folder.resolve():
            with contextlib.suppress(OSError):  # the folder may hold other uploads
                path.parent.rmdir()


def _decode(path: Path, name: str) -> Any:
    """Read a file as a PIL image; its format and size are checked before anything is decoded."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path, formats=FORMATS):
            pass
    except UnidentifiedImageError:
        raise BadImage(f"{name}: cannot be read as an image; upload {_format_list()}") from None
    except Exception as error:
        raise image_error(name, error) from None
    return read_image(path, name)


def _format_list() -> str:
    return f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
