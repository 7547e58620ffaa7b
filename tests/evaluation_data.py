"""Models and samples for the tests of evaluators."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from automix.data.image_set import ImageSet
from automix.evaluation.samples import Samples

COLORS = ("red", "green", "blue")


class ByColor(nn.Module):
    """Red, green and blue are the classes; the map of a class is its color."""

    def __init__(self, num_classes: int = 3) -> None:
        super().__init__()
        self.see = nn.Identity()
        self.head = nn.Linear(3, num_classes, bias=False)
        nn.init.eye_(self.head.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.see(x).mean(dim=(2, 3)))


def noise(count: int, num_classes: int = 5, size: int = 16) -> Samples:
    drawn = torch.randint(256, (count, 3, size, size), generator=torch.Generator().manual_seed(1), dtype=torch.uint8)
    return Samples(ImageSet(drawn, torch.arange(count) % num_classes, tuple("abcde"[:num_classes])), size)


def squares(count: int = 6, size: int = 16) -> Samples:
    """A square in the color of each image's class, in turns, and its box."""
    labels = torch.arange(count) % 3
    pixels = torch.zeros(count, 3, size, size, dtype=torch.uint8)
    pixels[torch.arange(count), labels, 2:9, 3:8] = 255
    boxes = torch.tensor([3.0, 2, 8, 9]).expand(count, 4).clone()
    return Samples(ImageSet(pixels, labels, COLORS, boxes), size)


class RecordingTrack:
    """A progress display that remembers what it was given."""

    def __init__(self) -> None:
        self.total = 0
        self.seen = 0

    def __call__(self, items: Iterable[Any], total: int, what: str) -> Iterator[Any]:
        self.total = total
        for item in items:
            self.seen += 1
            yield item


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Assert that weights, statistics, gradients and modes of `model` and torch's random numbers stay as they are."""
    state = {name: torch.as_tensor(value).clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    trained = [parameter.requires_grad for parameter in model.parameters()]
    random = torch.get_rng_state()
    yield
    assert all(torch.equal(torch.as_tensor(value), state[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert [parameter.requires_grad for parameter in model.parameters()] == trained
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())
    assert torch.equal(torch.get_rng_state(), random)
