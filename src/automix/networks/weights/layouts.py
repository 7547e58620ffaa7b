"""The names of other libraries turned into timm's: torchvision's and those of Hugging Face transformers.

Each layout is a mark, which a name of the file matches, and rules that are applied to every name one after the other.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Rule = tuple[str, str | Callable[[re.Match[str]], str]]


class _Layout(NamedTuple):
    mark: str
    rules: tuple[Rule, ...]


def _next(prefix: str, suffix: str) -> Callable[[re.Match[str]], str]:
    """Count one up: timm counts the stages of a ResNet from 1, and has Swin's downsampling in the next stage."""
    return lambda match: f"{prefix}{int(match[1]) + 1}{suffix}"


def _stage(blocks: str, downsample: str) -> Callable[[re.Match[str]], str]:
    """torchvision's features: 0 is the stem, odd numbers are stages, even ones what lies between two stages."""

    def rename(match: re.Match[str]) -> str:
        number = int(match[1])
        return blocks.format(number // 2) if number % 2 else downsample.format(number // 2)

    return rename


_TRANSFORMER_BLOCK: tuple[Rule, ...] = (
    (r"layernorm_before", "norm1"),
    (r"layernorm_after", "norm2"),
    (r"attention\.(?:attention|self)\.", "attn."),
    (r"attention\.output\.dense", "attn.proj"),
    (r"intermediate\.dense", "mlp.fc1"),
    (r"(?<=\d\.)output\.dense", "mlp.fc2"),
    (r"embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
    (r"^layernorm", "norm"),
)

_LAYOUTS = {
    "transformers: ViT, DeiT": _Layout(
        r"embeddings\.cls_token$",
        (
            (r"^(?:vit|deit)\.", ""),
            *_TRANSFORMER_BLOCK,
            (r"^embeddings\.cls_token", "cls_token"),
            (r"^embeddings\.distillation_token", "dist_token"),
            (r"^embeddings\.position_embeddings", "pos_embed"),
            (r"^encoder\.layer\.", "blocks."),
            (r"^(?:cls_)?classifier", "head"),
            (r"^distillation_classifier", "head_dist"),
        ),
    ),
    "transformers: Swin": _Layout(
        r"^(?:swin\.)?encoder\.layers\.0\.blocks\.0\.layernorm_before",
        (
            (r"^swin\.", ""),
            *_TRANSFORMER_BLOCK,
            (r"^embeddings\.norm", "patch_embed.norm"),
            (r"^encoder\.", ""),
            (r"^layers\.(\d+)\.downsample", _next("layers.", ".downsample")),
            (r"^classifier", "head.fc"),
        ),
    ),
    "transformers: ResNet": _Layout(
        r"embedder\.embedder\.convolution",
        (
            (r"^resnet\.", ""),
            (r"^embedder\.embedder\.convolution", "conv1"),
            (r"^embedder\.embedder\.normalization", "bn1"),
            (r"^encoder\.stages\.(\d+)\.layers", _next("layer", "")),
            (r"shortcut\.convolution", "downsample.0"),
            (r"shortcut\.normalization", "downsample.1"),
            (r"layer\.(\d+)\.convolution", _next("conv", "")),
            (r"layer\.(\d+)\.normalization", _next("bn", "")),
            (r"^classifier\.1", "fc"),
        ),
    ),
    "transformers: ConvNeXt": _Layout(
        r"embeddings\.patch_embeddings\.weight$",
        (
            (r"^convnext\.", ""),
            (r"^embeddings\.patch_embeddings", "stem.0"),
            (r"^embeddings\.layernorm", "stem.1"),
            (r"^layernorm", "head.norm"),
            (r"^encoder\.stages\.(\d+)\.downsampling_layer", r"stages.\1.downsample"),
            (r"^encoder\.stages\.(\d+)\.layers", r"stages.\1.blocks"),
            (r"layer_scale_parameter", "gamma"),
            (r"dwconv", "conv_dw"),
            (r"pwconv", "mlp.fc"),
            (r"layernorm", "norm"),
            (r"^classifier", "head.fc"),
        ),
    ),
    "torchvision: ViT": _Layout(
        r"^encoder\.pos_embedding$",
        (
            (r"^class_token", "cls_token"),
            (r"^conv_proj", "patch_embed.proj"),
            (r"^encoder\.pos_embedding", "pos_embed"),
            (r"^encoder\.layers\.encoder_layer_", "blocks."),
            (r"^encoder\.ln", "norm"),
            (r"ln_([12])\.", r"norm\1."),
            (r"self_attention\.in_proj_", "attn.qkv."),
            (r"self_attention\.out_proj", "attn.proj"),
            (r"mlp\.(?:0|linear_1)\.", "mlp.fc1."),
            (r"mlp\.(?:3|linear_2)\.", "mlp.fc2."),
            (r"^heads\.head", "head"),
        ),
    ),
    "torchvision: Swin": _Layout(
        r"^features\.1\.0\.attn\.relative_position_bias_table$",
        (
            (r"^features\.0\.0", "patch_embed.proj"),
            (r"^features\.0\.2", "patch_embed.norm"),
            (r"^features\.(\d+)", _stage("layers.{}.blocks", "layers.{}.downsample")),
            (r"mlp\.0", "mlp.fc1"),
            (r"mlp\.3", "mlp.fc2"),
            (r"^head", "head.fc"),
        ),
    ),
    "torchvision: ConvNeXt": _Layout(
        r"^features\.1\.0\.layer_scale$",
        (
            (r"^features\.0", "stem"),
            (r"^features\.(\d+)", _stage("stages.{}.blocks", "stages.{}.downsample")),
            (r"layer_scale", "gamma"),
            (r"block\.0", "conv_dw"),
            (r"block\.2", "norm"),
            (r"block\.3", "mlp.fc1"),
            (r"block\.5", "mlp.fc2"),
            (r"^classifier\.0", "head.norm"),
            (r"^classifier\.2", "head.fc"),
        ),
    ),
}


def timm_names(tensors: dict[str, Tensor]) -> dict[str, Tensor] | None:
    """Give tensors timm's names, and join queries, keys and values that are apart.

    Args:
        tensors: The tensors of a file by name.

    Returns:
        The tensors by timm's names; None if the layout is not known.
    """
    for mark, rules in _LAYOUTS.values():
        if any(re.search(mark, name) for name in tensors):
            return _fuse({_rename(name, rules): tensor for name, tensor in tensors.items()})
    return None


def _rename(name: str, rules: tuple[Rule, ...]) -> str:
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


def _fuse(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    joined = {}
    for name, tensor in tensors.items():
        if ".attn.query." in name and tensor.ndim:
            parts = [tensors.get(name.replace(".query.", f".{part}.")) for part in ("query", "key", "value")]
            whole = [part for part in parts if part is not None and part.shape[1:] == tensor.shape[1:]]
            if len(whole) == 3:
                joined[name.replace(".query.", ".qkv.")] = torch.cat(whole)
        elif ".attn.key." not in name and ".attn.value." not in name:
            joined[name] = tensor
    return joined
