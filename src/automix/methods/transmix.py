"""TransMix (Chen et al., 2022): CutMix whose label follows the attention of the transformer.

The images are CutMix's. Half of the label's lam is the area that x_i keeps, the other half the share of the class
token's attention, in the last block and averaged over the heads, that falls on the patches of x_i:

    lam := (mean(s) + sum(A * s') / sum(A)) / 2        s' the mask s at the patches (nearest)

For vision transformers with a class token, and for Swin: it averages its last map, as if by a class token with even
attention, so that A is the mean over all queries of the attention that a patch gets in its window of the last block. As
in the authors' training, a batch is mixed so with probability `switch`, else by Mixup. The student's own pass over the
mixed images gives A: there is no second pass, and no gradient through the label.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.draws import Pairing, draw_uniform
from automix.core.errors import AutomixError
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import check_shape
from automix.core.validation import check_alpha, check_range
from automix.methods.cutmix import cutmix
from automix.methods.mixup import mixup
from automix.networks.modes import eval_mode
from automix.networks.outputs import run_uncompiled
from automix.tasks.mix_task import MixTask
from automix.tasks.step_output import StepOutput

__all__ = ["create_task", "transmix"]


def transmix(
    x: Tensor,
    y: Tensor,
    alpha: float = 1.0,
    *,
    attention: Tensor | None = None,
    lam: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    center: Tensor | None = None,
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix as CutMix does, with a label that follows the attention on the mixed images (Chen et al., 2022).

    Attention is not known before a network has processed the mixed images: without it the label is CutMix's, and
    `attended` corrects it.

    Args:
        x: Images, ``(N, C, H, W)``, of a floating type or uint8; pixels are copied, never blended.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: ``lam ~ Beta(alpha, alpha)`` before clipping.
        attention: Attention on the MIXED images, ``(N, h, w)``.
        lam: Use this share of the first image instead of drawing one; a number or ``(N,)``.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        center: Pixel (row, column) of the box's center, ``(2,)`` or ``(N, 2)``; drawn if not given.
        per_sample: Draw `lam` and the box for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    options: dict[str, Any] = {"center": center, "per_sample": per_sample, "generator": generator}
    mixed = cutmix(x, y, alpha, lam=lam, index=index, pairing=pairing, **options)
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
def watch_attention(model: Any, x: Tensor) -> Iterator[list[Tensor]]:
    """Record the attention on the patches (N, h, w) in every pass of `model` over images like `x` in the context."""
    watch = watch_windows(model) if _is_swin(model) else watch_class_token(model, x)
    with watch as attentions:
        yield attentions


@contextmanager
def watch_windows(model: Any) -> Iterator[list[Tensor]]:
    """Record what attention each patch gets in Swin's last block, (N, h, w), in every pass of `model` in the context.

    That is the mean over the queries of its window, and over the heads.
    """
    attentions: list[Tensor] = []
    block: Any = model.layers[-1].blocks[-1]
    sizes: list[tuple[int, int]] = []

    def note_size(module: nn.Module, inputs: Any) -> None:
        sizes.append((inputs[0].shape[1], inputs[0].shape[2]))

    @torch.no_grad()
    def look(module: Any, inputs: Any, keywords: Any, output: Tensor) -> None:
        # What timm's module does with these numbers; it may have fused the same.
        heads = module.qkv(inputs[0]).unflatten(2, (3, module.num_heads, -1)).permute(2, 0, 3, 1, 4)
        scores = at_least_float32(heads[0] * module.scale) @ at_least_float32(heads[1]).transpose(2, 3)
        scores = scores + module._get_rel_pos_bias()
        if (mask := keywords.get("mask")) is not None:
            scores = (scores.unflatten(0, (-1, len(mask))) + mask.unsqueeze(1)).flatten(0, 1)
        gets = scores.softmax(dim=3).mean(dim=(1, 2))
        attentions.append(_join_windows(gets, block.window_size, block.shift_size, sizes[-1]))

    handles = [block.register_forward_pre_hook(note_size), block.attn.register_forward_hook(look, with_kwargs=True)]
    try:
        yield attentions
    finally:
        for handle in handles:
            handle.remove()


def _join_windows(values: Tensor, window: tuple[int, int], shift: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """Put the values of windows (N * windows, area) into maps (N, h, w), as Swin does after its attention."""
    rows, columns = (-(-length // side) for length, side in zip(size, window, strict=True))
    grid = values.reshape(-1, rows, columns, *window).transpose(2, 3).flatten(3, 4).flatten(1, 2)
    return grid[:, : size[0], : size[1]].roll(shift, dims=(1, 2))


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


def _is_swin(model: nn.Module) -> bool:
    from timm.models.swin_transformer import SwinTransformer  # here and not above: timm takes two seconds to import

    return isinstance(model, SwinTransformer)


def _check_model(model: Any) -> None:
    """Check that the model is Swin, or a timm transformer with a class token and plain attention in its last block."""
    if _is_swin(model):
        return
    has_token = getattr(model, "cls_token", None) is not None and getattr(model, "global_pool", None) == "token"
    if not has_token or not hasattr(model, "blocks") or not hasattr(model, "num_prefix_tokens"):
        raise AutomixError(
            f"transmix needs timm's swin_..., or its vit_... or deit_... with a class token (global_pool='token'), got "
            f"{type(model).__name__}"
        )
    from timm.models.vision_transformer import Attention  # here and not above: timm takes two seconds to import

    if type(getattr(model.blocks[-1], "attn", None)) is not Attention:
        raise AutomixError(
            f"transmix needs timm's plain attention in the last block (vit_... or deit_...), got {type(model).__name__}"
        )
    if not isinstance(getattr(model, "patch_drop", None), nn.Identity):
        raise AutomixError("transmix needs all patches; build the model with patch_drop_rate=0")


def create_task(model: nn.Module, *, switch: float = 0.8, mixup_alpha: float = 0.8, **options: Any) -> "TransMixTask":
    """Build the training task, for a timm transformer with a class token or Swin.

    Args:
        model: The network to train.
        switch: Probability of TransMix, in [0, 1]; other batches are mixed by Mixup.
        mixup_alpha: ``lam ~ Beta(alpha, alpha)`` of Mixup.
        **options: Options of `transmix` and of `MixTask`.

    Returns:
        The task.
    """
    _check_model(model)
    check_range("switch", switch, 0, 1)
    check_alpha(mixup_alpha, "mixup_alpha")
    return TransMixTask(model, switch, mixup_alpha, **options)


class TransMixTask(MixTask):
    """Labels follow the student's attention on the mixed images, but for batches that are mixed by Mixup."""

    def __init__(self, model: nn.Module, switch: float, mixup_alpha: float, **options: Any) -> None:
        super().__init__(model, transmix, **options)
        self.switch, self.mixup_alpha = switch, mixup_alpha

    def training_step(self, x: Tensor, y: Tensor, generator: torch.Generator) -> StepOutput:
        if self.switch < 1 and draw_uniform(torch.empty(0), (), generator) >= self.switch:
            shared = {name: self.options[name] for name in ("per_sample", "pairing") if name in self.options}
            plain = mixup(x, y, self.mixup_alpha, generator=generator, **shared)
            return self.student_step(x, y, self.run_student(plain.x), plain.target)
        mixed = self.mixer(x, y, generator=generator, **self.options)
        with watch_attention(self.student, mixed.x) as attentions:
            logits = self.run_student(mixed.x, hooked=True)
        return self.student_step(x, y, logits, attended(mixed, attentions[0]).target)

    def make_mixed(
        self, x: Tensor, y: Tensor, *, lam: float | Tensor | None, index: Tensor | None, generator: torch.Generator
    ) -> Mixed:
        mixed = self.mixer(x, y, lam=lam, index=index, generator=generator, **self.options)
        with torch.no_grad(), eval_mode(self.classifier), watch_attention(self.classifier, x) as attentions:
            run_uncompiled(self.classifier, mixed.x)
        return attended(mixed, attentions[0])
