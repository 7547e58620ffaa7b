"""Every family of timm: the feature tap gives a map with the channels it promised, or says why it cannot."""

import pytest
import timm
import torch

from automix.networks.feature_tap import find_tap

REFUSED = {  # families whose stages timm does not describe, or not as maps (N, C, h, w); a submodule's name may do
    "coat": (1, 2, 3, 4),
    "convit": (1, 2, 3, 4),
    "convmixer": (1, 2, 3, 4),
    "crossvit": (1, 2, 3, 4),
    "dpn": (1, 2, 3, 4),
    "hrnet": (1, 2, 3, 4),
    "sequencer": (1, 2, 3, 4),
    "selecsls": (1, 2),
    "visformer": (1, 2, 3, 4),
    **dict.fromkeys(("efficientvim", "efficientvit_msra", "levit", "nest", "pit", "shvit"), (4,)),  # three stages
}


def families() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in timm.list_models():
        found.setdefault(timm.models.model_entrypoint(name).__module__.rpartition(".")[2], []).append(name)
    return found


def parameters(name: str) -> float:
    """Counted on the meta device, without memory; a model that cannot be built there is not chosen."""
    try:
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in timm.create_model(name).parameters())
    except RuntimeError:
        return float("inf")


@pytest.mark.slow
@pytest.mark.parametrize("family", families())
def test_layers_of_the_smallest_model(family: str) -> None:
    name = min(families()[family][:12], key=parameters)
    model = timm.create_model(name, num_classes=3).eval()
    image = torch.zeros(1, *model.default_cfg["input_size"])
    for layer in (1, 2, 3, 4):
        if layer in REFUSED.get(family, ()):
            with pytest.raises(ValueError, match=r"^layer .*$"):
                find_tap(model, layer)(model, image)
        else:
            tap = find_tap(model, layer)
            with torch.no_grad():
                z = tap(model, image)
            assert (z.ndim, z.shape[1]) == (4, tap.channels)
