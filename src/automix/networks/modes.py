"""Training and eval mode of a network."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put every module into eval mode inside the context, then restore each module's mode.

    Running the network inside leaves its statistics as they are.

    Args:
        model: The network.

    Yields:
        Nothing.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
