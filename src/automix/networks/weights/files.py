"""Read the tensors of a weights file: safetensors, or what ``torch.save`` wrote.

Files of torch are read with ``weights_only=True``: a pickle that would execute code is refused. Checkpoints of training
scripts are unwrapped, and prefixes that wrappers leave on every name are removed.
"""

import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from automix.core.errors import AutomixError, one_line
from automix.core.tensor_files import DamagedError, read_tensors

# The plain weights are preferred to their moving average.
_WRAPPERS = ("state_dict", "model", "model_state_dict", "net", "network", "state_dict_ema", "model_ema", "ema")
_PREFIXES = ("module.", "_orig_mod.", "model.", "student.")
_DEEPEST = 4  # levels of wrappers
_OBJECTS = re.compile(r"Unsupported (?:global|class)|GLOBAL ")  # torch refused an object; the file is not broken


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file by name, in the order of the file.

    Args:
        path: A safetensors file, or a file of ``torch.save``.

    Returns:
        The tensors, on the CPU.
    """
    try:
        if path.stat().st_size == 0:
            raise AutomixError(f"{path}: the file is empty; give --weights a file with weights")
        content = read_tensors(path)[0] if is_safetensors(path) else _read_torch(path)
    except DamagedError:
        raise AutomixError(f"{path}: damaged, or not a safetensors file; give --weights another file") from None
    except OSError as error:
        raise AutomixError(f"{path}: cannot be read ({error.strerror or one_line(error)})") from None
    return unwrap(content, path)


def is_safetensors(path: Path) -> bool:
    """Tell whether a file is to be read as safetensors, by its name or its first bytes.

    Args:
        path: The file.

    Returns:
        True for safetensors.
    """
    with path.open("rb") as file:
        start = file.read(9)
    by_content = start[8:] == b"{" and int.from_bytes(start[:8], "little") < path.stat().st_size
    return path.suffix == ".safetensors" or by_content


def unwrap(content: Any, path: Path) -> dict[str, Tensor]:
    """Find the state dict in the content of a file and remove prefixes that all of its names have.

    Args:
        content: What was in the file.
        path: The file, for the message.

    Returns:
        The tensors by name.
    """
    for _ in range(_DEEPEST):
        if not isinstance(content, Mapping):
            break
        tensors = {name: value for name, value in content.items() if isinstance(name, str) and _is_tensor(value)}
        inside = [content[key] for key in _WRAPPERS if isinstance(content.get(key), Mapping) and content[key]]
        if not inside and tensors:
            return _without_prefixes(tensors)
        content = inside[0] if inside else None
    raise AutomixError(f"{path}: no state dict in it; give --weights a file of a network's state_dict()")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor) and value.layout == torch.strided and not value.is_quantized


def _without_prefixes(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    while prefix := next((prefix for prefix in _PREFIXES if all(name.startswith(prefix) for name in tensors)), None):
        tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return tensors


def _read_torch(path: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # torch's message, which advises to execute the file, is not shown
        if _OBJECTS.search(str(error)):
            raise AutomixError(
                f"{path}: has Python objects other than tensors, which are not executed; give --weights a file of its "
                "state_dict()"
            ) from None
        raise AutomixError(f"{path}: damaged, or no weights file of torch; give --weights another file") from None
    except Exception as error:  # zip, pickle and torch raise whatever they like on a broken file, an OSError too
        raise AutomixError(
            f"{path}: damaged, or no weights file of torch ({one_line(error)[:120]}); give --weights another file"
        ) from None
