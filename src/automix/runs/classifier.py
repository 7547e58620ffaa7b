"""A trained classifier as one file: a safetensors file with the weights and, in its metadata, the card to use them by.

    save_classifier(Path("cats.safetensors"), model, card)
    model, card = read_classifier(Path("cats.safetensors"))

The names of the weights are those of ``model.state_dict()``: if you have the model already, load them with
``safetensors.torch.load_file``. Nothing in the file is executed when it is loaded, unlike a pickle, and a checksum in
it tells whether it is damaged.
"""

import json
from dataclasses import field, fields
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from automix.core.config import config_dataclass
from automix.core.errors import AutomixError, one_line
from automix.core.tensor_files import misfit, read_tensors, write_tensors
from automix.networks.create import create_model

CARD = "automix"  # the card's key in the metadata, here and in the exports
FORMAT = "1"  # raised when older versions of automix could no longer make sense of a card

_WEIGHTS_FROM_ELSEWHERE = ("pretrained", "checkpoint_path")  # the file has the weights: nothing is to be fetched


@config_dataclass
class Card:
    """What one must know to use a classifier's weights. Wrong values raise an `AutomixError` of one line."""

    model: str
    """Name of the network, for `automix.create_model`."""
    model_options: dict[str, Any]
    """Further options of `create_model`; values that JSON has."""
    classes: tuple[str, ...]
    """Names of the classes, in the order of the logits."""
    image_size: Annotated[int, Field(ge=1)]
    """Side in pixels of the images that are classified."""
    train_size: Annotated[int, Field(ge=1)]
    """Side in pixels of the images that the network was trained on."""
    crop: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The short side of an image is resized to ``image_size / crop``, then the center is cut out."""
    mean: tuple[float, float, float]
    """Mean of the pixels in [0, 1] by channel."""
    std: tuple[float, float, float]
    """Standard deviation of the pixels by channel, each > 0."""
    facts: dict[str, Any] = field(default_factory=dict)
    """For information: accuracies, epoch, method, data, version."""

    def __post_init__(self) -> None:
        if not self.classes:
            raise AutomixError("classes must have one name or more, got ()")
        if not min(self.std) > 0:
            raise AutomixError(f"std must be > 0, got {self.std}")

    def to_json(self) -> str:
        """Write the card as JSON.

        Returns:
            The text, on one line.
        """
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        for name, value in values.items():
            try:
                json.dumps(value)
            except (TypeError, ValueError) as error:
                raise AutomixError(f"{name} must have values that JSON has ({one_line(error)})") from None
        return json.dumps({"format": FORMAT, **values}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "Card":
        """Read a card that `to_json` wrote.

        Args:
            text: The JSON. Fields that this version does not know are ignored.

        Returns:
            The card. Lists among the model's options come back as tuples, as timm has them.
        """
        try:
            values = json.loads(text)
            written_as = values["format"]
        except (ValueError, TypeError, KeyError):
            raise AutomixError(f"the card must be JSON with format {FORMAT!r}") from None
        if written_as != FORMAT:
            raise AutomixError(f"the card must have format {FORMAT!r}, got {written_as!r} of a newer automix")
        known = {item.name: values[item.name] for item in fields(cls) if item.name in values}
        for name in {"model_options", "classes", "mean", "std"} & known.keys():
            known[name] = _tuples(known[name])
        return cls(**known)


class WithNormalization(nn.Module):
    """A classifier with its normalization inside: it takes pixels in [0, 1] and returns logits.

    Args:
        model: The classifier, which takes normalized images.
        card: Has the mean and the standard deviation.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, model: nn.Module, card: Card) -> None:
        super().__init__()
        self.model = model
        weight = next(model.parameters())
        self.register_buffer("mean", torch.tensor(card.mean).view(3, 1, 1).to(weight))
        self.register_buffer("std", torch.tensor(card.std).view(3, 1, 1).to(weight))

    def normalize(self, pixels: Tensor) -> Tensor:
        """Normalize images.

        Args:
            pixels: Images in [0, 1], ``(N, 3, H, W)``.

        Returns:
            What `model` takes.
        """
        return (pixels - self.mean) / self.std

    def forward(self, pixels: Tensor) -> Tensor:
        """Classify images.

        Args:
            pixels: Images in [0, 1], ``(N, 3, H, W)``.

        Returns:
            Logits, ``(N, num_classes)``.
        """
        return self.model(self.normalize(pixels))


def save_classifier(path: Path, model: nn.Module, card: Card) -> None:
    """Write a classifier to a file, atomically: an earlier file stays until the new one is whole.

    Args:
        path: The file.
        model: The classifier, which takes normalized images.
        card: What one must know to use it.
    """
    metadata = {CARD: card.to_json(), "format": "pt"}  # the second is what transformers asks for
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
        raise AutomixError(f"{path}: no card of automix in it; give a file that automix saved")
    try:
        card = Card.from_json(metadata[CARD])
        model = _build(card)
        if wrong := misfit(weights, model.state_dict(), "model"):
            raise AutomixError(f"the weights do not fit the model: {wrong}")
    except ValueError as error:
        raise AutomixError(f"{path}: {error}") from None
    model.load_state_dict(weights)
    return model.eval(), card


def _build(card: Card) -> nn.Module:
    options = {name: value for name, value in card.model_options.items() if name not in _WEIGHTS_FROM_ELSEWHERE}
    try:
        with torch.random.fork_rng(devices=[]):  # the initial weights are overwritten
            return create_model(card.model, num_classes=len(card.classes), image_size=card.train_size, **options)
    except (TypeError, ValueError, RuntimeError) as error:
        raise AutomixError(f"model {card.model!r} cannot be built ({one_line(error)})") from None


def _tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _tuples(item) for key, item in value.items()}
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value
