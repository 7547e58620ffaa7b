"""Checkpoints: all that a run needs to resume, in one safetensors file, written atomically and with a checksum.

Tensors are tensors of the file; the rest (step, counters, options of the optimizer) is JSON in its metadata. There is
no pickle in it.

NAME.safetensors            the latest
NAME-previous.safetensors   the one before it, used where the latest is damaged
NAME-damaged.safetensors    a latest one that was damaged, kept when the next one took its place
"""

import json
import platform
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from automix.core.distributed import rank_and_world
from automix.core.errors import AutomixError, one_line
from automix.core.tensor_files import DamagedError, is_whole, misfit, read_tensors, write_tensors
from automix.tasks.task import Task

FORMAT = 1


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint's file.

    Attributes:
        path: The file.
        facts: Those of `save_checkpoint`.
        environment: What must be the same for a resumed run to repeat every bit: versions, device, threads.
        state: State dicts of the task, the optimizer and the gradient scaler.
    """

    path: Path
    facts: dict[str, Any]
    environment: dict[str, Any]
    state: dict[str, Any]


def save_checkpoint(
    path: Path,
    task: Task,
    optimizer: Optimizer,
    scaler: torch.amp.GradScaler,
    facts: dict[str, Any],
    precision: str = "float32",
) -> None:
    """Write a checkpoint; the one that was there becomes the previous one.

    Args:
        path: The file.
        task: The task, or any module.
        optimizer: Its optimizer.
        scaler: The gradient scaler, which may be disabled.
        facts: JSON values that come back from `load_checkpoint`: the step, the best accuracy.
        precision: Precision of the forward pass, part of the environment.
    """
    tensors: dict[str, Tensor] = {}
    state = {"task": task.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict()}
    tree = _take_tensors(state, "", tensors)
    header = {"format": FORMAT, "environment": environment(task, precision), "facts": facts, "tree": tree}
    # A damaged file must not take the place of a good previous one.
    keep = previous_path(path) if is_whole(path) else damaged_path(path)
    write_tensors(path, tensors, {"automix": json.dumps(header)}, keep=keep)


def previous_path(path: Path) -> Path:
    """Name the file of the checkpoint before the one at `path`."""
    return path.with_stem(f"{path.stem}-previous")


def damaged_path(path: Path) -> Path:
    """Name the file in which a damaged checkpoint at `path` is kept when a new one takes its place."""
    return path.with_stem(f"{path.stem}-damaged")


def load_checkpoint(
    path: Path, task: Task, optimizer: Optimizer, scaler: torch.amp.GradScaler, precision: str = "float32"
) -> dict[str, Any]:
    """Read a checkpoint and restore its state.

    Args:
        path: The file.
        task: The task, or any module, of the same architecture.
        optimizer: Its optimizer.
        scaler: The gradient scaler.
        precision: Precision of the forward pass.

    Returns:
        The facts that were saved.
    """
    saved = read_checkpoint(path)
    restore(saved, task, optimizer, scaler, precision)
    return saved.facts


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint, or the previous one with a warning if the latest is damaged.

    Args:
        path: The file of the latest checkpoint.

    Returns:
        Its content.

    Raises:
        AutomixError: There is none that can be read.
    """
    previous = previous_path(path)
    if not path.exists() and previous.exists():
        return _read(previous)
    try:
        return _read(path)
    except DamagedError as error:
        if not previous.exists():
            raise AutomixError(f"{error}, and there is no {previous.name}; start over with --overwrite") from None
        try:
            saved = _read(previous)
        except DamagedError as other:
            raise AutomixError(f"{error}, and so is {other}; start over with --overwrite") from None
        _warn(f"{error}; resuming from {previous.name}, saved after step {saved.facts.get('step')}")
        return saved


def restore(
    saved: Checkpoint, task: Task, optimizer: Optimizer, scaler: torch.amp.GradScaler, precision: str = "float32"
) -> None:
    """Restore a saved state; warn if the run will not continue bit for bit.

    Args:
        saved: The checkpoint.
        task: The task, of the same architecture.
        optimizer: Its optimizer.
        scaler: The gradient scaler.
        precision: Precision of the forward pass.
    """
    here, there = environment(task, precision), saved.environment
    if changed := [name for name in here if here[name] != there.get(name, here[name])]:
        values = ", ".join(f"{name} {there[name]} -> {here[name]}" for name in changed)
        _warn(f"resumed under other conditions ({values}): right, but not bit for bit the same")
    restore_task(saved, task)
    options = saved.state["optimizer"]
    options["state"] = {int(number): values for number, values in options["state"].items()}
    try:
        optimizer.load_state_dict(options)
    except ValueError as error:
        raise AutomixError(f"{saved.path}: does not fit the optimizer ({one_line(error)})") from None
    _restore_memory_format(optimizer)
    if saved.state["scaler"]:
        scaler.load_state_dict(saved.state["scaler"])


def restore_task(saved: Checkpoint, task: Task) -> None:
    """Restore the task alone, to look at what it has learned.

    Args:
        saved: The checkpoint.
        task: The task, of the same architecture.
    """
    state = saved.state["task"]
    _check_fit(saved.path, state, task)
    task.load_state_dict(state)


def environment(task: nn.Module | None = None, precision: str = "float32") -> dict[str, Any]:
    """Describe what must be the same for a resumed run to repeat every bit.

    Args:
        task: The task, whose device counts.
        precision: Precision of the forward pass.

    Returns:
        Values by name.
    """
    return {
        "torch": torch.__version__,
        "machine": f"{platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "device": _device_kind(task),
        "precision": precision,
        "threads": torch.get_num_threads(),
        "processes": rank_and_world()[1],
    }


def _device_kind(task: nn.Module | None) -> str:
    weight = None if task is None else next(task.parameters(), None)
    if weight is None:
        return "cpu"
    return torch.cuda.get_device_name(weight.device) if weight.is_cuda else weight.device.type


def _warn(message: str) -> None:
    """Warn once for a run, not once for each of its processes."""
    if rank_and_world()[0] == 0:
        warnings.warn(message, stacklevel=3)


def _read(path: Path) -> Checkpoint:
    try:
        tensors, metadata = read_tensors(path)
    except OSError as error:
        raise AutomixError(f"{path}: cannot be read ({error.strerror})") from None
    if "automix" not in metadata:
        raise AutomixError(f"{path}: was not written by automix")
    try:
        header = json.loads(metadata["automix"])
        if header["format"] > FORMAT:
            raise AutomixError(f"{path}: format {header['format']} is newer than {FORMAT}, which this automix reads")
        names = set(_names(header["tree"]))
        if odd := sorted(names ^ tensors.keys()):
            what = "is missing" if odd[0] in names else "is unknown"
            raise AutomixError(f"{path}: {odd[0]} {what}")
        state = _put_tensors(header["tree"], tensors)
        return Checkpoint(path, header["facts"], header["environment"], state)
    except (KeyError, TypeError, json.JSONDecodeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise AutomixError(f"{path}: its description cannot be read ({reason})") from None


def _check_fit(path: Path, state: dict[str, Any], task: Task) -> None:
    own = task.state_dict()
    # what a method remembers beside its weights may have any length: RecursiveMix keeps the previous batch
    own |= {name: state[name] for name in own if name.endswith("_extra_state") and name in state}
    if wrong := misfit(state, own, "network"):
        raise AutomixError(f"{path}: does not fit the network: {wrong}")


def _names(tree: Any) -> list[str]:
    """The names of all tensors in `tree`."""
    if isinstance(tree, dict):
        if tree.keys() == {"tensor"}:
            return [tree["tensor"]]
        return [name for value in tree.values() for name in _names(value)]
    return [name for value in tree for name in _names(value)] if isinstance(tree, list) else []


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
