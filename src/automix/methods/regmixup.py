"""RegMixup (Pinto et al., 2022): Mixup's loss is added to the loss on the clean images.

    L = CE(f(x), y) + MCE(f(x_mix), y_mix),    lam ~ Beta(alpha, alpha), alpha 10 to 20

Mixup as a regularizer: clean images are always learned, and with a large alpha a mixed image shows two about equally
strong ones. Both halves are one batch, so that BatchNorm sees them together. It has the two losses that AutoMix's
student has, without a Mix Block, which makes it the fair control for that.
"""

from typing import Any

import torch
from torch import Tensor, nn

from automix.core.draws import Pairing
from automix.core.errors import AutomixError
from automix.core.objects import ObjectsRule
from automix.core.target import Mixed, MixedTarget
from automix.core.transform import MixTransform
from automix.methods.mixup import mixup
from automix.tasks.mix_task import MixTask
from automix.tasks.step_output import StepOutput

__all__ = ["RegMixup", "RegMixupTask", "create_task", "regmixup"]


def regmixup(
    x: Tensor,
    y: Tensor,
    alpha: float = 10.0,
    *,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    per_sample: bool = False,
    objects: Tensor | None = None,
    objects_rule: ObjectsRule = "absolute",
    objects_weight: float = 1.0,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Interpolate each image with its partner, about half and half (Pinto et al., 2022).

    The mixed half of RegMixup alone, which is Mixup with a large alpha; the task adds the clean half.

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)``.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        per_sample: Draw `lam` for every sample instead of once for the batch.
        objects: Where the object of each image is: masks ``(N, H, W)`` or boxes ``(N, 4)``. If given, the label follows
            the visible objects; see `label_by_objects`.
        objects_rule: "absolute" compares the visible areas, "relative" the visible shares of the objects.
        objects_weight: Weight of the objects in the label, in [0, 1]; the plain area has the rest.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    return mixup(
        x,
        y,
        alpha,
        lam=lam,
        index=index,
        pairing=pairing,
        per_sample=per_sample,
        objects=objects,
        objects_rule=objects_rule,
        objects_weight=objects_weight,
        generator=generator,
    )


def create_task(model: nn.Module, **options: Any) -> "RegMixupTask":
    """Build the training task, with the loss on the clean images.

    Args:
        model: The network to train.
        **options: Options of `regmixup` and of `MixTask`.

    Returns:
        The task.
    """
    return RegMixupTask(model, **options)


class RegMixupTask(MixTask):
    """Cross-entropy on the clean images plus that on the mixed ones, in one forward pass.

    The loss on clean images, which ``one_hot_loss=True`` adds to other methods in a pass of its own, is always part of
    this one. `StepOutput.logits` are those of the mixed images.

    Args:
        model: The network to train.
        **options: Options of `regmixup` and of `MixTask`.
    """

    def __init__(self, model: nn.Module, **options: Any) -> None:
        if options.get("one_hot_loss"):
            raise AutomixError(
                "one_hot_loss must be False for regmixup, whose loss on clean images is in the same pass"
            )
        super().__init__(model, regmixup, **options)

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        mixed = self.make_mixed(x, y, lam=None, index=None, generator=generator)
        of_clean, of_mixed = self.run_student(torch.cat([x, mixed.x])).chunk(2)
        losses = {
            "loss_mixed": self.loss(of_mixed, mixed.target),
            "loss_clean": self.loss(of_clean, MixedTarget.clean(y)),
        }
        return self.output(losses, of_mixed, mixed.target)


class RegMixup(MixTransform):
    """Interpolate each image with its partner, about half and half: the mixed half of RegMixup (Pinto et al., 2022).

    Call it as ``x_mixed, soft = mix(x, y)`` and add the loss on ``x`` and ``y``.

    Args:
        alpha: ``lam ~ Beta(alpha, alpha)``; 10 if not given.
        num_classes: Number of classes; not needed where labels are rows already.
        label_smoothing: Share of each label that is spread over all classes, in [0, 1).
        per_sample: Draw `lam` for every sample instead of once for the batch.
        prob: Probability that a batch is mixed at all, in [0, 1]; 1 if not given.
        generator: Source of randomness; torch's default generator if not given.
        pairing: "random", or "other-class" for partners of another class, as far as the batch permits.
        objects_rule: "absolute" or "relative", for objects that are passed in the call; "absolute" if not given.
        objects_weight: Weight of the objects in the label, in [0, 1]; 1 if not given.
    """

    function = regmixup
