"""The file of a fine-tuned detector: its weights and, as JSON, the description that rebuilds it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from automix.core.errors import AutomixError, one_line
from automix.core.tensor_files import read_tensors, write_tensors
from automix.networks.create import create_model
from automix.networks.weights import find_pretrained
from automix.runs.folder import load_classifier
from automix.studies.detection.network import Kind, create_detector
from automix.studies.detection.recipe import DetectRecipe, change_recipe, recipe_values

DETECTOR = "detector.safetensors"
CARD = "automix-detector"
FORMAT = 1


@dataclass(frozen=True)
class Backbone:
    """A classifier without its weights.

    Attributes:
        model: Name of the network.
        model_options: Its options.
        train_size: Side of its training images in pixels.
        mean: Mean of each channel that it was trained with.
        std: Standard deviation of each channel that it was trained with.
    """

    model: str
    model_options: dict[str, Any]
    train_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def build(self, **options: Any) -> nn.Module:
        """Build the network with new weights, in the form that it has for images of `train_size`.

        Args:
            **options: Further options of the network.

        Returns:
            The network; a detector does not use its head.
        """
        given = {name: v for name, v in self.model_options.items() if name not in ("pretrained", "checkpoint_path")}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        return create_model(self.model, num_classes=1, image_size=self.train_size, **given, **options)


@dataclass(frozen=True)
class DetectorCard:
    """The description of a detector in its file.

    Attributes:
        backbone: The classifier it is built on.
        kind: ``"c4"`` or ``"fpn"``.
        classes: Class names by label.
        settings: The recipe.
        facts: Data, backbone and recipe of the run, for people.
    """

    backbone: Backbone
    kind: Kind
    classes: tuple[str, ...]
    settings: DetectRecipe
    facts: dict[str, Any] = field(default_factory=dict)

    def build(self, backbone: nn.Module | None = None) -> nn.Module:
        """Build the detector.

        Args:
            backbone: A trained classifier; a new network if not given, for weights that are loaded afterwards.

        Returns:
            The detector.
        """
        return create_detector(
            self.backbone.build() if backbone is None else backbone,
            len(self.classes),
            kind=self.kind,
            settings=self.settings,
            mean=self.backbone.mean,
            std=self.backbone.std,
        )

    def to_json(self) -> str:
        """Encode as JSON."""
        values = {**asdict(self), "settings": recipe_values(self.settings), "format": FORMAT}
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "DetectorCard":
        """Decode the text of `to_json`.

        Args:
            text: The JSON text.

        Returns:
            The card.
        """
        values = json.loads(text)
        if values.pop("format") != FORMAT:
            raise AutomixError(f"format must be {FORMAT}")
        backbone, settings = Backbone(**values.pop("backbone")), change_recipe(DetectRecipe(), values.pop("settings"))
        return cls(backbone=backbone, settings=settings, **{**values, "classes": tuple(values["classes"])})


def load_backbone(name: str, weights: Path | None = None) -> tuple[nn.Module, Backbone]:
    """Load a trained classifier.

    Args:
        name: A run folder, a classifier file, or a timm name for that network's pretrained weights.
        weights: A file or folder to load into the timm network instead of its pretrained weights.

    Returns:
        The classifier and its description.
    """
    import timm
    from timm.data import resolve_model_data_config

    if Path(name).exists():
        if weights is not None:
            raise AutomixError(f"weights needs a timm name as backbone, got {name}")
        model, card = load_classifier(Path(name))
        return model, Backbone(card.model, card.model_options, card.train_size, card.mean, card.std)
    if not timm.is_model(name):
        raise AutomixError(f"backbone must be a run folder, a classifier file or a timm name, got {name!r}")
    described = Backbone(name, {}, 224, (), ())
    pretrained = find_pretrained(name, None if weights is None else str(weights))
    model = described.build()
    pretrained.load_into(model)
    config = resolve_model_data_config(model)
    return model, Backbone(name, {}, 224, config["mean"], config["std"])


def save_detector(path: Path, detector: nn.Module, card: DetectorCard) -> None:
    """Write a detector file atomically.

    Args:
        path: The file.
        detector: The detector.
        card: Its description.
    """
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in detector.state_dict().items()}
    write_tensors(path, weights, {CARD: card.to_json()})


def load_detector(path: Path) -> tuple[nn.Module, DetectorCard]:
    """Load a detector.

    Args:
        path: A detector file, or the run folder of `automix detect train`.

    Returns:
        The detector, in eval mode on the CPU, and its description.

    Raises:
        AutomixError: If there is no such file, or it is not a detector of automix.
    """
    file = path / DETECTOR if path.is_dir() else path
    if not file.is_file():
        raise AutomixError(f"{file}: no such file; pass a run of `automix detect train`, or its {DETECTOR}")
    weights, metadata = read_tensors(file)
    if CARD not in metadata:
        raise AutomixError(f"{file}: not a detector file; pass one written by `automix detect train`")
    try:
        card = DetectorCard.from_json(metadata[CARD])
        with torch.random.fork_rng(devices=[]):  # building a network draws numbers
            detector = card.build()
    except (KeyError, TypeError, ValueError) as error:
        raise AutomixError(f"{file}: its description cannot be used ({one_line(error)})") from None
    try:
        detector.load_state_dict(weights)
    except RuntimeError as error:
        reason = one_line(error).partition("FasterRCNN: ")[2][:200]
        raise AutomixError(
            f"{file}: the weights do not fit its {len(card.classes)} classes and network ({reason})"
        ) from None
    return detector.eval(), card
