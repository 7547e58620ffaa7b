"""Everything a run needs to go on, in one safetensors file: never a pickle, written atomically.

Tensors are tensors of the file; the rest (step, counters, options of the optimizer) is JSON in its metadata.
"""

import json
import platform
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor
from torch.optim import Optimizer

from automix.files import write_atomically
from automix.task import Task

FORMAT = 1
NAME = "checkpoint.safetensors"


def save_checkpoint(
    path: Path, task: Task, optimizer: Optimizer, scaler: torch.amp.GradScaler, facts: dict[str, Any]
) -> None:
    """`facts` are JSON values that come back from `load_checkpoint`: the step, the best accuracy, the configuration."""
    tensors: dict[str, Tensor] = {}
    state = {"task": task.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
    tree = _take_tensors(state, "", tensors)
    header = {"format": FORMAT, "environment": environment(), "facts": facts, "tree": tree}
    metadata = {"automix": json.dumps(header)}
    content = save(tensors, metadata)
    write_atomically(path, lambda temporary: temporary.write_bytes(content))


def load_checkpoint(path: Path, task: Task, optimizer: Optimizer, scaler: torch.amp.GradScaler) -> dict[str, Any]:
    """Put the saved state into `task`, `optimizer` and `scaler`, and return the facts."""
    header, state = _read(path)
    here, there = environment(), header["environment"]
    if changed := [name for name in here if here[name] != there.get(name)]:
        values = ", ".join(f"{name} {there.get(name)} -> {here[name]}" for name in changed)
        warnings.warn(f"resumed under other conditions ({values}): right, but not bit for bit the same", stacklevel=2)
    _fill(task, state["task"], path)
    saved = state["optimizer"]
    saved["state"] = {int(number): values for number, values in saved["state"].items()}
    optimizer.load_state_dict(saved)
    _restore_memory_format(optimizer)
    if state["scaler"]:
        scaler.load_state_dict(state["scaler"])
    return header["facts"]


def load_task_state(path: Path, task: Task) -> None:
    """The task's part alone, for looking at what it has learned."""
    _fill(task, _read(path)[1]["task"], path)


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone, without the tensors."""
    return _read_header(path)["facts"]


def _fill(task: Task, state: dict[str, Any], path: Path) -> None:
    try:
        task.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"checkpoint {path}: does not fit the network ({reason[:200]})") from None


def environment() -> dict[str, Any]:
    """What must be the same for a resumed run to repeat every bit."""
    distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
    world = torch.distributed.get_world_size() if distributed else 1
    return {
        "torch": torch.__version__,
        "machine": platform.machine(),
        "threads": torch.get_num_threads(),
        "processes": world,
    }


def _read_header(path: Path) -> dict[str, Any]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ValueError(f"checkpoint {path}: cannot be read ({error})") from None
    if "automix" not in metadata:
        raise ValueError(f"checkpoint {path}: was not written by automix")
    header = json.loads(metadata["automix"])
    if header["format"] > FORMAT:
        raise ValueError(
            f"checkpoint {path}: format {header['format']} is newer than this automix, which reads {FORMAT}"
        )
    return header


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """The header, and the state with its tensors in place."""
    header = _read_header(path)
    return header, _put_tensors(header["tree"], load_file(path))


def _take_tensors(tree: Any, place: str, tensors: dict[str, Tensor]) -> Any:
    """`tree` with each tensor replaced by its name; the tensors are collected, each in memory of its own."""
    if isinstance(tree, Tensor):
        tensors[place] = tree.detach().cpu().contiguous().clone()
        return {"tensor": place}
    if isinstance(tree, dict):
        return {str(key): _take_tensors(value, f"{place}/{key}", tensors) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [_take_tensors(value, f"{place}/{number}", tensors) for number, value in enumerate(tree)]
    return tree


def _put_tensors(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(tree, dict):
        if tree.keys() == {"tensor"}:
            return tensors[tree["tensor"]]
        return {key: _put_tensors(value, tensors) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_put_tensors(value, tensors) for value in tree]
    return tree


def _restore_memory_format(optimizer: Optimizer) -> None:
    """Momentum and the like get the strides of their parameters again, or the optimizer would be slower than before."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            for name, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    optimizer.state[parameter][name] = torch.empty_like(parameter, dtype=value.dtype).copy_(value)
