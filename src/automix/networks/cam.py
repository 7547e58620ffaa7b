"""Class activation maps (CAM, Zhou et al., 2016) of networks that end in global average pooling and one linear layer.

With the last feature map A (C channels) and the linear layer's weights w_c and bias b_c,

    CAM_c(i, j) = sum over k of w_ck A_k(i, j)          mean over (i, j) of CAM_c + b_c = logit_c, exactly

It may be negative; nothing is cut off. A LayerNorm between pooling and linear layer (ConvNeXt) divides all positions
by one number per image, the deviation of the POOLED vector. The rest of it is linear, so the same norm with that
deviation is applied to the map at every position first, and the equation above still holds exactly. (The gradient of
the deviation is left out, which Grad-CAM has: there the two differ.)

The architecture is not guessed from names: hooks record a forward pass, and the linear layer's input must equal the
mean of a feature map. timm's and torchvision's convolutional networks, Swin, the wide ResNets and most hand-written
ones qualify; class tokens, max-pooling, hidden layers in the head and maps of one position do not. Once that is known
(`CamReader`), a map costs one forward pass with one hook.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from automix.core.blend import at_least_float32
from automix.core.errors import AutomixError
from automix.networks.outputs import logits_of, run_uncompiled

TOLERANCE = 1e-3  # between two means of the same numbers, summed in another order, relative to the largest
TOLERANCE_IN_HALF = 3e-2  # the same in bfloat16 and float16


class NoCamError(AutomixError):
    """The network does not end in global average pooling and one linear layer."""


@dataclass(frozen=True)
class CamReader:
    """Where a network has the feature map and the weights that its class activation maps are made of.

    It fits every network of the same structure. Networks run in the mode that they are in.

    Attributes:
        layer: Name of the submodule that gives the map.
        by_features: The map is the value of the submodule's ``forward_features``, not its output.
        channels_last: The map is ``(N, h, w, C)``.
        norm: Name of a LayerNorm behind the pooling; None without one.
        linear: Name of the last linear layer, or of the 1x1 convolution in its place.
    """

    layer: str
    by_features: bool
    channels_last: bool
    norm: str | None
    linear: str

    def read_maps(self, network: nn.Module, x: Tensor) -> Tensor:
        """Run a network and read its last feature map, normed where there is a norm behind the pooling.

        Args:
            network: The network.
            x: Images as the network takes them, ``(N, C, H, W)``.

        Returns:
            The map, ``(N, C, h, w)``, in float32 at least.
        """
        layer: Any = network.get_submodule(self.layer)
        if self.by_features:
            maps = layer.forward_features(_input_of(network, layer, x))
        else:
            outputs: list[Tensor] = []
            handle = layer.register_forward_hook(lambda module, inputs, output: outputs.append(output))
            try:
                run_uncompiled(network, x)
            finally:
                handle.remove()
            maps = outputs[-1]
        maps = at_least_float32(maps.permute(0, 3, 1, 2) if self.channels_last else maps)
        if self.norm is None:
            return maps
        norm: Any = network.get_submodule(self.norm)
        return _norm_everywhere(norm, maps, maps.mean(dim=(2, 3)))

    def run(self, network: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """Run a network and keep its last feature map, with the graph of both.

        Args:
            network: The network.
            x: Images as the network takes them, ``(N, C, H, W)``.

        Returns:
            The map as the pooling gets it, ``(N, C, h, w)``, and the logits.
        """
        layer: Any = network.get_submodule(self.layer)
        outputs: list[Tensor] = []
        if self.by_features:
            original = layer.forward_features

            def keep(*args: Any, **options: Any) -> Any:
                outputs.append(original(*args, **options))
                return outputs[-1]

            layer.forward_features = keep
            try:
                logits = run_uncompiled(network, x)
            finally:
                del layer.forward_features  # the class has its own
        else:
            handle = layer.register_forward_hook(lambda module, inputs, output: outputs.append(output))
            try:
                logits = run_uncompiled(network, x)
            finally:
                handle.remove()
        maps = outputs[-1]
        return (maps.permute(0, 3, 1, 2) if self.channels_last else maps), logits

    def classify(self, network: nn.Module, pooled: Tensor) -> Tensor:
        """Run the end of a network: the norm behind the pooling, if there is one, and the linear layer.

        Args:
            network: The network.
            pooled: Pooled features, ``(N, C)``.

        Returns:
            Logits, ``(N, num_classes)``.
        """
        linear: Any = network.get_submodule(self.linear)
        if self.norm is not None:
            norm: Any = network.get_submodule(self.norm)  # of vectors, or of maps (N, C, 1, 1)
            pooled = F.layer_norm(pooled, norm.normalized_shape, norm.weight, norm.bias, norm.eps)
        return linear(pooled) if isinstance(linear, nn.Linear) else linear(pooled[:, :, None, None]).flatten(1)

    def weight(self, network: nn.Module) -> Tensor:
        """Return the weights of the last linear layer.

        Args:
            network: The network.

        Returns:
            Weights without their graph, ``(num_classes, C)``, in float32 at least.
        """
        linear: Any = network.get_submodule(self.linear)
        return at_least_float32(linear.weight.detach().flatten(1))

    def predict(self, network: nn.Module, maps: Tensor) -> Tensor:
        """Classify images by their maps: what the network does after them.

        Args:
            network: The network.
            maps: The value of `read_maps`.

        Returns:
            Classes, ``(N,)``.
        """
        linear: Any = network.get_submodule(self.linear)
        logits = maps.mean(dim=(2, 3)) @ self.weight(network).T.to(maps.dtype)
        return (logits if linear.bias is None else logits + linear.bias.detach()).argmax(dim=1)


@dataclass(frozen=True)
class FoundCam:
    """What a forward pass shows of the end of a network.

    Attributes:
        reader: Where map and weights are.
        maps: The map of the images, ``(N, C, h, w)``.
        logits: Their logits, ``(N, num_classes)``.
    """

    reader: CamReader
    maps: Tensor
    logits: Tensor


def find_cam(network: nn.Module, x: Tensor) -> FoundCam:
    """Find the last feature map and the linear layer behind its mean, by looking at a forward pass.

    Args:
        network: Classifier that ends in global average pooling and one linear layer; in eval mode.
        x: Images as the network takes them, ``(N, C, H, W)``.

    Returns:
        Where they are, and the map and logits of the images.

    Raises:
        NoCamError: The network ends differently.
    """
    end = _record(network, x)
    if end.output is None or end.logits.ndim != 2 or not _close(end.output, end.logits):
        raise _no_cam("its last step is no linear layer")
    if end.maps is not None and (found := _match(end, end.maps, end.layer, by_features=False)):
        return found
    if end.whole is not None:  # for networks whose last step before the pooling is no module but, say, F.relu
        whole: Any = network.get_submodule(end.whole)
        features = whole.forward_features(end.whole_input)
        is_map = isinstance(features, Tensor) and _positions(features) > 1
        if is_map and (found := _match(end, features, end.whole, by_features=True)):
            return found
    raise _no_cam("the linear layer does not take the mean of a map of more than one position")


@dataclass
class _End:
    """The end of a forward pass, and what came before it that may be the last feature map or the last norm."""

    linear: str = ""  # or the 1x1 convolution that some networks have in its place
    pooled: Tensor | None = None  # the linear layer's input
    output: Tensor | None = None  # the linear layer's output
    logits: Any = None
    maps: Tensor | None = None
    layer: str = ""  # whose output the maps are
    norm: Any = None
    norm_name: str = ""
    before_norm: Tensor | None = None
    whole: str | None = None  # the outermost module with forward_features
    whole_input: Tensor | None = None


def _record(network: nn.Module, x: Tensor) -> _End:
    end = _End()
    names = {module: name for name, module in network.named_modules()}

    def hook(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if not isinstance(output, Tensor):
            return
        if isinstance(module, nn.Linear) or (isinstance(module, nn.Conv2d) and _positions(inputs[0]) == 1):
            end.linear, end.pooled, end.output = names[module], inputs[0], output
        elif isinstance(module, nn.LayerNorm):
            end.norm, end.norm_name, end.before_norm = module, names[module], inputs[0]
        if hasattr(module, "forward_features") and inputs:
            end.whole, end.whole_input = names[module], inputs[0]
        if _positions(output) > 1:
            end.maps, end.layer = output, names[module]

    handles = [module.register_forward_hook(hook) for module in names]
    try:
        end.logits = logits_of(run_uncompiled(network, x))
    finally:
        for handle in handles:
            handle.remove()
    return end


def _positions(output: Tensor) -> int:
    """Of a map with channels first or last; 1 for what pooling leaves, or a vector."""
    return 1 if output.ndim != 4 else min(output[0, 0].numel(), output[0, ..., 0].numel())


def _match(end: _End, maps: Tensor, layer: str, by_features: bool) -> FoundCam | None:
    """The structure in which the mean of `maps`, normed or not, is the linear layer's input; None if it is not."""
    for channels_last in (False, True):
        turned = at_least_float32(maps.permute(0, 3, 1, 2) if channels_last else maps)
        mean = turned.mean(dim=(2, 3))
        if _close(mean, end.pooled):
            return FoundCam(CamReader(layer, by_features, channels_last, None, end.linear), turned, end.logits)
        if end.norm is not None and _close(mean, end.before_norm):
            normed = _norm_everywhere(end.norm, turned, mean)
            if _close(normed.mean(dim=(2, 3)), end.pooled):
                reader = CamReader(layer, by_features, channels_last, end.norm_name, end.linear)
                return FoundCam(reader, normed, end.logits)
    return None


def _norm_everywhere(norm: nn.LayerNorm, maps: Tensor, mean: Tensor) -> Tensor:
    """The LayerNorm of the pooled vector `mean`, carried to each position of the map."""
    deviation = (mean.var(dim=1, correction=0) + norm.eps).sqrt().view(-1, 1, 1, 1)
    normed = (maps - maps.mean(dim=1, keepdim=True)) / deviation
    if norm.weight is not None:
        normed = normed * at_least_float32(norm.weight.detach()).view(-1, 1, 1)
    if norm.bias is not None:
        normed = normed + at_least_float32(norm.bias.detach()).view(-1, 1, 1)
    return normed


def _close(first: Tensor, second: Tensor | None) -> bool:
    """Equal but for rounding; (N, C, 1, 1) counts as (N, C)."""
    if second is None or first.flatten(1).shape != second.flatten(1).shape:
        return False
    within = TOLERANCE if second.dtype in (torch.float32, torch.float64) else TOLERANCE_IN_HALF
    difference = at_least_float32(first.flatten(1)) - at_least_float32(second.flatten(1))
    return bool(difference.abs().max() <= within * second.abs().max())


class _Reached(Exception):  # noqa: N818 (a message, not an error)
    """Carries the input of a submodule out of the forward pass."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


def _input_of(network: nn.Module, layer: nn.Module, x: Tensor) -> Tensor:
    """What a submodule is called with, such as the normalized images inside a wrapper."""
    if layer is network:
        return x

    def stop(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        raise _Reached(inputs[0])

    handle = layer.register_forward_pre_hook(stop)
    try:
        run_uncompiled(network, x)
    except _Reached as reached:
        return reached.value
    finally:
        handle.remove()
    raise _no_cam("a submodule of it no longer runs")


def _no_cam(reason: str) -> NoCamError:
    return NoCamError(f"no CAM: the network must end in global average pooling and one linear layer, but {reason}")
