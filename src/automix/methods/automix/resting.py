"""Parameters that take no part in a step, in a process group: DistributedDataParallel wants every one in every step."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from automix.core.distributed import is_distributed


class RestingParameters:
    """Gives resting parameters zero gradients, and puts their values back after the optimizer's step.

    Zero gradients alone would still feed the optimizer's momentum and weight decay. Outside of a process group nothing
    is done.
    """

    def __init__(self) -> None:
        self._saved: list[tuple[nn.Parameter, Tensor]] = []

    def add_to(self, loss: Tensor, parameters: Sequence[nn.Parameter]) -> Tensor:
        """Make a loss depend on resting parameters, and remember their values.

        Args:
            loss: The loss of the step, a scalar.
            parameters: The parameters that rest.

        Returns:
            The same number.
        """
        if not is_distributed():
            return loss
        if not self._saved:  # the first batch of a step
            self._saved = [(parameter, parameter.detach().clone()) for parameter in parameters]
        return torch.stack([loss, *(0 * parameter.sum() for parameter in parameters)]).sum()

    @torch.no_grad()
    def put_back(self) -> None:
        """Undo what the optimizer did to the parameters that rested in this step."""
        for parameter, value in self._saved:
            parameter.copy_(value)
        self._saved = []
