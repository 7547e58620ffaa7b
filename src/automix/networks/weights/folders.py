"""Weights that lie on this machine: a file, a folder of timm or transformers, or a run folder of automix."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open

from automix.core.errors import AutomixError, one_line
from automix.networks.weights.files import is_safetensors
from automix.networks.weights.image_format import (
    ImageFormat,
    checked_format,
    format_of_model,
    format_of_timm,
    format_of_transformers,
)

CARD = "automix"  # the key of a classifier's card in the metadata of its file
PREFIX = "local-dir:"  # timm's mark of a folder

_RUN = ("last.safetensors", "best.safetensors")
_NAMES = ("model.safetensors", "pytorch_model.bin", "pytorch_model.pth", "model.pth", *_RUN)
_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")
_NOT_A_NETWORK = ("checkpoint", "mix_block", "optimizer", "training_args")


class LocalWeights(NamedTuple):
    """A weights file and what lies beside it."""

    path: Path
    """The file."""
    source: str
    """Its description for people."""
    images: ImageFormat
    """How images must look."""


def open_local(weights: str, model_name: str) -> LocalWeights:
    """Find the weights file of a path and read how images must look.

    Args:
        weights: A file or folder, also as ``local-dir:FOLDER``.
        model_name: The network, whose image format holds where the path says nothing.

    Returns:
        The file and its description; its tensors are not read yet.
    """
    path = Path(weights.removeprefix(PREFIX))
    try:
        if path.is_dir():
            return _open_folder(path, model_name)
        if path.is_file():
            return _open_file(path, f"file {path}", model_name)
        exists = path.exists()
    except AutomixError:
        raise
    except (OSError, ValueError) as error:  # no permission, a name that is too long
        raise AutomixError(f"{path}: cannot be read ({one_line(error)}); give --weights a file or folder") from None
    problem = "must be a file or a folder" if exists else "no such file or folder"
    raise AutomixError(f"{path}: {problem}; give --weights a file or folder of weights")


def _open_folder(folder: Path, model_name: str) -> LocalWeights:
    file = _weights_file(folder)
    config_file = folder / "config.json"
    if not config_file.is_file():
        return _open_file(file, f"folder {folder}", model_name)
    config = _read_json(config_file)
    if isinstance(config.get("model_type"), str) and "architecture" not in config:
        return LocalWeights(file, f"Hugging Face folder {folder}", _format_of_folder(folder, model_name))
    described = config.get("pretrained_cfg", config)
    if not isinstance(described, dict):
        raise AutomixError(f"{config_file}: pretrained_cfg must be an object, got {type(described).__name__}")
    return LocalWeights(file, f"timm folder {folder}", format_of_timm(described, config_file))


def _weights_file(folder: Path) -> Path:
    named = [folder / name for name in _NAMES]
    others = [
        path
        for suffix in _SUFFIXES
        for path in sorted(folder.glob(f"*{suffix}"))
        if not path.name.startswith(_NOT_A_NETWORK)
    ]
    found = next((path for path in (*named, *others) if path.is_file()), None)
    if found is None:
        split = any(folder.glob("*.index.json"))
        reason = "its weights are split over several files" if split else "no weights in this folder"
        raise AutomixError(f"{folder}: {reason}; give --weights a file, or a folder with model.safetensors")
    return found


def _open_file(path: Path, source: str, model_name: str) -> LocalWeights:
    card = _read_card(path)
    if card is None:
        return LocalWeights(path, source, format_of_model(model_name))
    images = checked_format({key: card.get(key) for key in ("image_size", "crop", "mean", "std")}, path)
    return LocalWeights(path, f"{source} ({card.get('model')}, trained by automix)", images)


def _read_card(path: Path) -> dict[str, Any] | None:
    """The card of a classifier that automix saved; None for any other file, and for damaged ones."""
    if not is_safetensors(path):
        return None
    try:
        with safe_open(path, framework="pt") as opened:
            text = (opened.metadata() or {}).get(CARD)
        card = json.loads(text) if text else None
    except (SafetensorError, ValueError, RecursionError):
        return None  # the error comes when the tensors are read
    return card if isinstance(card, dict) else None


def _format_of_folder(folder: Path, model_name: str) -> ImageFormat:
    file, default = folder / "preprocessor_config.json", format_of_model(model_name)
    return format_of_transformers(_read_json(file), default, file) if file.is_file() else default


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise AutomixError(f"{path}: cannot be read as JSON ({one_line(error)[:120]})") from None
    if not isinstance(values, dict):
        raise AutomixError(f"{path}: must be a JSON object, got {type(values).__name__}")
    return values
