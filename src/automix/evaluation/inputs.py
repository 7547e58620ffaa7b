"""What is evaluated: a classifier with its normalization inside, and the test images it is asked about.

subject = open_inputs("runs/x")                              a run, on its own test images
subject = open_inputs("resnet50", data="imagenet")           timm's pretrained network
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from automix.core.validation import check_whole
from automix.data.bad_files import OtherDataError
from automix.data.datasets import open_dataset
from automix.data.sources import Split
from automix.evaluation.samples import Samples
from automix.networks.create import create_model
from automix.runs.classifier import Card, WithNormalization
from automix.runs.config import TrainConfig
from automix.runs.folder import RunFolder, load_classifier


@dataclass(frozen=True)
class EvaluationInputs:
    """`classifier` takes pixels in [0, 1]; `config` is that of the run, where there was one."""

    name: str
    classifier: WithNormalization
    card: Card
    data: str
    samples: Samples
    config: TrainConfig | None = None

    @property
    def device(self) -> torch.device:
        return self.classifier.mean.device

    @property
    def folder(self) -> Path | None:
        """The run's folder."""
        return Path(self.name) if self.config is not None else None


def open_inputs(
    source: str,
    *,
    data: str | None = None,
    data_root: str | None = None,
    weights: str | None = None,
    which: Literal["last", "best"] = "last",
    images: int | None = None,
    device: torch.device | str = "cpu",
) -> EvaluationInputs:
    """`source` is a run's folder, a classifier's file, or the name of a network of timm's.

    A run is tested on its own `data` unless other is given. A named network has timm's pretrained weights, or those
    of the safetensors file `weights`. `images` takes so many test images only, of as many classes as possible.
    """
    check_whole("images", images, 1)
    path = Path(source)
    if path.exists():
        if weights is not None:
            raise ValueError(f"weights={weights} beside {source}: accepted is a network's name, or no weights")
        model, card = load_classifier(path, which)
        config = find_config(path)
    else:
        model, card, config = *_network(source, weights), None
    test, data = open_test_set(card, config, data, data_root, path)
    card = _agree(source, card, test)
    samples = Samples(test, card.image_size, card.crop)
    classifier = WithNormalization(model, card).to(device).eval()
    return EvaluationInputs(
        source, classifier, card, data, samples if images is None else samples.first(images), config
    )


def find_config(path: Path) -> TrainConfig | None:
    """The settings of the run in the folder `path`; None where there is none."""
    return RunFolder(path).read_config() if RunFolder(path).is_run else None


def _network(name: str, weights: str | None) -> tuple[nn.Module, Card]:
    """timm's network of that name, and a card without names of classes, which the data will give."""
    from automix.training.build import load_initial_weights

    card = pretrained_card(name)
    try:
        model = create_model(
            name, num_classes=len(card.classes), image_size=card.image_size, pretrained=weights is None
        )
    except (OSError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"model {name}: no pretrained weights ({reason}); accepted is --weights FILE") from None
    if weights is not None:
        load_initial_weights(model, Path(weights))
    return model, card


def pretrained_card(name: str) -> Card:
    """What timm's network `name` was trained for; its classes are numbers."""
    import timm

    if not timm.is_model(name):
        raise ValueError(f"{name!r}: no such folder or file, and no network of timm's: accepted are these three")
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
        raise ValueError("no data to test on: accepted is --data NAME or --data FOLDER")
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


def _agree(source: str, card: Card, test: Split) -> Card:
    """The card with the data's names where it has only numbers; an error where the two speak of different classes."""
    if len(card.classes) != len(test.classes):
        raise ValueError(
            f"{source} tells {len(card.classes)} classes, the data has {len(test.classes)}: accepted are equals"
        )
    if card.classes == test.classes:
        return card
    if card.classes != tuple(str(number) for number in range(len(card.classes))):
        odd = next((ours, theirs) for ours, theirs in zip(card.classes, test.classes, strict=True) if ours != theirs)
        raise ValueError(f"{source} knows {odd[0]!r} where the data has {odd[1]!r}: accepted are the same classes")
    return replace(card, classes=test.classes)
