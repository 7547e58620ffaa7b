"""Choosing images by their labels: class and few-shot subsets, and a few images that show many classes."""

from collections.abc import Callable, Sized

import torch
from torch import Tensor

from automix.core.draws import step_generator


def check_labels(labels: Tensor, classes: Sized, name_of: Callable[[int], str]) -> None:
    """Raise a one-line ValueError that names an image whose label belongs to no class, if there is one."""
    outside = ((labels < 0) | (labels >= len(classes))).nonzero().flatten().tolist()
    if outside:
        raise ValueError(label_message(name_of(outside[0]), int(labels[outside[0]]), len(classes)))


def label_message(name: str, label: int, num_classes: int) -> str:
    return f"{name}: label {label}; accepted are 0 to {num_classes - 1}, the classes"


def subset_positions(labels: Tensor, total: int, classes: int | None, per_class: int | None, seed: int) -> Tensor:
    """Positions, in order, of `per_class` images of each of the first `classes` of `total` classes, drawn by `seed`."""
    if classes is not None and not 1 <= classes <= total:
        raise ValueError(f"classes={classes}: accepted are 1 to {total}")
    order = torch.randperm(len(labels), generator=step_generator(seed, 0, stream="subset"))
    by_class = order[labels[order].argsort(stable=True)]
    members = by_class.split(torch.bincount(labels, minlength=total).tolist())[: classes or total]
    fewest = min(len(member) for member in members)
    if per_class is not None and not 1 <= per_class <= fewest:
        raise ValueError(f"per_class={per_class}: accepted are 1 to {fewest}, the size of the smallest class")
    return torch.cat([member[:per_class] for member in members]).sort().values


def spread_over_classes(labels: Tensor, count: int) -> Tensor:
    """Positions of `count` images: the first of every class, then the second of every class, and so on."""
    by_class = labels.argsort(stable=True)
    sizes = torch.bincount(labels)
    starts = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    turn = torch.arange(len(labels)) - starts  # 0 for the first image of its class, 1 for the second, ...
    return by_class[turn.argsort(stable=True)][:count]
