"""The head of a classifier: its last layer, which is new where a pretrained network gets other classes."""

import copy
from typing import Any

from torch import Tensor, nn
from torch.func import functional_call

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


class SecondHead(nn.Module):
    """A second head for a classifier, with the form and the first weights of its own one.

    Args:
        model: The classifier; stays as it is.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        head = find_head(model)
        self.name = next(name for name, module in model.named_modules() if module is head)
        self.layer = copy.deepcopy(head)

    def forward(self, model: nn.Module, x: Tensor) -> Tensor:
        """Run the classifier with this head in place of its own.

        Args:
            model: The classifier, or one of the same form.
            x: Images, ``(N, C, H, W)``.

        Returns:
            Logits, ``(N, num_classes)``.
        """
        weights: dict[str, Tensor] = {
            f"{self.name}.{name}": parameter for name, parameter in self.layer.named_parameters()
        }
        return functional_call(model, weights, (x,))
