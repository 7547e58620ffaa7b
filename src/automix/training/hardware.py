"""The device, and the precision in which its forward pass is fast."""

from contextlib import AbstractContextManager
from typing import Literal

import torch
from torch import nn

from automix.core.errors import AutomixError

Precision = Literal["float32", "bf16", "fp16"]

DEPTHWISE_SHARE = 1 / 6  # of the convolutions; EfficientNet has a fifth, because of those that squeeze and excite


def choose_device(name: str, local_rank: int = 0) -> torch.device:
    """Choose the device of this process.

    Args:
        name: A device of torch, or "auto" for the first kind of accelerator there is.
        local_rank: Number of this process on its machine; with "cuda" and "auto" each takes a GPU of its own.

    Returns:
        The device, which was tried.
    """
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
    return torch.device("cuda", local_rank) if name == "cuda" else device


def _devices() -> list[str]:
    cuda = [f"cuda:{number}" for number in range(torch.cuda.device_count())]
    return ["cpu", *cuda, *(["mps"] if torch.backends.mps.is_available() else [])]


def choose_precision(
    precision: str, mixed_precision: bool, device: torch.device, model: nn.Module | None = None
) -> Precision:
    """Choose the precision of the forward pass.

    Args:
        precision: "float32", "bf16", "fp16"; or "auto" for 16 bits if the recipe has `mixed_precision` and the device
            computes them in hardware. A CPU without bf16 instructions is many times slower in bf16 than in float32.
        mixed_precision: The recipe's setting.
        device: The device.
        model: The network, on any device. On the CPU those with many depthwise convolutions (MobileNet, EfficientNet,
            ConvNeXt) are faster in float32, whatever its instructions.

    Returns:
        The precision.
    """
    if precision == "fp16" and device.type == "cpu":
        raise AutomixError("precision must be one of auto, float32, bf16 on the CPU; got 'fp16'")
    if precision != "auto":
        return precision  # type: ignore[return-value]
    if not mixed_precision:
        return "float32"
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if device.type == "cpu":
        fast = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
        return "bf16" if fast and not (model is not None and is_depthwise(model)) else "float32"
    return "float32"


def is_depthwise(model: nn.Module) -> bool:
    """Tell whether depthwise convolutions are a substantial part of a network's convolutions.

    Args:
        model: The network.

    Returns:
        True if they are a sixth or more.
    """
    convolutions = [module for module in model.modules() if isinstance(module, nn.Conv2d)]
    depthwise = sum(module.groups == module.in_channels > 1 for module in convolutions)
    return bool(convolutions) and depthwise >= DEPTHWISE_SHARE * len(convolutions)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[None]:
    """Compute in `precision` inside the `with` block."""
    dtype = torch.float16 if precision == "fp16" else torch.bfloat16
    return torch.autocast(device.type, dtype, enabled=precision != "float32")
