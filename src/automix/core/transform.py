"""Mixing as a transform that is called like timm's and torchvision's: ``x, soft = mix(x, y)``."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from automix.core.draws import draw_decision
from automix.core.errors import AutomixError
from automix.core.objects import check_takes_objects
from automix.core.target import Mixed
from automix.core.tensor_checks import check_batch
from automix.core.validation import check_alpha, check_options, check_range, check_smoothing, check_whole


class MixTransform(nn.Module):
    """Base class of the transforms, for training loops that exist already.

    A subclass names the function of its method; the transform calls it and returns images and soft labels.

    Args:
        alpha: Parameter of the method's Beta distribution; the function's default if not given.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw `lam` for every sample instead of once for the batch.
        prob: Probability that a batch is mixed at all, in [0, 1]; drawn once for each batch.
        generator: Source of randomness; torch's default generator if not given.
        **options: Further options of the function.
    """

    function: Callable[..., Mixed]
    """The method's function; set by each subclass."""

    takes_video: ClassVar[bool] = True
    """Whether videos can be mixed, their frames as further channels; not by methods that know what a channel is."""

    def __init__(
        self,
        *,
        alpha: float | None = None,
        num_classes: int | None = None,
        label_smoothing: float = 0.0,
        per_sample: bool = False,
        prob: float = 1.0,
        generator: torch.Generator | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        check_smoothing(label_smoothing)
        check_whole("num_classes", num_classes, 1)
        check_range("prob", prob, 0, 1)
        if alpha is not None:
            check_alpha(alpha)
            options["alpha"] = alpha
        if per_sample:
            options["per_sample"] = True
        check_options(type(self).function, options)
        self.options = options
        self.num_classes = num_classes
        self.label_smoothing = label_smoothing
        self.prob = prob
        self.generator = generator

    def forward(self, x: Tensor, y: Tensor, objects: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mix a batch.

        Args:
            x: Images, ``(N, C, H, W)``, or videos, ``(N, C, T, H, W)``, whose frames are all mixed by one mask.
            y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
            objects: Where the object of each image is, masks or boxes, for labels by visible object; see
                `label_by_objects`.

        Returns:
            The mixed images and their soft labels, ``(N, num_classes)``.
        """
        if x.ndim == 5:
            if not self.takes_video:
                raise AutomixError(f"{type(self).__name__} takes images (N, C, H, W) alone, got shape {tuple(x.shape)}")
            mixed_frames, rows = self(x.flatten(1, 2), y, objects)
            return mixed_frames.unflatten(1, x.shape[1:3]), rows
        if draw_decision(self.prob, self.generator):
            mixed = self.mix(x, y, {} if objects is None else {"objects": objects})
        else:
            check_batch(x, y, uint8=True)
            mixed = Mixed.clean(x, y)
        return mixed.x, mixed.target.soft(self.num_classes, self.label_smoothing)

    def mix(self, x: Tensor, y: Tensor, keywords: dict[str, Any]) -> Mixed:
        """Call the method's function.

        Args:
            x: Images, ``(N, C, H, W)``.
            y: Their labels.
            keywords: Keywords of this call, beside the options.

        Returns:
            The mixed batch.
        """
        function: Any = type(self).function
        if "objects" in keywords:
            check_takes_objects(function)
        return function(x, y, generator=self.generator, **keywords, **self.options)

    def extra_repr(self) -> str:
        """List the options, for ``repr``."""
        options = [f"{name}={value}" for name, value in self.options.items() if not isinstance(value, nn.Module)]
        options += [f"prob={self.prob}"] if self.prob < 1 else []
        return ", ".join([*options, f"num_classes={self.num_classes}", f"label_smoothing={self.label_smoothing}"])
