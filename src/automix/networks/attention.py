"""The attention that a vision transformer pays to the patches of an image, read while it runs.

Of transformers with a class token, A is that token's attention in the last block, averaged over the heads. Swin has no
class token: it averages its last map, as if by a class token with even attention, so that A is the mean over all
queries of the attention that a patch gets in its window of the last block.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError


@contextmanager
def watch_attention(model: Any, x: Tensor) -> Iterator[list[Tensor]]:
    """Record the attention on the patches in every pass of a network inside the context.

    Args:
        model: A network that `check_attention` takes.
        x: Images, ``(N, C, H, W)``, like those that are passed to it.

    Yields:
        A list that each pass adds its attention to, ``(N, h, w)``, without a graph.
    """
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


def check_attention(model: Any) -> None:
    """Raise an error unless `watch_attention` can read the attention of a network.

    Args:
        model: timm's Swin, or a transformer of timm with a class token and plain attention in its last block.
    """
    if _is_swin(model):
        return
    has_token = getattr(model, "cls_token", None) is not None and getattr(model, "global_pool", None) == "token"
    if not has_token or not hasattr(model, "blocks") or not hasattr(model, "num_prefix_tokens"):
        raise AutomixError(
            "labels by attention need timm's swin_..., or its vit_... or deit_... with a class token "
            f"(global_pool='token'), got {type(model).__name__}"
        )
    from timm.models.vision_transformer import Attention  # here and not above: timm takes two seconds to import

    if type(getattr(model.blocks[-1], "attn", None)) is not Attention:
        raise AutomixError(
            "labels by attention need timm's plain attention in the last block (vit_... or deit_...), got "
            f"{type(model).__name__}"
        )
    if not isinstance(getattr(model, "patch_drop", None), nn.Identity):
        raise AutomixError("labels by attention need all patches; build the model with patch_drop_rate=0")
