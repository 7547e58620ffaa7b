"""How images must look for a network: size, crop, normalization, and how they are resized."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from automix.core.errors import AutomixError
from automix.core.type_checks import is_integer, is_number, show

Channels = tuple[float, float, float]

# timm's and transformers' names of Pillow's filters
_FILTERS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic", 4: "box", 5: "hamming"}


class ImageFormat(NamedTuple):
    """What a network expects of its images; the defaults are ImageNet's."""

    image_size: int = 224
    crop: float = 0.875
    mean: Channels = (0.485, 0.456, 0.406)
    std: Channels = (0.229, 0.224, 0.225)
    interpolation: str = "bicubic"


def format_of_model(name: str) -> ImageFormat:
    """Look up what timm says of a network.

    Args:
        name: Name of the network.

    Returns:
        The format; ImageNet's defaults if timm does not know the network.
    """
    import timm  # here and not above: it takes two seconds to import

    known = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    if known is None:
        return ImageFormat()
    return format_of_timm(known.to_dict(), name)


def format_of_timm(values: Mapping[str, Any], where: Path | str) -> ImageFormat:
    """Read the format from timm's ``pretrained_cfg``.

    Args:
        values: The configuration; what is missing has ImageNet's default.
        where: What an error message names.

    Returns:
        The format.
    """
    size = values.get("input_size") or (3, 224, 224)
    if not (isinstance(size, list | tuple) and len(size) == 3):
        raise AutomixError(f"{where}: input_size must be three integers, got {show(size)}")
    renamed = {"image_size": size[-1], "crop": values.get("crop_pct")}
    same = {key: values.get(key) for key in ("mean", "std", "interpolation")}
    return checked_format({**renamed, **same}, where)


def format_of_transformers(values: Mapping[str, Any], default: ImageFormat, where: Path | str) -> ImageFormat:
    """Read the format from the ``preprocessor_config.json`` of Hugging Face transformers.

    Args:
        values: The content of the file.
        default: What holds for that which is missing.
        where: What an error message names.

    Returns:
        The format.
    """
    size, crop = values.get("size"), values.get("crop_pct")
    if isinstance(size, dict):
        crop = 1.0 if crop is None and "height" in size else crop  # resized to the whole square, nothing is cut off
        size = size.get("height", size.get("shortest_edge"))
    cut = values.get("crop_size")
    cut = cut.get("height") if isinstance(cut, dict) else cut
    if values.get("do_center_crop") and is_integer(cut) and is_integer(size) and 0 < cut <= size:
        size, crop = cut, cut / size
    given = {"image_size": size, "crop": crop, "mean": values.get("image_mean"), "std": values.get("image_std")}
    resample = values.get("resample")
    given["interpolation"] = _FILTERS.get(resample) if isinstance(resample, int) else None
    return checked_format({**default._asdict(), **{key: value for key, value in given.items() if value}}, where)


def checked_format(values: Mapping[str, Any], where: Path | str) -> ImageFormat:
    """Build a format from values that a file has.

    Args:
        values: Values by field; those that are missing or None have ImageNet's default.
        where: What an error message names.

    Returns:
        The format.
    """
    fields = {**ImageFormat()._asdict(), **{key: value for key, value in values.items() if value is not None}}
    size, crop = fields["image_size"], fields["crop"]
    if not (is_integer(size) and 1 <= size <= 10_000):
        raise AutomixError(f"{where}: the image size must be an integer in [1, 10000], got {show(size)}")
    if not (is_number(crop) and 0 < crop <= 1):
        raise AutomixError(f"{where}: the crop must be in (0, 1], got {show(crop)}")
    if not isinstance(fields["interpolation"], str):
        raise AutomixError(f"{where}: interpolation must be a string, got {show(fields['interpolation'])}")
    mean, std = (_channels(key, fields[key], where) for key in ("mean", "std"))
    if not min(std) > 0:
        raise AutomixError(f"{where}: std must be > 0, got {show(std)}")
    return ImageFormat(int(size), float(crop), mean, std, fields["interpolation"])


def _channels(key: str, values: Any, where: Path | str) -> Channels:
    if isinstance(values, list | tuple) and len(values) == 3 and all(is_number(value) for value in values):
        first, second, third = map(float, values)
        return first, second, third
    raise AutomixError(f"{where}: {key} must be three numbers, got {show(values)}")
