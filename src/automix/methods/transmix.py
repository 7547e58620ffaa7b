"""TransMix (Chen et al., CVPR 2022): CutMix whose label also says where the transformer looked.

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
from automix.core.target import Mixed, MixedTarget
from automix.methods.cutmix import cutmix
from automix.networks.modes import eval_mode
from automix.tasks.mix_task import MixTask
from automix.tasks.task import StepOutput


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
    """Mix images `x` and labels `y` as CutMix does; the label follows the `attention` (N, h, w) on the MIXED images.

    It is not known before a network has seen them: without it the label is CutMix's, and `attended` corrects it.
    """
    mixed = cutmix(x, y, alpha, lam=lam, index=index, center=center, per_sample=per_sample, generator=generator)
    return mixed if attention is None else attended(mixed, attention)


def attended(mixed: Mixed, attention: Tensor) -> Mixed:
    """`mixed` with half of its lam replaced by the share of the `attention` (N, h, w) that x_i draws."""
    if attention.ndim != 3 or len(attention) != len(mixed.x):
        raise ValueError(f"attention has shape {tuple(attention.shape)}: accepted is ({len(mixed.x)}, h, w)")
    attention = at_least_float32(attention)
    mask = F.interpolate(mixed.mask.to(attention.dtype), size=attention.shape[-2:], mode="nearest").squeeze(1)
    share = (attention * mask).sum(dim=(1, 2)) / attention.sum(dim=(1, 2))
    target = MixedTarget(mixed.target.y_a, mixed.target.y_b, (mixed.target.lam + share.to(mixed.target.lam)) / 2)
    return Mixed(mixed.x, target, mixed.mask)


@contextmanager
def watch_class_token(model: Any, x: Tensor) -> Iterator[list[Tensor]]:
    """Inside, every pass of `model` over images like `x` leaves the class token's attention (N, h, w) in the list."""
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
    """A timm transformer that is read out by its class token, and whose last block attends in the plain way."""
    has_token = getattr(model, "cls_token", None) is not None and getattr(model, "global_pool", None) == "token"
    if not has_token or not hasattr(model, "blocks") or not hasattr(model, "num_prefix_tokens"):
        raise ValueError(
            f"{type(model).__name__} is not read out by a class token: accepted are timm's vision transformers that "
            "are, vit_... and deit_... with global_pool='token'"
        )
    from timm.models.vision_transformer import Attention  # here and not above: timm takes two seconds to import

    if type(getattr(model.blocks[-1], "attn", None)) is not Attention:
        raise ValueError(
            f"the last block of {type(model).__name__} is not timm's plain attention: accepted are vit_... and deit_..."
        )
    if not isinstance(getattr(model, "patch_drop", None), nn.Identity):
        raise ValueError("the model drops patches: accepted is patch_drop_rate=0")


def create_task(model: nn.Module, **options: Any) -> "TransMixTask":
    """The task, for a timm transformer with a class token."""
    _check_model(model)
    return TransMixTask(model, transmix, **options)


class TransMixTask(MixTask):
    """Labels follow the student's attention while it sees the mixed images."""

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
