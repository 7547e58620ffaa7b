"""A training step on a device that this machine does not have.

The tensors of the device "fake" are CPU tensors in a wrapper that obeys the rules of a real device: an operation on
tensors of two devices is an error (tensors without a dimension excepted), and so is a draw on the device with a
generator of the host. Copies to the device are counted, and so is every read of a value, for which a program waits
until the device has finished all that was asked of it.

    python tests/fake_device.py METHOD ...      a line of JSON for each method
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import conftest
import torch
from method_data import traits
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

import automix

DEVICE = "fake"
aten = torch.ops.aten
READS = {aten._local_scalar_dense.default, aten.nonzero.default, aten.equal.default, aten.masked_select.default}


class DeviceTensor(Tensor):
    """A CPU tensor that says it is on the device."""

    inside: Tensor

    @staticmethod
    def __new__(cls, inside: Tensor) -> "DeviceTensor":
        made: DeviceTensor = Tensor._make_wrapper_subclass(
            cls,
            inside.size(),
            strides=inside.stride(),
            storage_offset=inside.storage_offset(),
            dtype=inside.dtype,
            device=torch.device(DEVICE, 0),
            requires_grad=False,
        )
        made.inside = inside
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise AssertionError(f"{func} outside of the mode")

    def tolist(self) -> Any:
        """By a copy to the host, which is counted; torch's own refuses subclasses."""
        return self.to("cpu").tolist()


class Device(TorchDispatchMode):
    """Runs the operations of the device, and counts copies and reads."""

    def __init__(self) -> None:
        super().__init__()
        self.copies = 0
        self.reads: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, Tensor)]
        inputs = [tensor for tensor in tensors if isinstance(tensor, DeviceTensor)]
        asked = kwargs.get("device")
        is_asked = asked is not None and torch.device(asked).type == DEVICE
        is_copy = func in (aten._to_copy.default, aten.copy_.default)
        if func in READS and inputs:
            self.reads[str(func)] += 1
        if is_copy:
            source = args[1] if func is aten.copy_.default else args[0]
            target = args[0] if func is aten.copy_.default else None
            from_device = isinstance(source, DeviceTensor)
            to_device = (
                isinstance(target, DeviceTensor)
                if target is not None
                else (is_asked or asked is None) and (is_asked or from_device)
            )
            self.copies += to_device and not from_device
            self.reads["copy to the host"] += from_device and not to_device
        else:
            strangers = [tensor for tensor in tensors if not isinstance(tensor, DeviceTensor) and tensor.ndim]
            if inputs and strangers:
                raise RuntimeError(f"{func}: tensors on the device and on the host")
            if (is_asked or (inputs and asked is None)) and any(
                isinstance(value, torch.Generator) for value in kwargs.values()
            ):
                raise RuntimeError(f"{func}: a generator of the host for a draw on the device")
            to_device = is_asked or (bool(inputs) and asked is None)
        if is_asked:
            kwargs["device"] = torch.device("cpu")
        wrappers = {id(tensor.inside): tensor for tensor in inputs}
        plain_args, plain_kwargs = tree_map(
            lambda value: value.inside if isinstance(value, DeviceTensor) else value, (args, kwargs)
        )
        result = func(*plain_args, **plain_kwargs)
        if not to_device or func in (aten._local_scalar_dense.default, aten.equal.default):
            return result

        def wrap(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            return wrappers.get(id(value)) if id(value) in wrappers else DeviceTensor(value)

        return tree_map(wrap, result)


def register_device() -> None:
    """Make the device known to torch, autocast included; once a process."""
    _setup_privateuseone_for_python_backend(DEVICE)
    module: Any = getattr(torch, DEVICE)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16]
    torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=...) is a copy that the mode sees


def move(module: nn.Module) -> None:
    """Put every weight and buffer on the device."""
    for part in module.modules():
        for name, parameter in part._parameters.items():
            if parameter is not None:
                moved = DeviceTensor(parameter.detach())
                part._parameters[name] = nn.Parameter(moved, requires_grad=parameter.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = DeviceTensor(buffer)


def train_step(make: Callable[[], automix.Task]) -> dict[str, Any]:
    """Train a task on the device for three steps, of which the first two make what is made once.

    Args:
        make: Builds the task.

    Returns:
        For the third step: copies to the device, the batch not counted, and reads by operation.
    """
    task = make()
    x, y = conftest.batch()
    with Device() as device:
        move(task)
        optimizer = torch.optim.SGD(task.param_groups(lr=0.1), momentum=0.9, foreach=False)
        x, y = DeviceTensor(x), DeviceTensor(y)
        for step in range(3):
            device.copies, device.reads = 0, Counter()
            out = task(x, y)
            out.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            task.update(step / 4)
        counted = {"copies": device.copies, "reads": {name: count for name, count in device.reads.items() if count}}
        everything: list[Tensor] = [out.loss, out.logits, *out.metrics.values(), *task.parameters()]
        assert all(tensor.device.type == DEVICE for tensor in everything), "a result is not on the device"
        return {**counted, "loss": out.loss.item()}


def make_task(name: str) -> automix.Task:
    """A small task of a method, as the other menus have it."""
    torch.manual_seed(3)
    return automix.create_task(name, traits(name).model(), **traits(name).options)


def main(names: list[str]) -> None:
    """Write a line for each method."""
    register_device()
    for name in names:
        try:
            line = {"method": name, **train_step(lambda name=name: make_task(name))}  # type: ignore[misc]
        except Exception as error:
            line = {"method": name, "error": f"{type(error).__name__}: {error}"}
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
