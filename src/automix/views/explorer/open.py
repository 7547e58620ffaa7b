"""Open a run, a classifier's file, a timm network, or only images to explore."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from automix.core.errors import AutomixError, one_line
from automix.data.shapes import CLASSES, draw_shapes
from automix.evaluation.inputs import find_config, open_test_set, pretrained_card
from automix.evaluation.samples import Samples
from automix.networks.create import create_model
from automix.networks.weights import find_pretrained
from automix.runs.classifier import Card
from automix.runs.folder import RunFolder, load_classifier
from automix.views.explorer.explorer import Explorer
from automix.views.explorer.pair import Picture

EXAMPLES = 12
SHAPES_SIZE = 96  # px, of the images without a network
UNTRAINED = "The weights are random: the predictions mean nothing."
NO_CHECKPOINT = "The run has no checkpoint: only its classifier is shown, without a student and a Mix Block."


def open_explorer(
    source: str | None = None,
    *,
    data: str | None = None,
    data_root: str | None = None,
    weights: str | None = None,
    untrained: bool = False,
) -> Explorer:
    """Open what is to be explored.

    Args:
        source: A run folder, a classifier's safetensors file, the name of a timm network, or None for images only.
        data: Dataset or folder whose test images are the examples. If not given, the run's own data, or drawn shapes
            where there is none or it is not available.
        data_root: The folder of named datasets.
        weights: File or folder of weights for a network given by name; pretrained weights if not given.
        untrained: Use random weights for a network given by name.

    Returns:
        The explorer.
    """
    by_name = source is not None and not Path(source).exists()
    if (weights is not None or untrained) and not by_name:
        raise AutomixError(f"weights and untrained need a network given by name, got {source}")
    if weights is not None and untrained:
        raise AutomixError(f"weights must not be given together with untrained, got {weights}")
    if source is None:
        opened = _without_network()
    elif by_name:
        opened = _by_name(source, weights, untrained)
    else:
        opened = _from_path(Path(source))
    return _with_examples(opened, source, data, data_root)


def _without_network() -> Explorer:
    card = Card(
        model="none",
        model_options={},
        classes=("none",),
        image_size=SHAPES_SIZE,
        train_size=SHAPES_SIZE,
        mean=(0.0, 0.0, 0.0),
        std=(1.0, 1.0, 1.0),
    )
    return Explorer("no network", card, ())


def _from_path(path: Path) -> Explorer:
    """Open a run with its student, teacher and task; a file or a run without a checkpoint has only a classifier."""
    if RunFolder(path).is_run and RunFolder(path).has_checkpoint:
        from automix.training.load import load_task

        task, card, config = load_task(path)
        networks = {"student": task.student} | ({"teacher": task.teacher} if task.teacher is not None else {})
        if len(networks) == 1:
            networks = {"classifier": task.student}
        return Explorer(str(path), card, (), networks, task, config.method)
    model, card = load_classifier(path)
    return Explorer(str(path), card, (), {"classifier": model}, notes=[NO_CHECKPOINT] if path.is_dir() else [])


def _by_name(name: str, weights: str | None, untrained: bool) -> Explorer:
    card = pretrained_card(name)
    model, notes = _network(name, len(card.classes), card.image_size, weights, untrained)
    return Explorer(name, replace(card, classes=_class_names(card)), (), {"classifier": model.eval()}, notes=notes)


def _network(name: str, count: int, size: int, weights: str | None, untrained: bool) -> tuple[nn.Module, list[str]]:
    """Build the network; the list has a note if its weights are random."""
    pretrained = None if untrained else find_pretrained(name, weights)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the same network every time
        model = create_model(name, num_classes=count, image_size=size)
    if pretrained is not None:
        pretrained.load_into(model)
    return model, [UNTRAINED] if untrained else []


def _class_names(card: Card) -> tuple[str, ...]:
    """Names of the ImageNet classes if the network was trained on them, else numbers."""
    import timm
    from timm.data import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset(timm.get_pretrained_cfg(card.model).to_dict())
    if subset is None:
        return card.classes
    names = ImageNetInfo(subset).label_descriptions()
    return tuple(name.split(",")[0] for name in names)


# --- the examples ----------------------------------------------------------------------------------------------------


def _with_examples(opened: Explorer, source: str | None, data: str | None, data_root: str | None) -> Explorer:
    """Add test images to choose from. Data that is not available is an error only if the user named it."""
    folder = Path(source) if source is not None else None
    config = find_config(folder) if folder is not None else None
    if data is None and config is None and "data" not in opened.card.facts:
        return replace(opened, examples=_shapes(opened.card.image_size))
    try:
        test, name = open_test_set(opened.card, config, data, data_root, folder)
    except (ValueError, OSError) as error:
        if data is not None:
            raise
        note = f"The data of the run is not available ({one_line(error)}): the examples are drawn shapes."
        return replace(opened, examples=_shapes(opened.card.image_size), notes=[*opened.notes, note])
    if len(test) < 2:
        raise AutomixError(f"data must have at least 2 test images, got {len(test)} in {name!r}")
    card = opened.card
    if card.classes == tuple(str(number) for number in range(len(test.classes))):
        card = replace(card, classes=test.classes)
    samples = Samples(test, card.image_size, card.crop)
    return replace(opened, card=card, examples=_choose(samples, card.classes if opened.networks else ()))


def _shapes(size: int) -> list[Picture]:
    drawn = draw_shapes(EXAMPLES, size)
    names = [CLASSES[label] for label in drawn.labels.tolist()]
    return [Picture(image, name) for image, name in zip(drawn.images, names, strict=True)]


def _choose(samples: Samples, known: tuple[str, ...]) -> list[Picture]:
    """Choose test images of as many classes as possible; they have labels if the network has the same classes."""
    part = next(samples.first(EXAMPLES).parts(EXAMPLES))
    same = samples.classes == known
    return [
        Picture(image, samples.classes[label], label if same else None)
        for image, label in zip(part.images, part.labels.tolist(), strict=True)
    ]
