"""What the fault suite shares: small runs, digests of what they learned, and runs in processes of their own.

Children are forked from this process, which has imported everything and has one thread: no other can hold a lock at the
moment of the fork, and a start takes milliseconds instead of the seconds that importing torch takes.
"""

import faulthandler
import hashlib
import json
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any

import torch
from torch import nn

from automix.core.tensor_files import read_tensors
from automix.runs.config import TrainConfig
from automix.runs.recipes import find_recipe
from automix.training import Silent, train
from automix.training.run import Run

CHECKPOINT = "checkpoint.safetensors"
PREVIOUS = "checkpoint-previous.safetensors"
DAMAGED = "checkpoint-damaged.safetensors"

HANG = 600  # seconds: a pair takes some ten on a busy machine
TOTAL_STEPS = 9  # of `configure`: 3 epochs of 3 steps


def configure(photos: Path, out: Path, method: str = "automix", **changes: Any) -> TrainConfig:
    """3 epochs of 3 steps of 12 images of 16 px, a checkpoint after every step."""
    settings = {name: changes.pop(name) for name in list(changes) if hasattr(find_recipe("quick"), name)}
    token = method == "transmix"  # needs a class token
    if method == "stylemix":
        changes["method_options"] = {"weights": str(style_networks(photos.parent)), "size": 16}
    config = TrainConfig(
        data=str(photos),
        method=method,
        out=str(out),
        model="deit_tiny_patch16_224" if token else "resnet18",
        model_options={"depth": 4, "embed_dim": 24} if token else {"layers": [1, 1, 1, 1], "channels": [8, 8, 8, 8]},
        checkpoint_minutes=0,
        settings=replace(find_recipe("quick"), **{"epochs": 3, "batch_size": 12, **settings}),
    )
    return replace(config, **changes)


def style_networks(folder: Path) -> Path:
    """Files of an encoder and a decoder with random weights, for StyleMix."""
    from safetensors.torch import save_file

    from automix.methods.stylemix import FILES, vgg_decoder, vgg_encoder

    if not (folder / FILES[0]).exists():
        torch.manual_seed(3)
        for name, network in zip(FILES, (vgg_encoder(), vgg_decoder()), strict=True):
            convolutions = [layer for layer in network if isinstance(layer, nn.Conv2d)]
            save_file(nn.Sequential(*convolutions).state_dict(), folder / name)
    return folder


def digest(folder: Path, name: str = "checkpoint.safetensors") -> str:
    """Of student, teacher, mix block and optimizer, every byte of every tensor, and of the optimizer's options."""
    tensors, metadata = read_tensors(folder / name)
    found = hashlib.sha256()
    for key in sorted(tensors):
        found.update(key.encode() + tensors[key].numpy().tobytes())
    found.update(json.dumps(json.loads(metadata["automix"])["tree"], sort_keys=True).encode())
    return found.hexdigest()


class KillAfterSaving(Silent):
    """Kills its own process, without a chance to clean up, in the step after the checkpoint of `step` was written."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, run: Run, metrics: dict[str, float]) -> None:
        if run.step == self.at + 1:
            os.kill(os.getpid(), signal.SIGKILL)


def fork(function: Callable[..., object], *arguments: Any, **options: Any) -> ForkProcess:
    """A started child, which finds all modules imported, those too that automix imports late."""
    import timm  # noqa: F401
    import torch.utils.tensorboard  # noqa: F401

    child = multiprocessing.get_context("fork").Process(target=function, args=arguments, kwargs=options)
    child.start()
    return child


def train_apart(config: TrainConfig) -> None:
    """Train in a child, to the end."""
    child = fork(train, config, resume=True)
    child.join()
    assert child.exitcode == 0


def train_killed(config: TrainConfig, after: int) -> None:
    """Train in a child that is killed once the checkpoint of step `after` is on the disk."""
    child = fork(train, config, resume=True, display=KillAfterSaving(after))
    child.join()
    assert child.exitcode == -signal.SIGKILL


def train_in_two(config: TrainConfig, kill_after: int | None = None) -> list[int | None]:
    """Train in two children that share the work, as torchrun would start them; returns how they ended.

    A child that takes HANG seconds prints the stack of every thread and ends.
    """
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]

    def one(rank: int) -> None:
        faulthandler.dump_traceback_later(HANG, exit=True)
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)}
        # the leading process alone shows and saves, so it is the one that knows when
        train(config, resume=True, display=None if kill_after is None else KillAfterSaving(kill_after))

    children = [fork(one, rank) for rank in range(2)]
    children[0].join()
    if kill_after is not None:
        children[1].kill()
    children[1].join()
    return [child.exitcode for child in children]
