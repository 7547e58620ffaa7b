"""The task of every method that mixes images before the network sees them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.target import Mixed, MixedTarget
from automix.core.validation import check_options
from automix.tasks.task import Criterion, StepOutput, Task, step_output


class MixTask(Task):
    """The task of every method that mixes images before the network sees them.

    `mix` is the method's function, ``mix(x, y, lam=..., index=..., generator=..., **options)``. A function that wants
    to know how the network sees the images (saliency, attention) gets it from `look`: ``look(task, x, y)`` returns
    further keywords for `mix`. ``ema=True`` adds the momentum pipeline (the paper's +MP, `momentum` 0.999 unless
    given), ``one_hot_loss=True`` the loss on clean images (+CE). Images are mixed until the progress `mix_until`.
    """

    def __init__(
        self,
        model: nn.Module,
        mix: Callable[..., Mixed],
        *,
        look: Callable[["MixTask", Tensor, Tensor], dict[str, Any]] | None = None,
        ema: bool = False,
        momentum: float | None = None,
        one_hot_loss: bool = False,
        mix_until: float = 1.0,
        criterion: Criterion = MixedTarget.loss,
        seed: int = 0,
        **options: Any,
    ) -> None:
        if momentum is not None and not ema:
            raise ValueError(f"momentum={momentum}: accepted together with ema=True only")
        if ema and momentum is None:
            momentum = 0.999
        super().__init__(
            model, momentum=momentum, one_hot_loss=one_hot_loss, mix_until=mix_until, criterion=criterion, seed=seed
        )
        check_options(mix, options)
        self.mixer = mix
        self.look = look
        self.options = options

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        mixed = self.make_mixed(x, y, lam=None, index=None, generator=generator)
        losses, logits = self.classification_loss(x, y, mixed)
        return step_output(losses, logits, mixed.target)

    def make_mixed(
        self, x: Tensor, y: Tensor, *, lam: float | Tensor | None, index: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        seen = {} if self.look is None else self.look(self, x, y)
        return self.mixer(x, y, lam=lam, index=index, generator=generator, **seen, **self.options)
