"""TransMix (Chen et al., 2022): CutMix whose label follows the attention of the transformer.

The images are CutMix's. Half of the label's lam is the area that x_i keeps, the other half the share of the class
token's attention, in the last block and averaged over the heads, that falls on the patches of x_i:

    lam := (mean(s) + sum(A * s') / sum(A)) / 2        s' the mask s at the patches (nearest)

For vision transformers with a class token. The student's own pass over the mixed images gives A: there is no second
pass, and no gradient through the label.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_shape
from automix.methods.cutmix import cutmix
from automix.networks.modes import eval_mode
from automix.tasks.mix_task import MixTask
from automix.tasks.task import StepOutput

__all__ = ["create_task", "transmix"]


def transmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    attention: Tensor | None = None,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    center: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix as CutMix does, with a label that follows the attention on the mixed images (Chen et al., 2022).

    Attention is not known before a network has processed the mixed images: without it the label is CutMix's, and
    `attended` corrects it.

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)`` before clipping.
        attention: Attention on the MIXED images, ``(N, h, w)``.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        center: Pixel (row, column) of the box's center, ``(2,)`` or ``(N, 2)``; drawn if not given.
        per_sample: Draw `lam` and the box for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    mixed = cutmix(x, y, alpha, lam=lam, index=index, center=center, per_sample=per_sample, generator=generator)
    return mixed if attention is None else attended(mixed, attention)


def attended(mixed: Mixed, attention: Tensor) -> Mixed:
    """Replace half of the label's lam by the share of the attention on the first image.

    Args:
        mixed: A mixed batch.
        attention: Attention on its images, ``(N, h, w)``.

    Returns:
        The batch with its new label.
    """
    check_shape("attention", attention, (len(mixed.x), "h", "w"))
    attention = at_least_float32(attention)
    mask = F.interpolate(mixed.mask.to(attention.dtype), size=attention.shape[-2:], mode="nearest").squeeze(1)
    share = (attention * mask).sum(dim=(1, 2)) / attention.sum(dim=(1, 2))
    target = MixedTarget(mixed.target.y_a, mixed.target.y_b, (mixed.target.lam + share.to(mixed.target.lam)) / 2)
    return Mixed(mixed.x, target, mixed.mask, mixed.index)


@contextmanager
def watch_class_token(model: Any, x: Tensor) -> Iterator[list[Tensor]]:
    """Record the class token's attention (N, h, w) in every pass of `model` over images like `x` inside the context."""
    attentions: list[Tensor] = []
    attention: Any = model.blocks[-1].attn

    @torch.no_grad()
    def look(module: nn.Module, inputs: Any, output: Tensor) -> None:
        # What timm's module does with these numbers, for the class token alone; it may have fused the same.
        heads = output.detach().unflatten(2, (3, attention.num_heads, -1)).permute(2, 0, 3, 1, 4)
        query, key = attention.q_norm(heads[0][:, :, :1]), attention.k_norm(heads[1])
        weights = (at_least_float32(query * attention.scale) @ at_least_float32(key).transpose(2, 3)).softmax(dim=3)
        patches = weights.mean(dim=1)[:, 0, model.num_prefix_tokens :]
        attentions.append(patches.unflatten(1, model.patch_embed.dynamic_feat_size(x.shape[-2:])))

    handle = attention.qkv.register_forward_hook(look)
    try:
        yield attentions
    finally:
        handle.remove()


def _check_model(model: Any) -> None:
    """Check that the model is a timm transformer with a class token, and that its last block has plain attention."""
    has_token = getattr(model, "cls_token", None) is not None and getattr(model, "global_pool", None) == "token"
    if not has_token or not hasattr(model, "blocks") or not hasattr(model, "num_prefix_tokens"):
        raise AutomixError(
            f"transmix needs a vision transformer of timm's with a class token (vit_... or deit_... with "
            f"global_pool='token'), got {type(model).__name__}"
        )
    from timm.models.vision_transformer import Attention  # here and not above: timm takes two seconds to import

    if type(getattr(model.blocks[-1], "attn", None)) is not Attention:
        raise AutomixError(
            f"transmix needs timm's plain attention in the last block (vit_... or deit_...), got {type(model).__name__}"
        )
    if not isinstance(getattr(model, "patch_drop", None), nn.Identity):
        raise AutomixError("transmix needs all patches; build the model with patch_drop_rate=0")


def create_task(model: nn.Module, **options: Any) -> "TransMixTask":
    """Build the training task, for a timm transformer with a class token.

    Args:
        model: The network to train.
        **options: Options of `transmix` and of `MixTask`.

    Returns:
        The task.
    """
    _check_model(model)
    return TransMixTask(model, transmix, **options)


class TransMixTask(MixTask):
    """Labels follow the student's attention on the mixed images."""

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        mixed = self.mixer(x, y, generator=generator, **self.options)

        def run_mixed() -> tuple[Tensor, MixedTarget]:
            with watch_class_token(self.student, mixed.x) as attentions:
                logits = self.run_student(mixed.x)
            return logits, attended(mixed, attentions[0]).target

        return self.student_step(x, y, run_mixed)

    def make_mixed(
        self, x: Tensor, y: Tensor, *, lam: float | Tensor | None, index: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        mixed = self.mixer(x, y, lam=lam, index=index, generator=generator, **self.options)
        with torch.no_grad(), eval_mode(self.classifier), watch_class_token(self.classifier, x) as attentions:
            self.classifier(mixed.x)
        return attended(mixed, attentions[0])
