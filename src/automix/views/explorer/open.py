"""What `automix explore` opens: a run, a classifier's file, a network of timm's, or nothing but images."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from automix.core.errors import one_line
from automix.data.shapes import CLASSES, draw_shapes
from automix.evaluation.inputs import find_config, open_test_set, pretrained_card
from automix.evaluation.samples import Samples
from automix.networks.create import create_model
from automix.runs.classifier import Card
from automix.runs.folder import RunFolder, load_classifier
from automix.views.explorer.pair import Explorer, Picture

EXAMPLES = 12
SHAPES_SIZE = 96  # px, of the images that are there without a network
UNTRAINED = "its weights are random: what it says of an image means nothing"


def open_explorer(
    source: str | None = None,
    *,
    data: str | None = None,
    data_root: str | None = None,
    weights: str | None = None,
    untrained: bool = False,
) -> Explorer:
    """`source` is a run's folder, a classifier's file, the name of a network of timm's, or None for images alone.

    Examples are test images of `data`: of the run's own data if not given, of `shapes` where there is none. A named
    network has timm's pretrained weights, those of the safetensors file `weights`, or random ones (`untrained`).
    """
    by_name = source is not None and not Path(source).exists()
    if (weights is not None or untrained) and not by_name:
        raise ValueError("weights and untrained are for a network given by name: accepted is one beside them")
    if weights is not None and untrained:
        raise ValueError(f"weights={weights} beside untrained: accepted is one of them")
    if source is None:
        opened = _nothing()
    elif by_name:
        opened = _by_name(source, weights, untrained)
    else:
        opened = _from_path(Path(source))
    return _with_examples(opened, source, data, data_root)


def _nothing() -> Explorer:
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
    """A run with its checkpoint has student, teacher and task; without one, or as a file, the classifier alone."""
    if RunFolder(path).is_run and RunFolder(path).has_checkpoint:
        from automix.training.load import load_task

        task, card, config = load_task(path)
        networks = {"student": task.student} | ({"teacher": task.teacher} if task.teacher is not None else {})
        if len(networks) == 1:
            networks = {"classifier": task.student}
        return Explorer(str(path), card, (), networks, task, config.method)
    model, card = load_classifier(path)
    notes = ["there is no checkpoint in it: no student beside the teacher, and no Mix Block"] if path.is_dir() else []
    return Explorer(str(path), card, (), {"classifier": model}, notes=notes)


def _by_name(name: str, weights: str | None, untrained: bool) -> Explorer:
    card = pretrained_card(name)
    model, notes = _network(name, len(card.classes), card.image_size, weights, untrained)
    return Explorer(name, replace(card, classes=_class_names(card)), (), {"classifier": model.eval()}, notes=notes)


def _network(name: str, count: int, size: int, weights: str | None, untrained: bool) -> tuple[nn.Module, list[str]]:
    """The network, with a note where its weights are random."""
    from automix.training.build import load_initial_weights

    if weights is None and not untrained:
        try:
            return create_model(name, num_classes=count, image_size=size, pretrained=True), []
        except (OSError, RuntimeError) as error:
            reason = one_line(error)
            raise ValueError(
                f"model {name}: no pretrained weights ({reason}); accepted are --weights FILE and --untrained"
            ) from None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)  # the same network every time
        model = create_model(name, num_classes=count, image_size=size)
    if weights is not None:
        load_initial_weights(model, Path(weights))
    return model, [UNTRAINED] if untrained else []


def _class_names(card: Card) -> tuple[str, ...]:
    """ImageNet's where the network was trained on it, else numbers."""
    import timm
    from timm.data import ImageNetInfo, infer_imagenet_subset

    subset = infer_imagenet_subset(timm.get_pretrained_cfg(card.model).to_dict())
    if subset is None:
        return card.classes
    names = ImageNetInfo(subset).label_descriptions()
    return tuple(name.split(",")[0] for name in names)


# --- the examples ----------------------------------------------------------------------------------------------------


def _with_examples(opened: Explorer, source: str | None, data: str | None, data_root: str | None) -> Explorer:
    """With test images to choose from; data that is not on this machine is missed only where it was asked for."""
    folder = Path(source) if source is not None else None
    config = find_config(folder) if folder is not None else None
    if data is None and config is None and "data" not in opened.card.facts:
        return replace(opened, examples=_shapes(opened.card.image_size))
    try:
        test, name = open_test_set(opened.card, config, data, data_root, folder)
    except (ValueError, OSError) as error:
        if data is not None:
            raise
        note = f"its data is not here ({one_line(error)}): these examples are drawn"
        return replace(opened, examples=_shapes(opened.card.image_size), notes=[*opened.notes, note])
    if len(test) < 2:
        raise ValueError(f"data {name!r} has {len(test)} test image: accepted are 2 or more")
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
    """Some test images of as many classes as possible, with their class where the network knows the same ones."""
    part = next(samples.first(EXAMPLES).parts(EXAMPLES))
    same = samples.classes == known
    return [
        Picture(image, samples.classes[label], label if same else None)
        for image, label in zip(part.images, part.labels.tolist(), strict=True)
    ]
