"""A loss whose gradients are known already: the memory of its forward pass is free before the next pass begins.

A task with several loss terms would keep every term's activations until the caller calls ``loss.backward()``. A settled
term keeps its gradients instead, which are as large as the weights, and ``backward`` hands them out. The caller's loop
stays as it is: the sum of the terms, its scaling, gradient accumulation, DistributedDataParallel.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def backward_early(loss: Tensor, parameters: Iterable[Tensor]) -> Tensor:
    """The same number, with the gradients of `parameters` computed now and the graph behind it let go.

    Gradients of anything else that the loss depends on are lost. Under float16 the loss comes back as it was: its
    gradients would underflow without the factor by which the caller's scaler will multiply it.
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


class _EarlyBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Tensor, gradients: Sequence[Tensor | None], *trained: Tensor) -> Tensor:
        ctx.gradients = gradients
        return loss.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.gradients is None:
            raise RuntimeError("backward was called twice for one loss: accepted is once")
        known = [gradient for gradient in ctx.gradients if gradient is not None]
        # in place would be shorter of memory by another copy, but the factor of a scaler must not stay in them
        scaled = iter(torch._foreach_mul(known, factor.to(known[0].dtype))) if known else iter(())
        given = tuple(None if gradient is None else next(scaled) for gradient in ctx.gradients)
        ctx.gradients = None
        return None, None, *given
