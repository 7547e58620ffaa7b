"""A trained classifier as one file: a safetensors file with the weights and, in its metadata, the card to use them by.

    save_classifier(Path("cats.safetensors"), model, card)
    model, card = read_classifier(Path("cats.safetensors"))

The names of the weights are those of ``model.state_dict()``, so that ``safetensors.torch.load_file`` is enough for
whoever has the model already. Nothing in the file is executed when it is loaded, unlike a pickle, and a checksum in it
tells whether it is damaged (tensors.py).
"""

import dataclasses
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from automix.core.errors import one_line
from automix.core.tensor_files import misfit, read_tensors, write_tensors
from automix.networks.create import create_model

CARD = "automix"  # the card's key in the metadata, here and in the exports
FORMAT = "1"  # raised when older versions of automix could no longer make sense of a card

_WEIGHTS_FROM_ELSEWHERE = ("pretrained", "checkpoint_path")  # the file has the weights: nothing is to be fetched


@dataclass(frozen=True, kw_only=True)
class Card:
    """What one must know to use the weights."""

    model: str  # name for automix.create_model
    model_options: dict[str, Any]  # further options of create_model, values that JSON has
    classes: tuple[str, ...]
    image_size: int  # px, at which the classifier is tested
    train_size: int  # px, for which the model was built
    crop: float = 1.0  # the short side is resized to image_size / crop, then the center is cut out
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    facts: dict[str, Any] = field(default_factory=dict)  # accuracy, epoch, method, data, version: for people

    def __post_init__(self) -> None:
        if not isinstance(self.classes, tuple) or not self.classes:
            raise ValueError(f"classes={self.classes!r}: accepted is a tuple of one name or more")
        if not isinstance(self.model_options, dict):
            raise ValueError(f"model_options={self.model_options!r}: accepted is a dictionary")
        for name, size in (("image_size", self.image_size), ("train_size", self.train_size)):
            if not isinstance(size, int) or size < 1:
                raise ValueError(f"{name}={size}: accepted is a number of pixels >= 1")
        if not 0 < self.crop <= 1:
            raise ValueError(f"crop={self.crop}: accepted is a number > 0 and <= 1")
        if len(self.mean) != 3 or len(self.std) != 3 or not min(self.std) > 0:
            raise ValueError(f"mean={self.mean}, std={self.std}: accepted are three numbers each, those of std > 0")

    def to_json(self) -> str:
        fields = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}
        for name, value in fields.items():
            try:
                json.dumps(value)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{name} cannot be written as JSON ({error}): accepted are plain values") from None
        return json.dumps({"format": FORMAT, **fields}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Card":
        """The card that `to_json` wrote. Lists among the model's options come back as tuples, as timm has them."""
        try:
            values = json.loads(text)
            written_as = values["format"]
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"the card is not JSON with a format: accepted is format {FORMAT!r}") from None
        if written_as != FORMAT:
            raise ValueError(f"the card has format {written_as!r}, of a newer automix: accepted is {FORMAT!r}")
        known = {item.name: values[item.name] for item in dataclasses.fields(cls) if item.name in values}
        for name in {"model_options", "classes", "mean", "std"} & known.keys():
            known[name] = _tuples(known[name])
        try:
            return cls(**known)
        except TypeError as error:  # a field is missing, or text where a number should be
            raise ValueError(f"the card cannot be used ({one_line(error)})") from None


class WithNormalization(nn.Module):
    """`model` and the card's normalization before it: takes pixels in [0, 1], gives logits."""

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, card: Card) -> None:
        super().__init__()
        self.model = model
        weight = next(model.parameters())
        self.register_buffer("mean", torch.tensor(card.mean).view(3, 1, 1).to(weight))
        self.register_buffer("std", torch.tensor(card.std).view(3, 1, 1).to(weight))

    def normalize(self, pixels: Tensor) -> Tensor:
        """What `model` is given for images (N, 3, H, W) in [0, 1]."""
        return (pixels - self.mean) / self.std

    def forward(self, pixels: Tensor) -> Tensor:
        return self.model(self.normalize(pixels))


def save_classifier(path: Path, model: nn.Module, card: Card) -> None:
    """Write the weights of `model` and its `card` to `path`; a file that is there stays until the new one is whole."""
    metadata = {CARD: card.to_json()}
    # safetensors refuses tensors that share memory (tied weights) or have another layout (channels last).
    weights = {
        name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
        for name, tensor in model.state_dict().items()
    }
    write_tensors(path, weights, metadata)


def read_classifier(path: Path) -> tuple[nn.Module, Card]:
    """Read a classifier's file.

    Args:
        path: A file that `save_classifier` wrote.

    Returns:
        The classifier on the CPU in eval mode, and the card to use it by.
    """
    weights, metadata = read_tensors(path)
    if CARD not in metadata:
        raise ValueError(f"{path}: no card of automix in it; accepted are files that automix has saved")
    try:
        card = Card.from_json(metadata[CARD])
        model = _build(card)
        if wrong := misfit(weights, model.state_dict(), "model"):
            raise ValueError(f"the weights do not fit the model: {wrong}")
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    model.load_state_dict(weights)
    return model.eval(), card


def _build(card: Card) -> nn.Module:
    options = {name: value for name, value in card.model_options.items() if name not in _WEIGHTS_FROM_ELSEWHERE}
    try:
        with torch.random.fork_rng(devices=[]):  # the initial weights are overwritten: nobody's numbers are to change
            return create_model(card.model, num_classes=len(card.classes), image_size=card.train_size, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"model {card.model!r} cannot be built ({one_line(error)})") from None


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
