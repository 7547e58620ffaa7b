"""A fine-tuned detector as one safetensors file, complete by itself: the weights and, as JSON, how to build it."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from automix.core.errors import one_line
from automix.core.tensor_files import read_tensors, write_tensors
from automix.networks.create import create_model
from automix.runs.classifier import load_classifier
from automix.studies.detection.network import Kind, create_detector
from automix.studies.detection.recipe import DetectRecipe, recipe_from_values, recipe_values
from automix.training.build import load_initial_weights

NAME = "detector.safetensors"
CARD = "automix-detector"
FORMAT = 1


@dataclass(frozen=True)
class Backbone:
    """A classifier without its weights: what builds the network, and the normalization it was trained with."""

    model: str
    model_options: dict[str, Any]
    train_size: int
    mean: tuple[float, ...]
    std: tuple[float, ...]

    def build(self, **options: Any) -> nn.Module:
        """A network with new weights, for images of any size in the form for `train_size`; its head is not used."""
        given = {name: v for name, v in self.model_options.items() if name not in ("pretrained", "checkpoint_path")}
        given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
        return create_model(self.model, num_classes=1, image_size=self.train_size, **given, **options)


@dataclass(frozen=True)
class DetectorCard:
    """What one must know to build the detector and to use it."""

    backbone: Backbone
    kind: Kind
    classes: tuple[str, ...]
    settings: DetectRecipe
    facts: dict[str, Any] = field(default_factory=dict)  # for people

    def build(self, backbone: nn.Module | None = None) -> nn.Module:
        """The detector, on a trained `backbone`; without one, for weights that come from a file."""
        return create_detector(
            self.backbone.build() if backbone is None else backbone,
            len(self.classes),
            kind=self.kind,
            settings=self.settings,
            mean=self.backbone.mean,
            std=self.backbone.std,
        )

    def to_json(self) -> str:
        values = {**asdict(self), "settings": recipe_values(self.settings), "format": FORMAT}
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> "DetectorCard":
        values = json.loads(text)
        if values.pop("format") != FORMAT:
            raise ValueError(f"the detector's format is not known: accepted is {FORMAT}")
        backbone, settings = Backbone(**values.pop("backbone")), recipe_from_values(values.pop("settings"))
        return cls(backbone=backbone, settings=settings, **{**values, "classes": tuple(values["classes"])})


def load_backbone(name: str, weights: Path | None = None) -> tuple[nn.Module, Backbone]:
    """A trained classifier: a run's folder, a classifier's file, or timm's pretrained network of that name.

    Of a timm network, `weights` is a safetensors file in place of what timm would fetch.
    """
    import timm
    from timm.data import resolve_model_data_config

    if Path(name).exists():
        if weights is not None:
            raise ValueError(f"weights={weights} with backbone {name}: accepted with a timm name only")
        model, card = load_classifier(Path(name))
        return model, Backbone(card.model, card.model_options, card.train_size, card.mean, card.std)
    if not timm.is_model(name):
        raise ValueError(f"backbone {name!r}: accepted are a run's folder, a classifier's file and timm's names")
    described = Backbone(name, {}, 224, (), ())
    try:
        model = described.build(pretrained=weights is None)
    except (OSError, RuntimeError) as error:  # what downloads raise; timm: no weights of this name
        reason = one_line(error)[:200]
        raise ValueError(f"backbone {name}: no pretrained weights ({reason}); accepted is --weights FILE") from None
    if weights is not None:
        load_initial_weights(model, weights)
    config = resolve_model_data_config(model)
    return model, Backbone(name, {}, 224, config["mean"], config["std"])


def save_detector(path: Path, detector: nn.Module, card: DetectorCard) -> None:
    """Write weights and card; a file that is there stays until the new one is whole."""
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in detector.state_dict().items()}
    write_tensors(path, weights, {CARD: card.to_json()})


def load_detector(path: Path) -> tuple[nn.Module, DetectorCard]:
    """The detector, in evaluation mode on the CPU, and its card, from a file or a run's folder."""
    file = path / NAME if path.is_dir() else path
    if not file.is_file():
        raise ValueError(f"{file}: no such file; accepted is a run of `automix detect train`, or its {NAME}")
    weights, metadata = read_tensors(file)
    if CARD not in metadata:
        raise ValueError(f"{file}: no detector of automix; accepted are files that automix detect has saved")
    try:
        card = DetectorCard.from_json(metadata[CARD])
        with torch.random.fork_rng(devices=[]):  # the initial weights are overwritten: nobody's numbers are to change
            detector = card.build()
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file}: its description cannot be used ({one_line(error)})") from None
    try:
        detector.load_state_dict(weights)
    except RuntimeError as error:
        reason = one_line(error).partition("FasterRCNN: ")[2][:200]
        raise ValueError(
            f"{file}: the weights do not fit its {len(card.classes)} classes and network ({reason})"
        ) from None
    return detector.eval(), card
