"""The head of a classifier: its last layer, which is new where a pretrained network gets other classes."""

from typing import Any

from torch import nn

from automix.core.errors import AutomixError


def find_head(model: nn.Module) -> nn.Module:
    """Find the last layer of a classifier.

    Args:
        model: The classifier; timm's networks name their head, of others the last linear layer is taken.

    Returns:
        The head.
    """
    get_classifier: Any = getattr(model, "get_classifier", None)
    named = get_classifier() if callable(get_classifier) else None
    if isinstance(named, nn.Module) and any(True for _ in named.parameters()):
        return named
    linear = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise AutomixError(f"{type(model).__name__} has no linear layer that could be its head")
    return linear[-1]


def head_parameters(model: nn.Module) -> list[nn.Parameter]:
    """List the parameters of a classifier's head.

    Args:
        model: The classifier.

    Returns:
        The parameters.
    """
    return list(find_head(model).parameters())


def body_parameters(model: nn.Module) -> list[nn.Parameter]:
    """List the parameters of a classifier without its head.

    Args:
        model: The classifier.

    Returns:
        The parameters.
    """
    head = {id(parameter) for parameter in head_parameters(model)}
    return [parameter for parameter in model.parameters() if id(parameter) not in head]
