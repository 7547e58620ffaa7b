"""What is evaluated: a classifier with its normalization inside, and its test images.

inputs = open_inputs("runs/x")                              a run, on its own test images
inputs = open_inputs("resnet50", data="imagenet")           timm's pretrained network
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from automix.core.errors import AutomixError
from automix.core.validation import check_whole
from automix.data.bad_files import OtherDataError
from automix.data.datasets import open_dataset
from automix.data.sources import Split
from automix.evaluation.samples import Samples
from automix.networks.create import create_model
from automix.networks.weights import find_pretrained
from automix.runs.classifier import Card, WithNormalization
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder, Which, load_classifier


@dataclass(frozen=True)
class EvaluationInputs:
    """A classifier and its test images.

    Attributes:
        source: The run folder, the classifier's file or the network's name.
        classifier: Takes pixels in [0, 1].
        card: The classes, sizes and normalization of the classifier.
        data: Name or folder of the dataset.
        samples: Test images.
        config: The settings of the run; None if it is not a run.
        which: Weights of the run, ``"last"`` or ``"best"``; None if it is not a run.
    """

    source: str
    classifier: WithNormalization
    card: Card
    data: str
    samples: Samples
    config: TrainConfig | None = None
    which: Which | None = None

    @property
    def device(self) -> torch.device:
        """Where the classifier is."""
        return self.classifier.mean.device

    @property
    def run(self) -> RunFolder | None:
        """The run folder; None if it is not a run."""
        return RunFolder(Path(self.source)) if self.config is not None else None

    @property
    def results_folder(self) -> Path:
        """Where `automix evaluate` writes: RUN/evaluation, RUN/evaluation-best, or ./evaluation if it is not a run."""
        return (self.run or RunFolder(Path())).evaluation_of_weights(self.which or "last")


def open_inputs(
    source: str | Path,
    *,
    data: str | None = None,
    data_root: str | None = None,
    weights: str | None = None,
    which: Which = "last",
    images: int | None = None,
    device: torch.device | str = "cpu",
) -> EvaluationInputs:
    """Open a classifier and its test images.

    Args:
        source: A run folder, a classifier's file, or the name of a network of timm's.
        data: Name or folder of a dataset; the one that the classifier was trained on if not given.
        data_root: Where named datasets are.
        weights: A file or folder of weights for a network given by name; pretrained weights if not given.
        which: The weights of a run after the last epoch, or those with the highest test accuracy.
        images: Use this many test images only, of as many classes as possible.
        device: Where the classifier runs.

    Returns:
        The classifier in eval mode, its test images and where they come from.
    """
    check_whole("images", images, 1)
    path = Path(source)
    if path.exists():
        if weights is not None:
            raise AutomixError(f"weights must not be given with {source}, which has its own; got {weights}")
        model, card = load_classifier(path, which)
        config = find_config(path)
    else:
        model, card, config = *_pretrained(str(source), weights), None
    test, data = open_test_set(card, config, data, data_root, path)
    card = _check_classes(str(source), card, test)
    samples = Samples(test, card.image_size, card.crop)
    return EvaluationInputs(
        str(source),
        WithNormalization(model, card).to(device).eval(),
        card,
        data,
        samples if images is None else samples.first(images),
        config,
        None if config is None else which,
    )


def find_config(path: Path) -> TrainConfig | None:
    """Read the settings of the run in a folder; None if there is no run in it."""
    return RunFolder(path).read_config() if RunFolder(path).is_run else None


def pretrained_card(name: str) -> Card:
    """Describe a pretrained network of timm's.

    Args:
        name: As in ``timm.list_models()``.

    Returns:
        Its sizes and normalization; its classes are numbers.
    """
    import timm

    if not timm.is_model(name):
        raise AutomixError(f"{name}: not found; give a run folder, a classifier's file or the name of a timm model")
    known = timm.get_pretrained_cfg(name)
    expects = timm.data.resolve_data_config(pretrained_cfg=known.to_dict())
    size = int(expects["input_size"][-1])
    mean, std = (tuple(float(value) for value in expects[key]) for key in ("mean", "std"))
    names = tuple(str(number) for number in range(int(known.num_classes)))
    options: dict[str, Any] = {"model": name, "model_options": {}, "classes": names, "mean": mean, "std": std}
    return Card(image_size=size, train_size=size, crop=float(expects["crop_pct"]), **options)


def open_test_set(
    card: Card, config: TrainConfig | None, data: str | None, data_root: str | None, folder: Path | None = None
) -> tuple[Split, str]:
    """Open the test images of a dataset.

    The files that the run skipped as unreadable (``--bad-data skip``) are left out, on its own data and on a copy.

    Args:
        card: What the network expects.
        config: The settings of the run, if it is one.
        data: The dataset; what the network was trained on if not given.
        data_root: Where named datasets are.
        folder: The run folder, if it is a run.

    Returns:
        The test images, and the name of the dataset.
    """
    name = data or (config.data if config else card.facts.get("data"))
    if name is None:
        raise AutomixError("data must be given (--data NAME or --data FOLDER): the file does not name its dataset")
    own = config is not None and data is None
    root = Path(data_root) if data_root else (config.root if config else None)
    classes, per_class = (config.classes, config.per_class) if own and config else (None, None)
    skip_list = RunFolder(folder).skipped if folder and config and config.bad_data == "skip" else None
    try:
        train_and_test = open_dataset(
            name, root, image_size=card.train_size, classes=classes, per_class=per_class, skip_list=skip_list
        )
    except OtherDataError:
        if own:
            raise
        train_and_test = open_dataset(name, root, image_size=card.train_size)
    return train_and_test[1], name


def _pretrained(name: str, weights: str | None) -> tuple[nn.Module, Card]:
    """A network of timm's, and a card without names of classes."""
    card = pretrained_card(name)
    pretrained = find_pretrained(name, weights)
    model = create_model(name, num_classes=len(card.classes), image_size=card.image_size)
    if new := pretrained.load_into(model).new:
        raise AutomixError(f"{pretrained.source}: no {new[0]!r} for {len(card.classes)} classes; give other --weights")
    return model, card


def _check_classes(source: str, card: Card, test: Split) -> Card:
    """The card, with the data's names if it has only numbers; an error if the classes differ."""
    if len(card.classes) != len(test.classes):
        raise AutomixError(f"{source}: the data must have {len(card.classes)} classes, got {len(test.classes)}")
    if card.classes == test.classes:
        return card
    if card.classes != tuple(str(number) for number in range(len(card.classes))):
        ours, theirs = next(pair for pair in zip(card.classes, test.classes, strict=True) if pair[0] != pair[1])
        raise AutomixError(f"{source}: the data must have the same classes, got {theirs!r} instead of {ours!r}")
    return replace(card, classes=test.classes)
