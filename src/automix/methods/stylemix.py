"""StyleMix (Hong et al., 2021): content and style of two images are mixed separately.

An encoder E gives features f_i, f_j; AdaIN gives the content of one the style of the other, f_ij. With the shares r_c =
`lam` of the content and r_s of the style, both ~ Beta(alpha, alpha), a decoder D makes the image

    x_mix = D(t f_i + (1 - r_c - r_s + t) f_j + (r_c - t) f_ij + (r_s - t) f_ji)
    y_mix = lam' * y_i + (1 - lam') * y_j,    lam' = r * r_c + (1 - r) * r_s

with t uniform where all four weights are in [0, 1], and r = 0.7: content says more about the class than style does.
Whatever t is, the contents have the shares r_c, 1 - r_c and the styles r_s, 1 - r_s. For networks that should not rely
on texture. ``cut=True`` is StyleCutMix, the same paper's other form: the contents lie side by side as in CutMix, with
s = 0 in a box of x_j's content and r_c := mean(s),

    x_mix = s * (r_s x_i + (1 - r_s) D(f_ij)) + (1 - s) * ((1 - r_s) x_j + r_s D(f_ji))

It is expensive: each batch goes, at 224 px, through VGG-19 up to relu4_1 and a decoder of the same size, with `cut`
twice through the decoder. Both must be trained already and are given as files (`weights`) or as modules; nothing is
downloaded.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from automix.core.blend import as_map, full_mask
from automix.core.draws import Pairing, draw_index, draw_lam, draw_uniform
from automix.core.errors import AutomixError, one_line
from automix.core.target import Mixed, MixedTarget
from automix.core.tensor_checks import as_lam, check_batch
from automix.core.transform import MixTransform
from automix.core.validation import check_range, check_whole
from automix.methods._shared.pixels import pixel_range
from automix.methods.cutmix import box_mask
from automix.tasks.mix_task import MixTask

__all__ = ["StyleMix", "create_task", "stylemix"]

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's: torchvision's VGG-19 was trained with them
FILES = ("encoder.safetensors", "decoder.safetensors")


def stylemix(
    x: Tensor,
    y: Tensor,
    alpha: float = 0.5,
    *,
    encoder: nn.Module,
    decoder: nn.Module,
    r: float = 0.7,
    cut: bool = False,
    size: int = 224,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    lam: float | Tensor | None = None,
    style_lam: float | Tensor | None = None,
    t: float | Tensor | None = None,
    index: Tensor | None = None,
    pairing: Pairing = "random",
    per_sample: bool = False,
    generator: torch.Generator | None = None,
) -> Mixed:
    """Mix content and style of each image and its partner separately (Hong et al., 2021).

    Where both shares are 1, `x` is given back as it is: the two networks would reproduce it only nearly. The mask is
    constant, the label's lam; with `cut` it is the share of the first image's content.

    Args:
        x: Images, ``(N, C, H, W)``.
        y: Class indices ``(N,)``, or rows ``(N, num_classes)`` (float: soft, bool/int: multi-label).
        alpha: Shares of content and style ``~ Beta(alpha, alpha)``.
        encoder: Network from pixels in [0, 1] to features ``(N, C, h, w)``.
        decoder: Network from features back to pixels.
        r: Weight of the content in the label, in [0, 1]; the style has ``1 - r``.
        cut: Paste a box of the partner's content instead of mixing all of it (StyleCutMix).
        size: Images smaller than this many pixels are enlarged for the networks, >= 16.
        mean: Mean that normalized `x`, one number per channel; without `mean` and `std` the range of the batch stands
            for black and white.
        std: Standard deviation that normalized `x`, one number per channel, > 0.
        lam: Share of the first image's content, a number or ``(N,)``; drawn if not given.
        style_lam: Share of the first image's style, a number or ``(N,)``; drawn if not given.
        t: Position of t between its bounds, in [0, 1]; a number or ``(N,)``, drawn if not given. Has no effect with
            `cut`.
        index: Partners, a permutation of ``range(N)``; drawn if not given.
        pairing: "random" draws any partners, "other-class" those of another class, as far as the batch permits.
        per_sample: Draw the shares for every sample instead of once for the batch.
        generator: Source of randomness; torch's default generator if not given.

    Returns:
        The mixed images, their target and the mask that was applied.
    """
    check_batch(x, y)
    check_range("r", r, 0, 1)
    check_whole("size", size, 16)
    content = draw_lam(x, alpha, lam=lam, per_sample=per_sample, generator=generator)
    style = draw_lam(x, alpha, lam=style_lam, per_sample=per_sample, generator=generator)
    index = draw_index(x, index=index, y=y, pairing=pairing, generator=generator)
    shape = torch.broadcast_shapes(content.shape, style.shape)
    place = draw_uniform(x, shape, generator) if t is None else as_lam(t, len(x)).to(x.device)
    if cut:
        center = draw_uniform(x, (*content.shape, 2), generator) * x.new_tensor(x.shape[-2:], dtype=torch.float32)
        box = box_mask(center.long(), (1 - content).sqrt(), (x.shape[-2], x.shape[-1])).to(content.dtype)
        content = box.mean(dim=(1, 2, 3)).reshape(content.shape)
    label_lam = torch.lerp(style, content, r)  # r * content + (1 - r) * style, never beyond 1
    scale = pixel_range(x, mean, std)
    with torch.no_grad():
        pixels = scale.to_pixels(x)
        features = encoder(_enlarge(pixels, size).to(_type_of(encoder, pixels)))

        def decode(mixed: Tensor) -> Tensor:
            decoded = decoder(mixed).to(pixels.dtype)
            return F.interpolate(decoded, x.shape[-2:], mode="bilinear", align_corners=False, antialias=True)

        if cut:
            own, foreign = (decode(adain(*pair)) for pair in ((features, features[index]), (features[index], features)))
            small = box * torch.lerp(own, pixels, as_map(style)) + (1 - box) * torch.lerp(
                pixels[index], foreign, as_map(style)
            )
        else:
            small = decode(mix_features(features, features[index], content, style, place))
    untouched = as_map((content == 1) & (style == 1))
    mixed = torch.where(untouched, x, scale.from_pixels(small.clamp(0, 1), like=x))
    mask = box if cut else as_map(label_lam)
    return Mixed(mixed, MixedTarget(y, y[index], label_lam), full_mask(mask, x))


def mix_features(f_i: Tensor, f_j: Tensor, content: Tensor, style: Tensor, place: Tensor) -> Tensor:
    """Sum the four combinations of content and style, weighted so that each has its share.

    Args:
        f_i: Features of the first images, ``(N, C, h, w)``.
        f_j: Features of their partners.
        content: Share of the first images' content, a number or ``(N,)``.
        style: Share of the first images' style, a number or ``(N,)``.
        place: Position of t between its bounds, in [0, 1].

    Returns:
        Mixed features, ``(N, C, h, w)``.
    """
    low, high = (content + style - 1).clamp(min=0), torch.minimum(content, style)
    t = torch.lerp(low, high, place.to(low.dtype))
    weights = (t, 1 - content - style + t, content - t, style - t)
    parts = (f_i, f_j, adain(f_i, f_j), adain(f_j, f_i))
    return torch.stack([as_map(w).to(part.dtype) * part for w, part in zip(weights, parts, strict=True)]).sum(dim=0)


def adain(content: Tensor, style: Tensor, epsilon: float = 1e-5) -> Tensor:
    """Give each channel of `content` the mean and standard deviation of `style` (Huang and Belongie, 2017).

    Args:
        content: Features to change, ``(N, C, h, w)``.
        style: Features whose statistics they take.
        epsilon: Added to the variances.

    Returns:
        Features, ``(N, C, h, w)``.
    """

    def statistics(z: Tensor) -> tuple[Tensor, Tensor]:
        variance, mean = torch.var_mean(z, dim=(2, 3), correction=0, keepdim=True)
        return mean, (variance + epsilon).sqrt()

    (mean, deviation), (new_mean, new_deviation) = statistics(content), statistics(style)
    return (content - mean) / deviation * new_deviation + new_mean


def _enlarge(pixels: Tensor, size: int) -> Tensor:
    """Enlarge the shorter side to `size` at least, and both to a multiple of 8, which halving three times needs."""
    factor = max(1.0, size / min(pixels.shape[-2:]))
    height, width = (8 * max(2, round(side * factor / 8)) for side in pixels.shape[-2:])
    if (height, width) == tuple(pixels.shape[-2:]):
        return pixels
    return F.interpolate(pixels, (height, width), mode="bilinear", align_corners=False)


def _type_of(network: nn.Module, otherwise: Tensor) -> torch.dtype:
    return next(network.parameters(), otherwise).dtype


# --- the networks ----------------------------------------------------------------------------------------------------


def vgg_encoder() -> nn.Sequential:
    """Build VGG-19 up to relu4_1 as AdaIN has it: reflected borders, colors normalized by a 1 x 1 convolution.

    Returns:
        The network, untrained.
    """
    layers: list[nn.Module] = [nn.Conv2d(3, 3, 1)]
    channels = 3
    for width in (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512):
        layers += [nn.MaxPool2d(2, ceil_mode=True)] if width == 0 else _convolution(channels, width)
        channels = width or channels
    return nn.Sequential(*layers)


def vgg_decoder() -> nn.Sequential:
    """Build the mirror image of the encoder: upsampling for pooling, no ReLU at the end.

    Returns:
        The network, untrained.
    """
    layers: list[nn.Module] = []
    channels = 512
    for width in (256, 0, 256, 256, 256, 128, 0, 128, 64, 0, 64, 3):
        layers += [nn.Upsample(scale_factor=2, mode="nearest")] if width == 0 else _convolution(channels, width)
        channels = width or channels
    return nn.Sequential(*layers[:-1])


def _convolution(channels: int, width: int) -> list[nn.Module]:
    return [nn.ReflectionPad2d(1), nn.Conv2d(channels, width, 3), nn.ReLU()]


def load_networks(folder: str | Path) -> tuple[nn.Module, nn.Module]:
    """Load encoder and decoder from ``encoder.safetensors`` and ``decoder.safetensors``.

    The encoder's file may be AdaIN's (vgg_normalised) or torchvision's VGG-19; layers after relu4_1 are ignored.

    Args:
        folder: Folder of the two files.

    Returns:
        The encoder and the decoder.
    """
    paths = [Path(folder) / name for name in FILES]
    read = [_read_convolutions(path) for path in paths]
    if read[0] and read[0][0][0].shape[-1] == 3:  # torchvision's: colors are normalized before the network
        read[0].insert(0, _normalizing_convolution())
    with torch.device("meta"):  # no memory, no random numbers: the tensors of the files take the places
        encoder, decoder = vgg_encoder(), vgg_decoder()
    for network, convolutions, path in zip((encoder, decoder), read, paths, strict=True):
        _fill(network, convolutions, path)
    return encoder, decoder


def _read_convolutions(path: Path) -> list[tuple[Tensor, Tensor]]:
    """Weight and bias of every numbered layer of the file, in order: ``0.weight`` or ``features.0.weight``."""
    try:
        tensors = load_file(path)
    except (SafetensorError, OSError) as error:
        raise AutomixError(f"{path}: cannot be read as safetensors ({one_line(error)})") from None
    found = (re.fullmatch(r"((?:features\.)?(\d+))\.weight", name) for name in tensors)
    layers = sorted((int(match[2]), match[1]) for match in found if match)
    return [(tensors[f"{name}.weight"], tensors[f"{name}.bias"]) for _, name in layers if f"{name}.bias" in tensors]


def _normalizing_convolution() -> tuple[Tensor, Tensor]:
    mean, std = torch.tensor(MEAN, device="cpu"), torch.tensor(STD, device="cpu")
    return torch.diag(1 / std).view(3, 3, 1, 1), -mean / std


def _fill(network: nn.Sequential, convolutions: list[tuple[Tensor, Tensor]], path: Path) -> None:
    places = [layer for layer in network if isinstance(layer, nn.Conv2d)]
    shapes = [tuple(weight.shape) for weight, _ in convolutions[: len(places)]]
    if shapes != [tuple(place.weight.shape) for place in places]:
        raise AutomixError(
            f"{path}: its convolutions must be those of VGG-19 or, for the decoder, of its mirror image from relu4_1; "
            f"got {shapes[:3]}, ..."
        )
    for place, (weight, bias) in zip(places, convolutions, strict=False):
        place.weight, place.bias = (nn.Parameter(tensor.float(), requires_grad=False) for tensor in (weight, bias))
    network.eval()


def find_networks(
    weights: str | Path | None, encoder: nn.Module | None, decoder: nn.Module | None
) -> tuple[nn.Module, nn.Module]:
    """Return the modules if they are given, else those in the folder `weights`."""
    if encoder is not None and decoder is not None and weights is None:
        return encoder, decoder
    if weights is None or encoder is not None or decoder is not None:
        raise AutomixError(
            f"stylemix needs a trained VGG-19 encoder and its decoder, and downloads nothing; pass weights=DIR with "
            f"{FILES[0]} and {FILES[1]}, or both modules as encoder= and decoder="
        )
    return load_networks(weights)


def create_task(
    model: nn.Module,
    *,
    weights: str | Path | None = None,
    encoder: nn.Module | None = None,
    decoder: nn.Module | None = None,
    **options: Any,
) -> MixTask:
    """Build the training task. The two networks are not part of its state.

    Args:
        model: The network to train.
        weights: Folder with ``encoder.safetensors`` and ``decoder.safetensors``.
        encoder: The encoder as a module, instead of `weights`.
        decoder: The decoder as a module, instead of `weights`.
        **options: Options of `stylemix` and of `MixTask`.

    Returns:
        The task.
    """
    networks = find_networks(weights, encoder, decoder)

    def look(task: MixTask, x: Tensor, y: Tensor) -> dict[str, Any]:
        encoder, decoder = (network.to(x.device) for network in networks)
        return {"encoder": encoder, "decoder": decoder}

    return MixTask(model, stylemix, look=look, **options)


class StyleMix(MixTransform):
    """Mix content and style of each image and its partner separately (Hong et al., 2021).

    Call it as ``x, soft = mix(x, y)``.

    Args:
        weights: Folder with ``encoder.safetensors`` and ``decoder.safetensors``.
        encoder: The encoder as a module, instead of `weights`.
        decoder: The decoder as a module, instead of `weights`.
        **options: `alpha`, `pairing`, `r`, `cut`, `size`, `mean` and `std` of `stylemix`, and `num_classes`,
            `label_smoothing`, `per_sample`, `prob` and `generator`, as of every `MixTransform`.
    """

    function = stylemix
    takes_video = False

    def __init__(
        self,
        *,
        weights: str | Path | None = None,
        encoder: nn.Module | None = None,
        decoder: nn.Module | None = None,
        **options: Any,
    ) -> None:
        encoder, decoder = find_networks(weights, encoder, decoder)
        super().__init__(encoder=encoder, decoder=decoder, **options)
        self.encoder, self.decoder = encoder, decoder  # so that `to` takes them along
