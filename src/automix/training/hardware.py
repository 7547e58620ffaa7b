"""Which device, and in which precision its forward pass is fast."""

from contextlib import AbstractContextManager
from typing import Literal

import torch

from automix.core.errors import AutomixError

Precision = Literal["float32", "bf16", "fp16"]


def choose_device(name: str, local: int = 0) -> torch.device:
    """`name`, or for "auto" the first kind of accelerator there is; process `local` of a machine takes its own."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
        if device.type == "meta":
            raise RuntimeError("holds no numbers")
    except (RuntimeError, AssertionError, ImportError) as error:  # torch asserts that it was built with CUDA
        reason = str(error).splitlines()[0]
        raise AutomixError(f"device {name!r} is not available ({reason}); use one of {', '.join(_devices())}") from None
    return torch.device("cuda", local) if name == "cuda" else device


def _devices() -> list[str]:
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def choose_precision(asked: str, wished: bool, device: torch.device) -> Precision:
    """ "auto": half precision if the recipe wishes so and the device computes it in hardware, else float32.

    A CPU without bf16 instructions is many times slower in bf16 than in float32.
    """
    if asked == "fp16" and device.type == "cpu":
        raise AutomixError("precision must be one of auto, float32, bf16 on the CPU; got 'fp16'")
    if asked != "auto":
        return asked  # type: ignore[return-value]
    if not wished:
        return "float32"
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if device.type == "cpu":
        fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return "bf16" if fast else "float32"
    return "float32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, dtype, enabled=precision != "float32")
