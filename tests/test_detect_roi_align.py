"""RoIAlign against torchvision's own Python version, which `_torchvision.py` takes out of use."""

import importlib.util
import sys
from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from automix._compat import torchvision as _torchvision
from automix._compat.roi_align import roi_align


def theirs() -> Any:
    """torchvision's function as its file has it, without the compiler around it."""
    in_use: Any = import_module("torchvision.ops.roi_align")
    spec = importlib.util.spec_from_file_location("torchvision.ops.unchanged_roi_align", in_use.__file__)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module._roi_align.__wrapped__


def regions(count: int, images: int, width: float, height: float) -> Tensor:
    """Regions in no order of their images, some across the border, the last without extent."""
    ends = torch.rand(count, 2, 2, dtype=torch.float64).sort(dim=1).values
    ends = (ends * 1.2 - 0.1) * torch.tensor([width, height])
    ends[-1, 1] = ends[-1, 0]
    numbers = torch.randint(images, (count, 1)).double()
    return torch.cat([numbers, ends.flatten(1)], dim=1)


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.parametrize("sampling_ratio", [1, 2, 3, -1, 0])
@pytest.mark.parametrize(("height", "width"), [(13, 9), (1, 6), (40, 31)])
def test_roi_align_equals_torchvisions(aligned: bool, sampling_ratio: int, height: int, width: int) -> None:
    maps = torch.randn(3, 4, height, width, dtype=torch.float64, requires_grad=True)
    rois = regions(25, 3, width * 8, height * 8)
    arguments = (rois, 1 / 8, 5, 3, sampling_ratio, aligned)
    ours, expected = roi_align(maps, *arguments), theirs()(maps, *arguments)
    torch.testing.assert_close(ours, expected)
    weights = torch.randn_like(expected)[:-1]  # their gradient for a region without extent can be NaN
    arguments = (rois[:-1], *arguments[1:])
    gradients = [
        torch.autograd.grad((function(maps, *arguments) * weights).sum(), maps)[0] for function in (roi_align, theirs())
    ]
    torch.testing.assert_close(*gradients)


def test_a_region_worked_out_by_hand() -> None:
    """The map is x + 10 y. Pixel centers lie at 0.5, so the region from 1 to 3 has its bins' centers at 1 and 2."""
    maps = (torch.arange(5.0) + 10 * torch.arange(5.0).view(-1, 1)).view(1, 1, 5, 5)
    pooled = roi_align(maps, torch.tensor([[0.0, 1, 1, 3, 3]]), 1.0, 2, 2, 2, True)
    torch.testing.assert_close(pooled, torch.tensor([[[[11.0, 12], [21, 22]]]]))


def test_no_regions_and_half_precision() -> None:
    maps = torch.randn(1, 4, 8, 8)
    assert roi_align(maps, torch.zeros(0, 5), 1.0, 7, 7, 2, False).shape == (0, 4, 7, 7)
    rois = torch.tensor([[0.0, 1, 2, 7, 5]])
    half = roi_align(maps.bfloat16(), rois, 1.0, 7, 7, 2, False)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), roi_align(maps, rois, 1.0, 7, 7, 2, False), atol=0.03, rtol=0.03)


@pytest.mark.skipif(
    "not __import__('automix')._torchvision.is_patched()", reason="torchvision has its native operators"
)
def test_torchvisions_pooling_uses_it_without_a_compiler() -> None:
    from torchvision.ops import MultiScaleRoIAlign

    pool = MultiScaleRoIAlign(["a"], output_size=2, sampling_ratio=2)
    pooled = pool({"a": torch.ones(1, 3, 4, 4)}, [torch.tensor([[0.0, 0, 16, 16]])], [(16, 16)])
    assert torch.equal(pooled, torch.ones(1, 3, 2, 2))
    assert _torchvision.is_patched()
    assert getattr(sys.modules["torchvision.ops.roi_align"], "_roi_align") is roi_align  # noqa: B009
