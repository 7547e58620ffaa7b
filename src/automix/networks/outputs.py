"""What a network returns (logits in dicts and tuples), and what may be wrapped around it (compiled, parallel)."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from automix.core.errors import AutomixError


def logits_of(output: Any) -> Tensor:
    """Find the logits in the output of a network.

    Args:
        output: A tensor; a dict or an object with `logits`, such as the outputs of transformers and of torchvision's
            GoogLeNet; or a tuple or list whose first element they are.

    Returns:
        The logits, ``(N, num_classes)``.

    Raises:
        AutomixError: There are none.
    """
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        found = output.get("logits")
    elif hasattr(output, "logits"):
        found = output.logits
    else:
        found = output[0] if isinstance(output, tuple | list) and output else None
    if isinstance(found, Tensor):
        return found
    kind = (
        f"a dict of {', '.join(map(str, output)) or 'nothing'}"
        if isinstance(output, Mapping)
        else type(output).__name__
    )
    raise AutomixError(f"model must return logits, a dict with 'logits' or a tuple that starts with them; got {kind}")


def run_network(network: Callable[[Tensor], Any], x: Tensor) -> Tensor:
    """Run a network that trains and find its logits, or what else it returns as a tensor.

    Args:
        network: The network, or a function that runs it.
        x: Images, ``(N, C, H, W)``.

    Returns:
        The logits, ``(N, num_classes)``.

    Raises:
        AutomixError: There are none, or BatchNorm cannot train on so small a batch.
    """
    try:
        output = network(x)
    except ValueError as error:
        if not str(error).startswith("Expected more than 1 value per channel"):
            raise
        raise AutomixError(
            f"BatchNorm needs more than one value per channel, got a batch of {len(x)} at {x.shape[-2]} x "
            f"{x.shape[-1]} px: use batches of 2 or more (drop_last=True in the loader), or larger images"
        ) from None
    return output if isinstance(output, Tensor) else logits_of(output)


def without_compile(model: nn.Module) -> nn.Module:
    """Return the module inside ``torch.compile(module)``, whose layers can be read; it shares all weights.

    Args:
        model: A network, compiled or not.

    Returns:
        The network as it was before.
    """
    return getattr(model, "_orig_mod", model)


def run_uncompiled(model: nn.Module, x: Tensor) -> Any:
    """Run a network without compiled code, which leaves out hooks that were added after the compilation.

    Args:
        model: A network; compiled by ``torch.compile(model)``, by ``model.compile()`` or not at all.
        x: Images, ``(N, C, H, W)``.

    Returns:
        The network's output.
    """
    plain = without_compile(model)
    return plain(x) if plain._compiled_call_impl is None else plain._call_impl(x)


def check_not_parallel(model: nn.Module) -> None:
    """Refuse a network that is wrapped for several devices: its gradients, not the task's, would be averaged.

    Args:
        model: The network.

    Raises:
        AutomixError: It is wrapped; the message says what to wrap instead.
    """
    if isinstance(model, DistributedDataParallel | DataParallel):
        kind = type(model).__name__
        raise AutomixError(f"model must not be wrapped in {kind}: wrap the task, DDP(task), and pass model.module")
