"""Choosing images by their labels: subsets of classes, few-shot subsets, held-out parts, a few of many classes."""

from collections.abc import Callable, Sized

import torch
from torch import Tensor

from automix.core.draws import step_generator
from automix.core.errors import AutomixError


def check_labels(labels: Tensor, classes: Sized, name_of: Callable[[int], str]) -> None:
    """Refuse labels that belong to no class.

    Args:
        labels: Class indices, ``(N,)``.
        classes: The names of the classes.
        name_of: Gives the name of an image by its position, for the error message.

    Raises:
        AutomixError: A label is out of range; the message names the first such image.
    """
    wrong = ((labels < 0) | (labels >= len(classes))).nonzero().flatten().tolist()
    if wrong:
        raise AutomixError(label_message(name_of(wrong[0]), int(labels[wrong[0]]), len(classes)))


def label_message(name: str, label: int, num_classes: int) -> str:
    """Word the error for an image whose label is out of range."""
    return f"{name}: label must be in [0, {num_classes - 1}], got {label}"


def subset_positions(labels: Tensor, total: int, classes: int | None, per_class: int | None, seed: int) -> Tensor:
    """Choose a subset of a labeled dataset.

    Args:
        labels: Class indices, ``(N,)``.
        total: Number of classes.
        classes: Keep the first so many classes; all if not given.
        per_class: Keep so many images of each class; all if not given.
        seed: Seed of the choice within a class.

    Returns:
        Positions in ascending order.
    """
    if classes is not None and not 1 <= classes <= total:
        raise AutomixError(f"classes must be in [1, {total}], got {classes}")
    order = torch.randperm(len(labels), generator=step_generator(seed, 0, stream="subset"))
    by_class = order[labels[order].argsort(stable=True)]
    members = by_class.split(torch.bincount(labels, minlength=total).tolist())[: classes or total]
    smallest = min(len(member) for member in members)
    if per_class is not None and not 1 <= per_class <= smallest:
        raise AutomixError(f"per_class must be in [1, {smallest}] (the size of the smallest class), got {per_class}")
    return torch.cat([member[:per_class] for member in members]).sort().values


def held_out_positions(labels: Tensor, total: int, share: float) -> tuple[Tensor, Tensor]:
    """Split a labeled dataset in two, class by class, to choose settings without looking at test images.

    The split is the same for every run: it depends on the labels and the share alone.

    Args:
        labels: Class indices, ``(N,)``.
        total: Number of classes.
        share: Part of each class that is held out, in (0, 1); at least one image of each class.

    Returns:
        Positions of the images to train on and of the held-out images, each in ascending order.
    """
    order = torch.randperm(len(labels), generator=step_generator(0, 0, stream="validation"))
    by_class = order[labels[order].argsort(stable=True)]
    members = by_class.split(torch.bincount(labels, minlength=total).tolist())
    if small := [number for number, member in enumerate(members) if len(member) < 2]:
        raise AutomixError(f"validation needs 2 training images of each class, class {small[0]} has fewer")
    counts = [min(max(1, round(share * len(member))), len(member) - 1) for member in members]
    held = torch.cat([member[:count] for member, count in zip(members, counts, strict=True)])
    kept = torch.cat([member[count:] for member, count in zip(members, counts, strict=True)])
    return kept.sort().values, held.sort().values


def spread_over_classes(labels: Tensor, count: int) -> Tensor:
    """Choose images of as many classes as possible: the first of every class, then the second of every class, ...

    Args:
        labels: Class indices, ``(N,)``.
        count: Number of images.

    Returns:
        Positions, in the order of the choice; fewer than `count` if the dataset is smaller.
    """
    by_class = labels.argsort(stable=True)
    sizes = torch.bincount(labels)
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    turn = torch.arange(len(labels)) - starts  # 0 for the first image of its class, 1 for the second, ...
    return by_class[turn.argsort(stable=True)][:count]
