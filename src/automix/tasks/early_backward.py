"""A loss whose gradients are known already, so that the memory of its forward pass is free before the next pass begins.

A task with several loss terms keeps the activations of every term until the caller calls ``loss.backward()``. With
``low_memory=True`` a term keeps its gradients instead, which are as large as the weights, and ``backward`` hands them
out. The caller's loop stays as it is: the sum of the terms, its scaling, accumulation, DistributedDataParallel.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from automix.core.errors import AutomixError


def backward_early(loss: Tensor, parameters: Iterable[Tensor]) -> Tensor:
    """Compute the gradients of a loss now and release its graph.

    Gradients of anything but `parameters` are lost. Under float16 autocast the loss is returned as it is: without the
    factor of the caller's gradient scaler its gradients would underflow.

    Args:
        loss: A scalar.
        parameters: Tensors to compute gradients for.

    Returns:
        The same number; its ``backward`` hands out the gradients, once.
    """
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    device = loss.device.type
    if not loss.requires_grad or not trained or isinstance(loss.grad_fn, _EarlyBackward._backward_cls):
        return loss
    if torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16:
        return loss
    with torch.autocast(device, enabled=False):  # a backward pass runs in the types of its forward pass
        gradients = torch.autograd.grad(loss, trained, allow_unused=True)
    return _EarlyBackward.apply(loss.detach(), gradients, *trained)


def without_graph(logits: Tensor) -> Tensor:
    """Detach logits whose graph is released, and refuse a loss on them, which would train nothing.

    Args:
        logits: The student's logits.

    Returns:
        The same numbers; ``backward`` through them raises an AutomixError.
    """
    return _Released.apply(logits.detach(), torch.empty(0, requires_grad=True))


class _Released(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, leaf: Tensor) -> Tensor:
        return logits.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        raise AutomixError("low_memory must be False for a loss on out.logits, whose graph it releases")


class _EarlyBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor | None], *trained: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("backward was called twice for one loss, which low_memory=True does not allow")
        known = [gradient for gradient in ctx.gradients if gradient is not None]
        # In place would save a copy, but the factor of a scaler must not stay in the gradients.
        scaled = iter(torch._foreach_mul(known, factor.to(known[0].dtype))) if known else iter(())
        given = tuple(None if gradient is None else next(scaled) for gradient in ctx.gradients)
        ctx.gradients = None
        return None, None, *given
