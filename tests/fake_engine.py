"""The training engine on a device that this machine does not have: one run of three steps for each precision.

    python tests/fake_engine.py FOLDER PRECISION[:SCALE] ...     a line of JSON for each; images of FOLDER are trained

The device is that of fake_device.py. What the engine decides for it is in the line: gradient scaling, the type that the
forward pass computes in, the memory format of weights and images, and how often a step reads a value. SCALE replaces
the first factor of the scaler.
"""

import json
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from fake_device import DEVICE, Device, register_device
from faults.runs import configure
from torch import Tensor, nn

from automix.training.distributed import World
from automix.training.loop import training_step
from automix.training.prepare import assemble, build_data
from automix.training.signals import StopRequest

STEPS = 3


def register_autocast() -> list[torch.library.Library]:
    """Give the device autocast: convolutions and products in 16 bits, everything else in the type that it gets."""
    key = torch._C.DispatchKey.AutocastPrivateUse1  # type: ignore[attr-defined]  # torch's stubs lack it
    rest = torch.library.Library("_", "IMPL")
    rest.fallback(torch.library.fallthrough_kernel, key.name)
    library = torch.library.Library("aten", "IMPL")

    def lower(operator: Any) -> Any:
        def kernel(*arguments: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
                return operator(*(cast(argument) for argument in arguments))

        return kernel

    def cast(value: Any) -> Any:
        is_float = isinstance(value, Tensor) and value.dtype == torch.float32
        return value.to(torch.get_autocast_dtype(DEVICE)) if is_float else value

    for name in ("conv2d", "linear", "matmul"):
        library.impl(name, lower(getattr(torch.ops.aten, name)), key.name)
    return [rest, library]


def is_channels_last(tensor: Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last)


def train(photos: Path, out: Path, asked: str, device: str = DEVICE) -> dict[str, Any]:
    """Train for a few steps and tell what the engine did; reads and types are those of the last step."""
    precision, _, scale = asked.partition(":")
    config = configure(photos, out, "mixup", device=device, precision=precision, lr=0.01)
    mode = Device()
    with mode:
        run = assemble(config, World(), build_data(config, World()))
        if scale:
            run.scaler.load_state_dict({**run.scaler.state_dict(), "scale": float(scale)})
        seen: dict[str, Any] = {}
        first = next(module for module in run.task.student.modules() if isinstance(module, nn.Conv2d))

        def look(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
            seen.update(
                dtype=str(output.dtype), device=inputs[0].device.type, channels_last=is_channels_last(inputs[0])
            )

        first.register_forward_hook(look)
        run.task.train()
        batches = run.data.loader.batches(0, run.total_steps)
        losses, scales, moved = [], [], []
        for _ in range(STEPS):
            before = first.weight.detach().clone()
            mode.reads = Counter()
            losses.append(training_step(run, batches, StopRequest())["loss"])
            reads = sum(mode.reads.values())
            scales.append(run.scaler.get_scale())
            moved.append(not torch.equal(before, first.weight))
        weights = [weight for weight in run.task.parameters() if weight.ndim == 4]
        return {
            **seen,
            "precision": run.precision,
            "scaling": run.scaler.is_enabled(),
            "scales": scales,
            "moved": moved,
            "losses": losses,
            "reads": reads,
            "weights": sorted({weight.device.type for weight in run.task.parameters()}),
            "weight_dtypes": sorted({str(weight.dtype) for weight in run.task.parameters()}),
            "weights_channels_last": all(map(is_channels_last, weights)),
        }


def main(photos: Path, precisions: list[str]) -> None:
    """Write a line for each precision."""
    register_device()
    libraries = register_autocast()
    assert libraries  # they act as long as they live
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    with tempfile.TemporaryDirectory() as folder:
        for number, asked in enumerate(precisions):
            line = train(photos, Path(folder) / str(number), asked)
            sys.stdout.write(json.dumps({"asked": asked, **line}) + "\n")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]), sys.argv[2:])
