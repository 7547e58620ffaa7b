"""Mixing as a transform with timm's and torchvision's call, for loops that exist already: ``x, soft = mix(x, y)``."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.target import Mixed
from automix.core.validation import check_alpha, check_options, check_smoothing


class MixTransform(nn.Module):
    """Base of the transforms: calls the method's function and returns images and soft labels (N, num_classes).

    `alpha` is the function's own if not given. `num_classes` may be left out where the labels are rows already.
    ``per_sample=True`` draws a lam for each sample. Without a `generator` numbers come from torch's default one. All
    further `options` are the function's.
    """

    function: Callable[..., Mixed]

    def __init__(
        self,
        alpha: float | None = None,
        num_classes: int | None = None,
        *,
        label_smoothing: float = 0.0,
        per_sample: bool = False,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_smoothing(label_smoothing)
        if num_classes is not None and num_classes < 1:
            raise ValueError(f"num_classes={num_classes}: accepted is None or a whole number >= 1")
        if alpha is not None:
            check_alpha(alpha)
            options["alpha"] = alpha
        if per_sample:
            options["per_sample"] = True
        check_options(type(self).function, options)
        self.options = options
        self.num_classes = num_classes
        self.label_smoothing = label_smoothing
        self.generator = generator

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        mix: Any = type(self).function
        mixed = mix(x, y, generator=self.generator, **self.options)
        return mixed.x, mixed.target.soft(self.num_classes, self.label_smoothing)

    def extra_repr(self) -> str:
        options = [f"{name}={value}" for name, value in self.options.items() if not isinstance(value, nn.Module)]
        return ", ".join([*options, f"num_classes={self.num_classes}", f"label_smoothing={self.label_smoothing}"])
